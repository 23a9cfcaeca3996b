"""Loops over single elements, as people write them, recorded, replayed and run as serial kernels: against
the same function on NumPy's arrays, bit for bit, with the same errors.
"""

from __future__ import annotations

import traceback
import warnings
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.thorough import some
from tracejit.frontend.recording.look_loops import run_ahead


def insertion_sort(x):
    for i in range(1, len(x)):
        v = x[i].copy()
        j = i - 1
        while j >= 0 and x[j] > v:
            x[j + 1] = x[j]
            j -= 1
        x[j + 1] = v
    return x


def bubble_sort(x):
    n, swaps = len(x), 0
    for i in range(n):
        for j in range(n - 1 - i):
            if x[j] > x[j + 1]:
                a, b = float(x[j]), float(x[j + 1])
                x[j], x[j + 1] = b, a
                swaps += 1
    return swaps


def heap_sort(x):
    n = len(x)
    for start in range(n // 2 - 1, -1, -1):
        root = start
        while 2 * root + 1 < n:
            child = 2 * root + 1
            if child + 1 < n and x[child] < x[child + 1]:
                child += 1
            if not x[root] < x[child]:
                break
            a, b = float(x[root]), float(x[child])
            x[root] = b
            x[child] = a
            root = child
    for end in range(n - 1, 0, -1):
        a, b = float(x[0]), float(x[end])
        x[0] = b
        x[end] = a
        root = 0
        while 2 * root + 1 < end:
            child = 2 * root + 1
            if child + 1 < end and x[child] < x[child + 1]:
                child += 1
            if not x[root] < x[child]:
                break
            a, b = float(x[root]), float(x[child])
            x[root] = b
            x[child] = a
            root = child


def partition(x):
    lo, hi = 0, len(x) - 1
    if hi < 0:
        return -1
    pivot, i = float(x[hi]), lo
    for j in range(lo, hi):
        if x[j] < pivot:
            a, b = float(x[i]), float(x[j])
            x[i] = b
            x[j] = a
            i += 1
    a, b = float(x[i]), float(x[hi])
    x[i], x[hi] = b, a
    return i


def binary_search(x, value):
    lo, hi = 0, len(x)
    while lo < hi:
        mid = (lo + hi) // 2
        if x[mid] < value:
            lo = mid + 1
        else:
            hi = mid
    return lo


def gcd_all(d, e):
    total = 0
    for k in range(len(d)):
        a, b = int(d[k]), int(e[k])
        while b:
            a, b = b, a % b
        total += a
    return total


def sieve(flags):
    n = len(flags)
    p = 2
    while p * p < n:
        if flags[p]:
            for m in range(p * p, n, p):
                flags[m] = False
        p += 1


def count_primes(d):
    count = 0
    for k in range(len(d)):
        n = int(d[k])
        is_prime, q = n > 1, 2
        while is_prime and q * q <= n:
            if n % q == 0:
                is_prime = False
            q += 1
        if is_prime:
            count += 1
    return count


def collatz(d, steps):
    for k in range(len(d)):
        n, s = int(d[k]), 0
        while n > 1:
            if n % 2:
                n = 3 * n + 1
            else:
                n //= 2
            s += 1
        steps[k] = s


def knapsack(w, v, best):
    cap = len(best) - 1
    for i in range(len(w)):
        wi = int(w[i])
        for c in range(cap, wi - 1, -1):
            t = best[c - wi] + v[i]
            if t > best[c]:
                best[c] = t


def lcs(a, b, t):
    for i in range(len(a)):
        for j in range(len(b)):
            if a[i] == b[j]:
                t[i + 1, j + 1] = t[i, j] + 1
            elif t[i, j + 1] > t[i + 1, j]:
                t[i + 1, j + 1] = t[i, j + 1]
            else:
                t[i + 1, j + 1] = t[i + 1, j]


def edit_distance(a, b, t):
    for i in range(len(a) + 1):
        t[i, 0] = i
    for j in range(len(b) + 1):
        t[0, j] = j
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            best = t[i - 1, j - 1] + cost
            if t[i - 1, j] + 1 < best:
                best = t[i - 1, j] + 1
            if t[i, j - 1] + 1 < best:
                best = t[i, j - 1] + 1
            t[i, j] = best


def floyd(d):
    n = d.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i, k] + d[k, j] < d[i, j]:
                    d[i, j] = d[i, k] + d[k, j]


