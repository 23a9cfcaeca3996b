"""The order in which far tiles are walked: each comes once, next to its mirror image, group by group."""

import functools

import numpy as np
import pytest
from numba.types import int64

from tests.kernels import native
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.linker import link
from tracejit.kernels.compiler.memory import load, pointer
from tracejit.kernels.streams.transpose import GROUP, column_of, row_of, tile_position


def walk(block, low, high, scratch):
    """output[2 * i], output[2 * i + 1]: row and column of tile i among as many as slots 1 and 2 say."""
    output = pointer(load(block, int64), int64)
    for i in range(low, high):
        position = tile_position(i, load(block + 8, int64), load(block + 16, int64))
        output[2 * i] = row_of(position)
        output[2 * i + 1] = column_of(position)
    return 0


@functools.cache
def address():
    return link("walk", build_object([EntryPoint("walk", walk)]).object_code, ["walk"])["walk"]


def places(rows, columns):
    found = np.full((rows * columns, 2), -1, np.int64)
    native.run(address(), np.array([found.ctypes.data, rows, columns], np.int64), [(0, len(found))])
    return [tuple(position) for position in found.tolist()]


@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1), (7, 7), (8, 8), (16, 16), (24, 17), (17, 24), (3, 40), (40, 3), (33, 41)]
)
def test_every_tile_comes_once(rows, columns):
    found = places(rows, columns)
    assert sorted(found) == [(row, column) for row in range(rows) for column in range(columns)]


def test_mirror_images_are_neighbours():
    found = places(6 * GROUP, 6 * GROUP)
    order = {position: number for number, position in enumerate(found)}
    assert all(abs(order[row, column] - order[column, row]) <= 1 for row, column in found)


def test_a_group_is_done_before_the_next_one():
    found = places(5 * GROUP, 5 * GROUP)
    groups = [tuple(sorted((row // GROUP, column // GROUP))) for row, column in found]
    changes = [n for n, group in enumerate(groups) if n == 0 or group != groups[n - 1]]
    assert len(changes) == len(set(groups)) == 15
