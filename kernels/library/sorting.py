"""Sorting and searching: ``sort``, ``argsort`` and ``search_sorted``.

A line is sorted by merging: runs of `RUN` elements are sorted by insertion, then merged pairwise, back and
forth between two buffers in the scratch memory of the thread. Merging is stable, and a step has no branch
that depends on the elements. Runs that are in order already are only copied.
"""

from __future__ import annotations

from numba import int64

from tracejit.kernels.compiler.memory import copy_bytes, pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.library.blocks import Lines, Search
from tracejit.kernels.library.comparisons import comparison_of

RUN = 8


@subroutine
def line_start(unit, count, inner):
    """Return the index of the first element of a line of an array (outer, count, inner)."""
    return unit // inner * count * inner + unit % inner


def make_merge_sort(precedes, item, itemsize):
    """Return merge_sort(keys, items, other, count), which sorts `count` items of a dtype and returns the
    address of the result: that of `items` or `other`, two buffers. ``precedes(keys, a, b)`` compares items.
    """

    @subroutine
    def sort_runs(keys, items, count):
        for i in range(1, count):
            start = i // RUN * RUN
            x, j = items[i], i
            while j > start and precedes(keys, x, items[j - 1]):
                items[j] = items[j - 1]
                j -= 1
            items[j] = x

    @subroutine
    def merge(keys, source, target, start, middle, end):
        """Merge the items from `start` and from `middle`; items of the first run go first if equal."""
        x, out = pointer(source, item), pointer(target, item)
        i, j, k = start, middle, start
        if precedes(keys, x[middle], x[middle - 1]):
            while i < middle and j < end:
                first, second = x[i], x[j]
                takes_second = precedes(keys, second, first)
                out[k] = second if takes_second else first
                step = int64(1) if takes_second else int64(0)
                j += step
                i += 1 - step
                k += 1
        else:
            j = end
            copy_bytes(target + itemsize * k, source + itemsize * k, itemsize * (end - k))
            i = middle
        copy_bytes(target + itemsize * k, source + itemsize * i, itemsize * (middle - i))
        k += middle - i
        copy_bytes(target + itemsize * k, source + itemsize * j, itemsize * (end - j))

    @subroutine
    def merge_sort(keys, items, other, count):
        sort_runs(keys, pointer(items, item), count)
        source, target, width = items, other, RUN
        while width < count:
            start = 0
            while start < count:
                middle, end = min(start + width, count), min(start + 2 * width, count)
                if middle < end:
                    merge(keys, source, target, start, middle, end)
                else:
                    copy_bytes(target + itemsize * start, source + itemsize * start, itemsize * (end - start))
                start = end
            source, target, width = target, source, 2 * width
        return source

    return merge_sort


def make_lines(dtype, itemsize, item, item_bytes, start, precedes):
    """Return a kernel that sorts lines of items: ``start(keys, i)`` is the item of the element `i`."""
    merge_sort = make_merge_sort(precedes, item, item_bytes)

    def lines(block, lo, hi, scratch):
        count, inner = slot(block, Lines.COUNT), slot(block, Lines.INNER)
        keys = pointer(scratch, dtype)
        items = scratch + slot(block, Lines.ITEMS)
        other = items + slot(block, Lines.ITEMS_BYTES)
        for unit in range(lo, hi):
            first = line_start(unit, count, inner)
            x = pointer(slot(block, Lines.X) + itemsize * first, dtype)
            for i in range(count):
                keys[i] = x[i * inner]
            for i in range(count):
                pointer(items, item)[i] = start(keys, i)
            ordered = pointer(merge_sort(keys, items, other, count), item)
            out = pointer(slot(block, Lines.OUT) + item_bytes * first, item)
            for i in range(count):
                out[i * inner] = ordered[i]
        return int64(0)

    return lines


def make_sort(dtype, itemsize):
    """Return the kernel of ``sort``: elements in ascending order."""
    compare = comparison_of(dtype)

    @subroutine
    def element(keys, i):
        return keys[i]

    @subroutine
    def precedes(keys, a, b):
        return compare(a, b)

    return make_lines(dtype, itemsize, dtype, itemsize, element, precedes)


def make_argsort(dtype, itemsize):
    """Return the kernel of ``argsort``: positions in ascending order of the elements; positions of equal
    elements are ascending.
    """
    compare = comparison_of(dtype)

    @subroutine
    def position(keys, i):
        return i

    @subroutine
    def precedes(keys, a, b):
        return compare(keys[a], keys[b])

    return make_lines(dtype, itemsize, int64, 8, position, precedes)


def make_search_sorted(dtype, itemsize):
    """Return the kernel of ``search_sorted``: the insertion positions of values in sorted rows, by binary
    search.
    """
    precedes = comparison_of(dtype)

    @subroutine
    def position_of(row, value, length, right):
        low, high = 0, length
        while low < high:
            middle = (low + high) // 2
            if not precedes(value, row[middle]) if right != 0 else precedes(row[middle], value):
                low = middle + 1
            else:
                high = middle
        return low

    def search(block, lo, hi, scratch):
        length, each = slot(block, Search.COUNT), slot(block, Search.EACH)
        values, out = pointer(slot(block, Search.VALUES), dtype), pointer(slot(block, Search.OUT), int64)
        for unit in range(lo, hi):
            row = pointer(slot(block, Search.X) + itemsize * (unit // each) * length, dtype)
            out[unit] = position_of(row, values[unit], length, slot(block, Search.RIGHT))
        return int64(0)

    return search