def floyd_tj(d):
    n = d.shape[0]
    for k in tj.range(n):
        for i in tj.range(n):
            for j in tj.range(n):
                d[i, j] = np.minimum(d[i, j], d[i, k] + d[k, j])


def prefix_tj(x):
    for i in tj.range(1, len(x)):
        x[i] = x[i] + x[i - 1]


def prefix(x):
    for i in range(1, len(x)):
        x[i] += x[i - 1]
    return x


def run_lengths(d, values, lengths):
    n, runs = len(d), 0
    i = 0
    while i < n:
        j = i
        while j < n and d[j] == d[i]:
            j += 1
        values[runs] = d[i]
        lengths[runs] = j - i
        runs += 1
        i = j
    return runs


def words(data):
    state = count = longest = length = 0
    for k in range(len(data)):
        c = data[k]
        if c == 32 or c == 10:
            state = 0
            length = 0
        else:
            if state == 0:
                count += 1
            state = 1
            length += 1
            if length > longest:
                longest = length
    return count, longest


def matrix_chain(p, m):
    n = len(p) - 1
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            best = -1
            for k in range(i, j):
                cost = int(m[i, k]) + int(m[k + 1, j]) + int(p[i]) * int(p[k + 1]) * int(p[j + 1])
                if best < 0 or cost < best:
                    best = cost
            m[i, j] = best


def walk(steps, limit, trail):
    position, hits = 0.0, 0
    for k in range(len(steps)):
        position = position + float(steps[k])
        if position > limit:
            position = limit
            hits += 1
        elif position < -limit:
            position = -limit
            hits += 1
        trail[k] = position
    return position, hits


def newton(c):
    x, steps = 1.0, 0
    c = float(c[0])
    while abs(x * x - c) > 1e-9 and steps < 100:
        if x < 1e-12:
            x = 1.0
        x = 0.5 * (x + c / x)
        steps += 1
    return x, steps


def linked_list(following, values):
    at, total, count = 0, 0.0, 0
    while at >= 0:
        total += float(values[at])
        at = int(following[at])
        count += 1
    return total, count


def union_find(parent, a, b):
    merged = 0
    for k in range(len(a)):
        i, j = int(a[k]), int(b[k])
        while int(parent[i]) != i:
            parent[i] = parent[int(parent[i])]
            i = int(parent[i])
        while int(parent[j]) != j:
            j = int(parent[j])
        if i != j:
            parent[j] = i
            merged += 1
    return merged


def bfs(starts, targets, distance, queue):
    distance[0] = 0
    queue[0] = 0
    head, tail = 0, 1
    while head < tail:
        node = int(queue[head])
        head += 1
        for e in range(int(starts[node]), int(starts[node + 1])):
            other = int(targets[e])
            if distance[other] < 0:
                distance[other] = distance[node] + 1
                queue[tail] = other
                tail += 1
    return tail


def life(grid, result):
    h, w = grid.shape
    for y in range(h):
        for x in range(w):
            n = 0
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    if dy != 0 or dx != 0:
                        n += int(grid[(y + dy) % h, (x + dx) % w])
            if n == 3 or (n == 2 and grid[y, x]):
                result[y, x] = 1
            else:
                result[y, x] = 0


def mandelbrot(re, im, out):
    for k in range(len(re)):
        x = y = 0.0
        a, b = float(re[k]), float(im[k])
        n = 0
        while n < 50 and x * x + y * y <= 4.0:
            x, y = x * x - y * y + a, 2.0 * x * y + b
            n += 1
        out[k] = n


