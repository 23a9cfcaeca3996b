"""`tj.range`: a few recorded iterations represent an entire loop; Python's `range` is the oracle."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.ops.loops import loop


def rebinds(rounds):
    def f(x, w, n):
        for i in rounds(n):
            x = tj.tanh(x * w + i) - 0.25
        return x, i

    return f


def updates_in_place(rounds):
    def f(x, w, n):
        y = x.copy()
        for i in rounds(n):
            y[...] = y * 0.5 + w
            y += i
            y[1:] -= 0.125
        return y

    return f


def writes_an_argument(rounds):
    def f(x, w, n):
        for i in rounds(n):
            x *= 0.5
            x[:2] = x[:2] + w[:2] * i

    return f


def swaps(rounds):
    def f(x, w, n):
        a, b = x, w
        for _ in rounds(n):
            a, b = b, a * 0.5 + b
        return a, b

    return f


def remembers(rounds):
    def f(x, w, n):
        before, second = x, w
        for i in rounds(1, n + 1):
            second = before
            before = x
            x = tj.sin(x) + second * w / i
        return x, before, second, i

    return f


def nests(rounds):
    def f(x, w, n):
        for i in rounds(n):
            y = x * 0.5
            for j in rounds(5):
                y = y * 0.5 + w * (i * 10 + j)
            x = y - i
        return x, y, i, j

    return f


def keeps_lists(rounds):
    def f(x, w, n):
        state = {"x": x, "pair": [x, w]}
        for i in rounds(0, 3 * n, 3):
            state["x"] = state["x"] * 0.25 + (2 * i - 7)
            state["pair"] = [state["pair"][1], state["x"] + 1]
        return state

    return f


def counts_down(rounds):
    def f(x, w, n):
        for i in rounds(n, 0, -1):
            x = x * 0.5 + i
        return x, i

    return f


def calls(rounds):
    def f(x, w, n):
        def step(x, i):
            return helper(x) * w + i

        for i in rounds(n):
            x = step(x, i)
        return x

    return f


def helper(x):
    for _ in tj.range(6):
        x = x * 0.5 + 1
    return x


def writes_through_views(rounds):
    def f(x, w, n):
        y, z = x[1:], tj.zeros(3)
        part = z[:2]
        for i in rounds(n):
            y += 1
            part[...] = part * 0.5 + i
            z[2] = x[0]
        return x, y, z, part

    return f


def rebinds_a_cell(rounds):
    def f(x, w, n):
        def step(x):
            nonlocal w
            w = w * 0.5 + 1
            return x * 0.5 + w

        for _ in rounds(n):
            x = step(x)
        return x, w

    return f


def is_called_twice(rounds):
    def loop_of(a, n):
        for _ in rounds(n):
            a = a * 0.5 + 1
        return a

    def f(x, w, n):
        kept = x * 2
        one = loop_of(kept, n)
        kept += 1
        return one, kept, loop_of(kept, n)

    return f


def uses_the_last_variable(rounds):
    def f(x, w, n):
        for i in rounds(n):
            j = 3 * i + 1
            x = x * 0.5 + j
        return x * j + i, j, i + j, [j > 3]

    return f


def uses_outer_variables(rounds):
    def f(x, w, n):
        for i in rounds(n):
            for j in rounds(5):
                x = x * 0.5 + w * i
                w = w * 0.25 - 2 * i
                for _ in rounds(6):
                    x = (x + i) * 0.5 - (j + 1)
        return x, w

    return f


def reads_rows(rounds):
    def f(x, w, n):
        a = tj.outer(tj.arange(800.0), w)
        for i in rounds(n):
            x = tj.tanh(x * 0.5 + a[i]) + a[i + 1, ::-1] * a[2 * i]
        return x

    return f


def collects_rows(rounds):
    def f(x, w, n):
        found = tj.zeros((400, 3))
        for i in rounds(n):
            x = x * 0.5 + w * i
            found[i] = x
        return found, x

    return f


def writes_rows_that_it_reads(rounds):
    def f(x, w, n):
        a = tj.ones((400, 3))
        for i in rounds(1, n + 1):
            a[i] = a[i - 1] * 0.5 + w
            a[i, 1:] *= a[i + 1, :1]
        return a

    return f


def reads_backwards(rounds):
    def f(x, w, n):
        a = tj.outer(tj.arange(400.0), w)
        for i in rounds(n):
            x = x * 0.5 + a[399 - i] - a[:, 1][350 - i]
        return x

    return f


def reads_slices(rounds):
    def f(x, w, n):
        a = tj.arange(2400.0).reshape((3, 800))
        for i in rounds(n):
            x = x * 0.5 + a[:, 2 * i : 2 * i + 2].sum(1) + a.T[i + 5 : i + 8, 0]
        return x

    return f


def remembers_a_row(rounds):
    def f(x, w, n):
        a = tj.outer(tj.arange(400.0), w)
        row = before = a[0]
        for i in rounds(n):
            x = x * 0.5 + row * before
            before, row = row, a[i]
        return x

    return f


def indexes_in_nested_loops(rounds):
    def f(x, w, n):
        a = tj.outer(tj.arange(400.0), w)
        flat, found = a.reshape(1200), tj.zeros((400, 6))
        for i in rounds(n):
            for j in rounds(6):
                x = x * 0.5 + a[i] - flat[3 * i + j]
                found[i, 5 - j] = x[0]
        return x, found

    return f


def computes_rates(rounds):
    def f(x, w, n):
        for i in rounds(n):
            rate = 0.5 / (i + 1)
            x = x - rate * (x * w) + -(0.25 * i - n * 0.125) * 1e-3
            last = 2 * rate
        return x, rate, last

    return f


def fills_with_numbers(rounds):
    def f(x, w, n):
        found = tj.zeros(400)
        for i in rounds(n):
            found[i] = i * 0.25 - 1.5
            for j in rounds(4):
                x = x * 0.5 + tj.full(3, j * 0.125)
            x[1:] = 1 / (i + 2)
        return x, found

    return f


ROLLED = [
    rebinds,
    updates_in_place,
    writes_an_argument,
    swaps,
    remembers,
    nests,
    keeps_lists,
    counts_down,
    calls,
    writes_through_views,
    rebinds_a_cell,
    is_called_twice,
    uses_the_last_variable,
    uses_outer_variables,
    reads_rows,
    collects_rows,
    writes_rows_that_it_reads,
    reads_backwards,
    reads_slices,
    remembers_a_row,
    indexes_in_nested_loops,
    computes_rates,
    fills_with_numbers,
]


def looks_at_the_variable(rounds):
    def f(x, w, n):
        for i in rounds(n):
            x = x + w if i % 2 == 0 else x * 0.5
        return x

    return f


def indexes_in_turn(rounds):
    def f(x, w, n):
        total = x[0]
        for i in rounds(n):
            total = total * 0.5 + w[i % 3]
        return total

    return f


def counts_itself(rounds):
    def f(x, w, n):
        k = 0
        for _ in rounds(n):
            k += 1
            x = x * 0.5 + k
        return x, k

    return f


def collects(rounds):
    def f(x, w, n):
        found = []
        for _ in rounds(n):
            x = x * 0.5 + w
            found.append(x)
        return found

    return f


def stops_early(rounds):
    def f(x, w, n):
        seen = []
        for i in rounds(n):
            x = x * 0.5 + i
            seen.append(1)
            if len(seen) == 2:
                break
        return x, i

    return f


def looks_at_values(rounds):
    def f(x, w, n):
        for _ in rounds(n):
            x = x * 0.5 + w
            if float(x.sum()) > 2.5:
                x = x * 0.25
        return x

    return f


UNROLLED = [looks_at_the_variable, indexes_in_turn, counts_itself, collects, stops_early, looks_at_values]


def arguments():
    return tj.asarray([0.5, -1.25, 2.0]), tj.asarray([0.75, 0.5, -0.25])


def leaves(result):
    return [np.asarray(leaf) for leaf in tj.tree.leaves(result)]


def expect_equal(make, traced, n):
    x, w = arguments()
    y, v = arguments()
    got, expected = traced(x, w, n), make(range)(y, v, n)
    for one, other in zip(leaves((got, x, w)), leaves((expected, y, v)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("make", ROLLED)
def test_other_counts_replay(make):
    traced = tj.jit(make(tj.range))
    for n in (7, 12, 300, 4):
        expect_equal(make, traced, n)
    assert traced.cache_info().traces == 1
    assert any(node.op is loop for node in traced.graph(*arguments(), 9).nodes)
    assert "not rolled" not in traced.explain()


@pytest.mark.parametrize("make", [*ROLLED, *UNROLLED])
def test_few_rounds(make):
    traced = tj.jit(make(tj.range))
    for n in (3, 2, 1, 5, 4, 1):
        expect_equal(make, traced, n)


@pytest.mark.parametrize("make", UNROLLED)
def test_rounds_that_differ_are_all_recorded(make):
    traced = tj.jit(make(tj.range))
    for n in (9, 9, 6):
        expect_equal(make, traced, n)


def test_random_numbers_are_those_of_range():
    def f(rounds):
        def walk(x):
            for _ in rounds(6):
                x = x * 0.5 + tj.random.normal(shape=3)
            return x

        return tj.jit(walk)

    found = []
    for rounds in (tj.range, range):
        tj.random.seed(3)
        walk = f(rounds)
        found.append([np.asarray(walk(tj.zeros(3))) for _ in range(2)])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed):
    """Statements in a row, drawn from a few kinds, in loops that nest; `range` is the oracle."""
    source = _program(np.random.default_rng(seed))
    made = {}
    for name, rounds in (("ours", tj.range), ("plain", range)):
        names = {"tj": tj, "rounds": rounds}
        exec(compile(source, f"<program {seed}>", "exec"), names)
        made[name] = names["program"]
    traced = tj.jit(made["ours"])
    for n in (5, 8, 5, 2):
        found = []
        for call in (traced, made["plain"]):
            state = [tj.asarray([0.5, -1.25, 2.0]), tj.asarray([0.75, 0.5, -0.25]), tj.ones(3)]
            found.append(leaves((call(*state, n), state)))
        for got, expected in zip(*found, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6, err_msg=source)
    assert traced.cache_info().traces == 2, source  # one for 5 and 8 iterations, one for 2


def _program(rng):
    """A function of three arrays and a count, as text."""
    names = ["a", "b", "c"]
    lines = ["def program(a, b, c, n):"]

    def statement(indent, variables):
        x, y, z = rng.choice(names, 3)
        i = rng.choice([*variables, "1"])
        lines.append(
            indent
            + rng.choice(
                [
                    f"{x} = tj.sin({y}) * 0.5 + ({z}[::-1] - {i}) * 0.25",
                    f"{x}, {y} = {y}, {x} * 0.5",
                    f"{x} = {y}",
                    f"{x}[1:] = ({y}[:2] + {i}) * 0.5",
                    f"{x} *= 0.5",
                    f"{x} = tj.maximum({y}, {z}.mean()) * 0.75",
                    f"{x} = {y}[:]",
                ]
            )
        )

    def loop_over(indent, depth, variables):
        variable = "ijk"[depth]
        count = "n" if depth == 0 else "6"
        lines.append(f"{indent}for {variable} in rounds({count}):")
        for _ in range(rng.integers(1, 5)):
            statement(indent + "    ", [*variables, variable])
        if depth < 1 and rng.random() < 0.4:
            loop_over(indent + "    ", depth + 1, [*variables, variable])
        statement(indent + "    ", [*variables, variable])

    for _ in range(rng.integers(1, 3)):
        loop_over("    ", 0, [])
        statement("    ", ["i"])
    return "\n".join([*lines, "    return a, b, c"])


def test_no_rounds():
    @tj.jit
    def f(x, n):
        for _ in tj.range(n):
            x = x + 1
        return x

    for n in (0, -3, 5, 0):
        np.testing.assert_array_equal(f(tj.zeros(2), n), np.full(2, max(n, 0), "float32"))
    assert f.cache_info().traces == 3  # 0, -3 and all from 4 on


def test_explain_says_what_differs():
    @tj.jit
    def f(x):
        k = 0
        for _ in tj.range(20):
            k += 2
            x = x * 0.5 + k
        return x

    f(tj.zeros(2))
    assert "not rolled: the iterations of tj.range differ: k, at " in f.explain()


def test_explain_says_what_asks_for_the_variable():
    @tj.jit
    def f(x):
        for i in tj.range(8):
            if i != 3:
                x = x * 0.5 + i
        return x

    f(tj.zeros(9))
    assert "not rolled: the value of the loop variable is asked for" in f.explain()


def test_a_temporary_that_is_alive_at_two_rounds_is_not_lost():
    @tj.jit
    def f(x, n):
        for _ in tj.range(n):
            y = x
            x = x * 0.5 + 1
        return x, y, x - y

    for n in (6, 9):
        x = np.zeros(2, "float32")
        for _ in range(n):
            y, x = x, x * np.float32(0.5) + np.float32(1)
        for got, expected in zip(f(tj.zeros(2), n), (x, y, x - y), strict=True):
            np.testing.assert_array_equal(got, expected)
    assert f.cache_info().traces == 1


def test_a_count_beyond_what_float32_counts_is_recorded_anew():
    @tj.jit
    def f(x, n):
        for i in tj.range(n):
            x = x * 0 + i
        return x

    assert float(f(tj.zeros(1), 10)[0]) == 9
    entry = f.entry_for(tj.zeros(1), 10)
    assert any("16777216" in asked.path for asked in entry.requirements.values())


def test_gradients_record_all_rounds():
    def f(rounds):
        def loss(x, w):
            for i in rounds(6):
                x = tj.sin(x * w) + i
            return x.sum()

        return loss

    x, w = arguments()
    traced = tj.jit(tj.grad(f(tj.range), argnums=(0, 1)))
    for got, expected in zip(traced(x, w), tj.grad(f(range), argnums=(0, 1))(x, w), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_outside_of_a_recording_it_is_range():
    assert list(tj.range(2, 9, 3)) == [2, 5, 8]
    assert list(tj.range(3)) == [0, 1, 2]
    assert len(tj.range(4, 0, -1)) == 4
    assert repr(tj.range(3)) == "tj.range(0, 3, 1)"


@pytest.mark.parametrize("bounds", [(), (1, 2, 3, 4), (1.5,), ("3",), (0, 3, 0)])
def test_bad_bounds(bounds):
    with pytest.raises(tj.errors.ArgumentError, match=r"tj\.range"):
        tj.range(*bounds)


# --------------------------------------------------------------------------------------------------- indices


def test_a_row_that_is_left_over_is_that_of_the_last_round():
    @tj.jit
    def f(a, n):
        for i in tj.range(n):
            row = a[i, 1:]
        return row, row * 2

    a = tj.arange(60.0).reshape((20, 3))
    for n in (7, 12, 7, 1):
        row, twice = f(a, n)
        np.testing.assert_array_equal(row, np.asarray(a)[n - 1, 1:])
        np.testing.assert_array_equal(twice, 2 * np.asarray(row))
    row += 1  # it is a view
    np.testing.assert_array_equal(np.asarray(a)[0], [0, 2, 3])


def test_an_index_out_of_range_names_line_and_round_and_changes_nothing():
    @tj.jit
    def f(a, out, n):
        for i in tj.range(2, n):
            out[i] = a[i - 2] * 2

    a, out = tj.arange(8.0), tj.zeros(8)
    f(a, out, 7)
    f(a, out, 6)
    assert f.cache_info().traces == 1
    before = out.copy()
    for n in (9, 2000):
        with pytest.raises(
            IndexError, match=r"index 8 is out of .* extent 8, in iteration 6 of the loop\s+at .*:"
        ):
            f(a + 1, out, n)
        np.testing.assert_array_equal(out, before)
    f(a + 1, out, 8)
    np.testing.assert_array_equal(out, [0, 0, 2, 4, 6, 8, 10, 12])


def test_an_index_in_an_array_names_the_round():
    @tj.jit
    def f(a, index, out, n):
        for i in tj.range(n):
            out[i] = a[index[i]]
        return out.sum()

    a, index, out = tj.arange(4.0), np.zeros(40, np.int64), tj.zeros(40)
    f(a, index, out, 20)
    tj.wait_all()
    index[17] = 9
    for n in (20, 30):
        with pytest.raises(IndexError, match=r"in iteration 17 of the loop\s+at .*:"):
            np.asarray(f(a + 1, index, out, n))
        np.testing.assert_array_equal(out, np.zeros(40))
    f(a + 1, index, out, 12)
    np.testing.assert_array_equal(out, np.repeat([1, 0], [12, 28]))


def test_a_division_by_zero_raises_as_in_python():
    @tj.jit
    def f(x, n):
        for i in tj.range(n):
            x = x + 1 / (7 - i)
        return x

    np.testing.assert_allclose(f(tj.zeros(2), 6), sum(1 / (7 - i) for i in range(6)), rtol=1e-6)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            f(tj.zeros(2), 9)
    np.testing.assert_allclose(f(tj.zeros(2), 5), sum(1 / (7 - i) for i in range(5)), rtol=1e-6)


def test_an_index_error_that_the_body_catches():
    @tj.jit
    def f(a, n):
        x = tj.zeros(())
        for i in tj.range(n):
            try:
                x = x * 0.5 + a[i]
            except IndexError:
                x = x - 1
        return x

    def expected(a, n):
        x = np.float32(0)
        for i in range(n):
            x = x * np.float32(0.5) + a[i] if i < len(a) else x - 1
        return x

    a = tj.arange(8.0)
    for n in (6, 8, 10, 5):
        np.testing.assert_allclose(f(a, n), expected(np.asarray(a), n))


def test_indices_that_come_to_another_end():
    @tj.jit
    def f(a, n):
        x, y = tj.zeros(()), tj.zeros(())
        for i in tj.range(n):
            x = x * 0.5 + a[4 - i]
            y = y * 0.5 + a[i : i + 2].sum()
        return x, y

    def expected(a, n):
        x = y = np.float32(0)
        for i in range(n):
            x = x * np.float32(0.5) + a[4 - i]
            y = y * np.float32(0.5) + a[i : i + 2].sum()
        return x, y

    a = tj.arange(8.0)
    for n in (5, 8, 4, 9):
        np.testing.assert_allclose(f(a, n), expected(np.asarray(a), n))
    assert "not rolled: an index counts from another end" in f.explain()