def checksum(data):
    s = data[0] * 0
    for k in range(len(data)):
        s = s * 31 + data[k]
        if s > 200:
            s = s - 100
    return s


def shift_negative(x, y):
    for k in range(1, len(x) + 1):
        if x[-k] > 0:
            y[-k] = x[-k] * 2
        else:
            y[k - 1] = x[k - 1] - 1


def fib_mod(d):
    a, b = 0, 1
    for k in range(len(d)):
        if d[k] > 0:
            a, b = b, a * 3 + b
    return a, b


def horner_hash(d):
    h = 1469598103934665603
    for k in range(len(d)):
        h = (h ^ int(d[k])) * 1099511628211 % (1 << 64)
        if h & 1:
            h ^= 0xFF
    return h


def maxsub(x):
    best = here = float(x[0])
    at = 0
    for k in range(1, len(x)):
        v = float(x[k])
        here = v if here < 0 else here + v
        if here > best:
            best, at = here, k
    return best, at


def merge(a, b, out):
    i = j = k = 0
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            out[k] = a[i]
            i += 1
        else:
            out[k] = b[j]
            j += 1
        k += 1
    while i < len(a):
        out[k] = a[i]
        i += 1
        k += 1
    while j < len(b):
        out[k] = b[j]
        j += 1
        k += 1
    return k


def histogram(d, h):
    for k in range(len(d)):
        h[d[k]] += 1


def bounce(x, v, path):
    hits = 0
    for i in range(len(path)):
        x = x + v * 0.25
        if x[0] > 1.0 or x[1] < -1.0:
            v = v * -0.5
            hits += 1
        path[i] = x
    return x, v, hits


def nearest(points, center):
    best, where = 1e9, -1
    for i in range(len(points)):
        d = points[i] - center
        d = d * d
        distance = d[0] + d[1] + d[2]
        if distance < best:
            best, where = float(distance), i
    return best, where


def reflect(x, step, limit):
    rounds = 0
    while rounds < 40:
        y = x + step
        outside = np.abs(y) > limit
        step = np.where(outside, -step, step)
        x = np.where(outside, x, y)
        rounds += 1
        if not outside.any() and x[0] > x[1] + x[2]:
            break
    return x, step, rounds


def smooth(rows, out):
    state = rows[0] * 0
    for i in range(len(rows)):
        if rows[i, 0] > 0:
            state = np.cumsum(state * 0.5 + rows[i])
        elif rows[i, 1] > 0:
            state = state[::-1].copy()
            state[1] = rows[i, 2]
        out[i, 1:] = state[:2]
    return state


def halves(rng, n):
    return rng.integers(-5, 6, n) / 2.0


def integers(rng, n, low, high, dtype="int64"):
    return rng.integers(low, high, n).astype(dtype)


def adjacency(rng, n):
    """A directed graph of `n` nodes: the first edge of each, and the edges' targets."""
    n = max(n, 1)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 3, n))])
    return starts, rng.integers(0, n, max(1, starts[-1])), np.full(n, -1), np.zeros(n, "int64")


def linked(rng, n):
    n = max(n, 1)
    order = np.concatenate([[0], 1 + rng.permutation(n - 1)])
    following = np.full(n, -1)
    following[order[:-1]] = order[1:]
    return following, rng.random(n)


def texts(rng, n, dtype):
    return (*(integers(rng, n, 0, 3, "uint8") for _ in range(2)), np.zeros((n + 1, n + 1), dtype))


def sets(rng, n):
    n = max(n, 1)
    return np.arange(n), rng.integers(0, n, n), rng.integers(0, n, n)


BIG = 1 << 62

PROGRAMS: dict[str, tuple[Any, Any]] = {
    "insertion sort": (insertion_sort, lambda r, n: (halves(r, n),)),
    "insertion sort of bytes": (insertion_sort, lambda r, n: (integers(r, n, 0, 255, "uint8"),)),
    "bubble sort": (bubble_sort, lambda r, n: (halves(r, n),)),
    "heap sort": (heap_sort, lambda r, n: (halves(r, n),)),
    "partition": (partition, lambda r, n: (halves(r, n),)),
    "binary search": (binary_search, lambda r, n: (np.sort(halves(r, n)), float(r.integers(-5, 6)))),
    "gcd": (gcd_all, lambda r, n: (integers(r, n, 0, 1 << 40), integers(r, n, 0, 99))),
    "gcd of large numbers": (gcd_all, lambda r, n: (integers(r, n, 0, BIG), integers(r, n, 0, BIG))),
    "sieve": (sieve, lambda r, n: (np.ones(n * 5, bool),)),
    "primes": (count_primes, lambda r, n: (integers(r, n, 0, 200, "int32"),)),
    "collatz": (collatz, lambda r, n: (integers(r, min(n, 4), 0, 9), np.zeros(n, "int64"))),
    "knapsack": (knapsack, lambda r, n: (integers(r, n, 1, 6), halves(r, n), np.zeros(13))),
    "common subsequence": (lcs, lambda r, n: texts(r, n, "int64")),
    "edit distance": (edit_distance, lambda r, n: texts(r, n, "int32")),
    "shortest paths": (floyd, lambda r, n: (r.integers(1, 30, (n // 2, n // 2)) / 1.0,)),
    "shortest paths, tj.range": (floyd_tj, lambda r, n: (r.integers(1, 30, (n // 2, n // 2)) / 1.0,)),
    "prefix sums": (prefix, lambda r, n: (halves(r, n),)),
    "prefix sums of bytes": (prefix, lambda r, n: (integers(r, n, 0, 255, "uint8"),)),
    "prefix sums, tj.range": (prefix_tj, lambda r, n: (integers(r, n, 0, 255, "uint8"),)),
    "run lengths": (run_lengths, lambda r, n: (r.integers(0, 2, n), *np.zeros((2, n), "int64"))),
    "words": (words, lambda r, n: (r.choice(np.frombuffer(b"ab \ncd ", "uint8"), n),)),
    "matrix chain": (
        matrix_chain,
        lambda r, n: (r.integers(1, 9, n // 2 + 1), np.zeros((n // 2 + 1, n // 2 + 1), "int64")),
    ),
    "random walk": (walk, lambda r, n: (halves(r, n), 3.0, np.zeros(n))),
    "newton": (newton, lambda r, n: (r.random(1) * 9,)),
    "linked list": (linked_list, linked),
    "union find": (union_find, sets),
    "breadth first": (bfs, adjacency),
    "life": (life, lambda r, n: (r.integers(0, 2, (n // 4, n // 3)), np.zeros((n // 4, n // 3), "int64"))),
    "mandelbrot": (
        mandelbrot,
        lambda r, n: (r.random(n // 2) * 3 - 2, r.random(n // 2) * 2 - 1, np.zeros(n // 2, "int32")),
    ),
    "checksum of bytes": (checksum, lambda r, n: (integers(r, max(n, 1), 0, 255, "uint8"),)),
    "checksum of int16": (checksum, lambda r, n: (integers(r, max(n, 1), -32768, 32767, "int16"),)),
    "from the end": (shift_negative, lambda r, n: (halves(r, n), np.zeros(n))),
    "from the end, bytes": (
        shift_negative,
        lambda r, n: (integers(r, n, 0, 2, "uint8"), np.zeros(n, "uint8")),
    ),
    "integers that grow": (fib_mod, lambda r, n: (integers(r, n * 4, 0, 5),)),
    "integers of 64 bits": (horner_hash, lambda r, n: (integers(r, n, 0, 255, "uint8"),)),
    "largest sum": (maxsub, lambda r, n: (halves(r, max(n, 1)),)),
    "merge": (merge, lambda r, n: (np.sort(halves(r, n)), np.sort(halves(r, n // 2)), np.zeros(n + n // 2))),
    "histogram": (histogram, lambda r, n: (integers(r, n, -9, 9), np.zeros(9, "uint8"))),
}

PROGRAMS |= {
    "bouncing vector": (bounce, lambda r, n: (halves(r, 2), halves(r, 2), np.zeros((n, 2)))),
    "bouncing floats": (
        bounce,
        lambda r, n: (np.float32(halves(r, 2)), np.float32(halves(r, 2)), np.zeros((n, 2), "float32")),
    ),
    "nearest point": (nearest, lambda r, n: (r.random((n, 3)), r.random(3))),
    "reflected steps": (reflect, lambda r, n: (r.random(3), halves(r, 3) * 0.25, r.random(3) + 1)),
    "rows of three": (smooth, lambda r, n: (r.integers(-3, 4, (n or 1, 3)) / 2, np.zeros((n or 1, 3)))),
}

SLOW_AT_ONCE = {
    *("heap sort", "primes", "edit distance", "words", "union find", "mandelbrot", "life", "collatz"),
    *("knapsack", "largest sum", "insertion sort", "insertion sort of bytes", "common subsequence"),
    *("breadth first", "matrix chain"),
}
"""Programs whose first calls compile many loops if nothing is patient."""

SLOW = {
    *("collatz", "life", "mandelbrot", "heap sort", "gcd of large numbers", "matrix chain", "edit distance"),
    *("knapsack", "integers of 64 bits", "integers that grow", "primes", "insertion sort"),
}
"""Programs that record many paths."""

SIZES = (12, 12, 1, 0, 12)


def bits(result: Any) -> Any:
    """A result as something that is equal only for equal bits; numbers of Python's are of their own type."""
    if isinstance(result, tuple | list):
        return [bits(each) for each in result]
    if type(result) in (bool, int, float, type(None)):
        return type(result).__name__, repr(result)
    array = np.asarray(result)
    return str(array.dtype), array.shape, array.tobytes()


def copies(arguments: Any) -> list[Any]:
    return [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]


def traced_copies(arguments: Any) -> list[Any]:
    return [tj.array(x) if isinstance(x, np.ndarray) else x for x in arguments]


def arrays_of(arguments: Any) -> list[Any]:
    return [bits(x) for x in arguments if not isinstance(x, float)]


def run(function: Any, arguments: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return bits(function(*arguments))


def check(traced: Any, function: Any, arguments: Any) -> None:
    ours, numpys = traced_copies(arguments), copies(arguments)
    assert run(traced, ours) == run(function, numpys), traced.explain()
    assert arrays_of(ours) == arrays_of(numpys), traced.explain()


@pytest.mark.parametrize("name", some([name for name in PROGRAMS if name not in SLOW], 20))
def test_programs(name):
    function, arguments = PROGRAMS[name]
    traced, rng = tj.jit(function), np.random.default_rng(1)
    for size in SIZES:
        check(traced, function, arguments(rng, size))


@pytest.mark.parametrize("name", some([name for name in PROGRAMS if name not in SLOW_AT_ONCE], 9))
def test_programs_whose_first_call_runs_loops_at_once(name, monkeypatch):
    monkeypatch.setattr(run_ahead, "PATIENCE", 0.0)
    function, arguments = PROGRAMS[name]
    traced, rng = tj.jit(function), np.random.default_rng(2)
    for size in (12, 12, 5):
        check(traced, function, arguments(rng, size))


def replaced(arguments: Any, position: int, index: int, value: int) -> Any:
    changed = copies(arguments)
    changed[position][index] = value
    return changed


def shortened(arguments: Any, position: int, length: int) -> Any:
    changed = copies(arguments)
    changed[position] = changed[position][:length]
    return changed


WRONG: dict[str, Any] = {
    "gcd": lambda a: shortened(a, 1, 5),
    "knapsack": lambda a: replaced(a, 0, 5, -3),
    "random walk": lambda a: shortened(a, 2, 8),
    "linked list": lambda a: replaced(a, 0, 0, 99),
    "union find": lambda a: replaced(a, 1, 7, 99),
    "breadth first": lambda a: replaced(a, 1, 0, -99),
    "mandelbrot": lambda a: shortened(a, 1, 3),
    "from the end": lambda a: shortened(a, 1, 10),
    "merge": lambda a: shortened(a, 2, 11),
    "histogram": lambda a: replaced(a, 0, 6, 9),
    "run lengths": lambda a: shortened(a, 1, 1),
}


def line_of(error: BaseException) -> int | None:
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__
    ]
    return lines[-1]


@pytest.mark.parametrize("patience", [0.2, 0.0])
@pytest.mark.parametrize("name", WRONG)
def test_an_index_out_of_range(name, patience, monkeypatch):
    """The error is NumPy's, with the line of the user; the arrays are as they were, and later calls right."""
    if name in (SLOW_AT_ONCE if patience == 0.0 else SLOW | {"union find", "gcd"}):
        pytest.skip("slow")
    monkeypatch.setattr(run_ahead, "PATIENCE", patience)
    function, make = PROGRAMS[name]
    traced, rng = tj.jit(function), np.random.default_rng(3)
    arguments = make(rng, 12)
    while arguments[0].size < 12 or (name == "breadth first" and arguments[0][1] == 0):
        arguments = make(rng, 12)
    for call in range(5):
        if call in (0, 2):
            check(traced, function, make(rng, 12))
            continue
        wrong = WRONG[name](arguments)
        with pytest.raises(IndexError) as expected:
            run(function, copies(wrong))
        ours = traced_copies(wrong)
        with pytest.raises(IndexError) as error:
            bits([run(traced, ours), *arrays_of(ours)])  # waits for the launch
        assert f"{__file__}:{line_of(expected.value)}" in str(error.value) or line_of(error.value) == line_of(
            expected.value
        )
        if name != "histogram":  # its launch fails after the call; reading its result says so
            assert arrays_of(ours) == arrays_of(wrong)
    check(traced, function, make(rng, 12))


@pytest.mark.parametrize("name", ["bubble sort", "merge", "shortest paths", "partition", "bouncing vector"])
def test_repeated_calls_run_kernels(name):
    """A call does not launch each iteration."""
    function, arguments = PROGRAMS[name]
    traced, rng = tj.jit(function), np.random.default_rng(4)
    for _ in range(6):
        check(traced, function, arguments(rng, 12))
    explanation = str(traced.explain())
    assert "are one launch" in explanation
    assert "a launch each" not in explanation


def test_an_iteration_with_a_hundred_answers():
    """Python compiles a hundred levels of indentation at most; the checks of an iteration are more."""
    traced = tj.jit(collatz)
    for numbers in ([27, 27, 27], [27, 27, 27], [27, 1, 27]):
        check(traced, collatz, (np.array(numbers), np.zeros(3, "int64")))


@pytest.mark.cpu("it asks for the vectors of a CPU kernel")
def test_rows_of_a_few_elements_are_vectors():
    @tj.jit
    def f(x, w):
        for _ in tj.range(50):
            x = tj.tanh(x * w) + w
        return x

    x, w = np.linspace(-1, 1, 8, dtype=np.float32), np.linspace(0.1, 0.9, 8, dtype=np.float32)
    got = f(tj.asarray(x), tj.asarray(w)).numpy()
    (kernel,) = [kernel for kernel in f.schedules()[0].kernels if kernel.name == "loop"]
    assert kernel.width >= 4
    for _ in range(50):
        x = np.tanh(x.astype(np.float64) * w).astype(np.float32) + w
    np.testing.assert_allclose(got, x, rtol=1e-5)
