"""Random imperative programs as data and as readable Python.

A `Program` is the text of a function ``make(xp, array)`` and a list of calls. `make` builds some arrays,
views of them, a dict, an object and captured arrays, all of which may share memory, and returns a step
function; a call says which of the arrays and numbers the step gets. The text runs on NumPy and on tracejit
alike, and stands in the failure report, so that it can be pasted into a file.

NumPy lays the result of an operator out as its operands lie (``x.T + 1`` in columns), so that `reshape` of it
may copy where ours is a view, and the other way round. What a statement binds is put in C order: ``C(...)``.

Statements are grown one by one: each candidate is tried on NumPy arrays of ones, which tells its shape and
dtype, and one that NumPy refuses is left out. Programs are of two modes:

- *exact*: only operators that NumPy and the kernels compute to the same bits (integers, comparisons, exactly
  rounded arithmetic, movement); results must be equal;
- *smooth*: floating sums, products and transcendental functions, and no step from a floating value to a
  decision; results may differ by rounding.
"""

from __future__ import annotations

import copy
import dataclasses
import types
from typing import Any

import numpy as np
from hypothesis import strategies as st

SHAPE = (3, 4)
SHAPES = ((3, 4), (4,), (3, 1), (), (4, 3))
FLOATS, INTEGERS = ("float32", "float64"), ("int32", "int64")
VIEWS = ("[1:]", "[0]", "[-1]", "[::-1]", "[..., 1:]", "[:, 0]", "[None]", ".T", "[1:, :2]", ".reshape(-1)")
VIEWS += ("[:, ::2]", ".reshape(2, -1)", "[..., None]", ".ravel()", "[:2]")
SHIFTS = ("1:", ":-1"), ("1:, 1:", ":-1, 1:", "1:, :-1"), ("1:-1, 1:-1", ":-2, 1:-1", "2:, 2:", "1:-1, :-2")
DTYPES = tuple(map(np.dtype, (*FLOATS, *INTEGERS, "bool", "uint64")))


@dataclasses.dataclass
class Call:
    """The arguments of one call: expressions for the two arrays, numbers, and the seed of the fresh data."""

    p: str
    q: str
    n: int
    r: float
    seed: int


@dataclasses.dataclass
class Program:
    """A program: its text, its calls, and whether its results are exact."""

    source: str
    calls: list[Call]
    exact: bool

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How Hypothesis prints a failing program: as text to paste."""
        printer.text("\n" + repr(self))

    def __repr__(self) -> str:
        calls = "\n".join(f"#   {call}" for call in self.calls)
        return f"# {'exact' if self.exact else 'smooth'}\n{self.source}\n{calls}\n"


@dataclasses.dataclass
class Box:
    """An object with attributes, made by the programs."""

    x: Any
    t: int


class Plain:
    """The same, but no dataclass: passed as itself."""

    def __init__(self, x: Any, t: int):
        self.x, self.t = x, t


def in_c_order(value: Any) -> Any:
    """The value; new memory that NumPy has laid out in another order is copied."""
    owner = value
    while isinstance(getattr(owner, "base", None), np.ndarray):
        owner = owner.base
    if not isinstance(value, np.ndarray) or owner.flags.c_contiguous:
        return value
    return np.array(value, order="C")


class Grower:
    """Grows the body of a step function. `values` holds what each expression is on arrays of ones."""

    def __init__(self, draw: Any, exact: bool, values: dict[str, Any]):
        self.draw, self.exact, self.values = draw, exact, values
        self.made = 0

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def try_expression(self, text: str) -> Any:
        """The value of an expression on the arrays of ones; None if NumPy refuses it."""
        with np.errstate(all="ignore"):
            try:
                return eval(text, {"xp": np, "np": np, "C": in_c_order}, self.values)
            except (ValueError, TypeError, IndexError, OverflowError, AttributeError):
                return None

    def try_statement(self, text: str) -> bool:
        """Whether NumPy takes a statement; then it has happened to the values."""
        trial = copy.deepcopy(self.values)
        with np.errstate(all="ignore"):
            try:
                exec(text, {"xp": np, "np": np, "C": in_c_order}, trial)
            except (ValueError, TypeError, IndexError, OverflowError):
                return False
        self.values |= {k: v for k, v in trial.items() if k not in self.values}
        return True

    # -- expressions -----------------------------------------------------------------------------------------

    def arrays(self) -> list[str]:
        """Expressions for the arrays at hand."""
        found = [name for name, value in self.values.items() if isinstance(value, np.ndarray)]
        return [*found, "S['w']", "S['l'][0]", "S['l'][1]", "o.x"]

    def number(self) -> str:
        """An expression for a number."""
        return self.pick(
            [
                "2",
                "0.5",
                "-1",
                "3",
                "n",
                "r",
                "(n + 1)",
                "(r * 2)",
                "(n % 3)",
                "(r - n)",
                "S['k']",
                "o.t",
                "(-r)",
            ]
        )

    def expression(self, depth: int = 2) -> str:
        """An expression for an array."""
        if depth == 0:
            return self.pick(self.arrays())
        kinds = [
            "array",
            "array",
            "unary",
            "binary",
            "binary",
            "number",
            "number",
            "view",
            "reduce",
            "where",
            "cast",
        ]
        kinds += ["product", "gather", "scan", "picked"]
        for _ in range(4):
            text = getattr(self, "_" + self.pick(kinds))(depth)
            value = self.try_expression(text)
            known = isinstance(value, np.ndarray | np.generic) and value.dtype in DTYPES
            if known and 0 < np.size(value) <= 64:
                return f"({text})"
        return self.pick(self.arrays())

    def _array(self, depth: int) -> str:
        return self.pick(self.arrays())

    def _is_float(self, text: str) -> bool:
        value = self.try_expression(text)
        return value is not None and value.dtype.kind == "f"

    def _unary(self, depth: int) -> str:
        x = self.expression(depth - 1)
        exact = ["(-{})", "xp.abs({})", "xp.square({})", "(~{})", "xp.sign({})", "xp.logical_not({})"]
        smooth = [
            "(-{})",
            "xp.tanh({})",
            "xp.exp({} * -0.25)",
            "xp.sin({})",
            "xp.square({} * 0.25)",
            "xp.sqrt({} * {} + 1)",
        ]
        return self.pick(exact if self.exact or not self._is_float(x) else smooth).replace("{}", x)

    def _binary(self, depth: int) -> str:
        x, y = self.expression(depth - 1), self.expression(depth - 1)
        forms = ["({} + {})", "({} - {})", "({} * {})"]
        if self.exact:
            forms += [
                "({} / {})",
                "xp.maximum({}, {})",
                "xp.minimum({}, {})",
                "({} < {})",
                "({} == {})",
                "({} & {})",
            ]
            forms += ["({} | {})", "({} ^ {})"]
        elif self._is_float(x) or self._is_float(y):
            forms = ["({} + {})", "({} - {}) * 0.5", "({} * {}) * 0.25", "({} / (xp.square({}) + 1))"]
        return self.pick(forms).format(x, y)

    def _number(self, depth: int) -> str:
        x, k = self.expression(depth - 1), self.number()
        forms = ["({} + {})", "({} - {})", "({} * {})"]
        if self.exact:
            forms += [
                "({} / 4)",
                "({1} - {0})",
                "({} > {})",
                "xp.maximum({}, {})",
                "({} // 2)",
                "({} % 3)",
                "({} ** 2)",
            ]
        if not self.exact:
            forms = ["({} + {})", "({} * {}) * 0.25", "({1} - {0})", "({0} / (2 + {1} * {1}))"]
        form = self.pick(forms)
        if form in ("({} // 2)", "({} % 3)", "({} / 4)", "({} ** 2)"):
            return form.format(x) if not self._is_float(x) or form == "({} / 4)" else f"({x} * 2)"
        return form.format(x, k)

    def _view(self, depth: int) -> str:
        return self.expression(depth - 1) + self.pick(VIEWS)

    def _reduce(self, depth: int) -> str:
        x = self.expression(depth - 1)
        axis = self.pick(
            ["", "axis=0", "axis=-1", "axis=0, keepdims=True"] if np.ndim(self.try_expression(x)) else [""]
        )
        if self._is_float(x):
            return f"{x}.max({axis})" if self.exact else f"{x}.{self.pick(['sum', 'mean'])}({axis}) * 0.25"
        return f"{x}.{self.pick(['sum', 'max', 'min', 'any', 'all'])}({axis})"

    def _scan(self, depth: int) -> str:
        x = self.expression(depth - 1)
        ndim = np.ndim(self.try_expression(x))
        if not ndim or (self.exact and self._is_float(x)):
            return x
        return f"xp.cumulative_sum({x}, axis={self.pick(range(ndim))})" + (
            " * 0.25" if self._is_float(x) else ""
        )

    def _where(self, depth: int) -> str:
        x, y = self.expression(depth - 1), self.expression(depth - 1)
        tested = x
        if not self.exact and self._is_float(x):
            tested = next((a for a in self.arrays() if not self._is_float(a)), "xp.arange(4)")
        return f"xp.where({tested} > {self.pick(['0', 'n'])}, {x}, {y})"

    def _cast(self, depth: int) -> str:
        x = self.expression(depth - 1)
        if self._is_float(x):
            return f"{x}.astype({self.pick(FLOATS)!r})"
        return f"{x}.astype({self.pick((*FLOATS, *INTEGERS))!r})"

    def _product(self, depth: int) -> str:
        x, y = self.expression(depth - 1), self.expression(depth - 1)
        scale = "" if self.exact else " * 0.125"
        if self.exact and (self._is_float(x) or self._is_float(y)):
            return f"({x} * {y})"
        return self.pick([f"({x} @ {y})", f"({x} @ {y}.T)", f"({x}.T @ {y})"]) + scale

    def _gather(self, depth: int) -> str:
        x = self.expression(depth - 1)
        return x + self.pick(["[[0, 2, 2]]", "[:, [1, 0, 3]]", "[[-1, 0]]", "[[0, 1], [1, 2]]"])

    def _picked(self, depth: int) -> str:
        """A sum of what a mask picks; the mask tells no floats apart that differ by rounding."""
        x, y = self.expression(depth - 1), self.pick(self.arrays())
        mask = f"[{self.mask(x)}]"
        if np.shape(self.try_expression(x)) == np.shape(self.try_expression(y)):
            x = f"({x}{mask} {self.pick(['+', '-', '*'])} {y}{mask})"
        else:
            x = f"({x}{mask})"
        if self.exact and self._is_float(x):
            return f"xp.sum(({x} > {self.pick(['0', 'n'])}))"
        return (
            f"xp.{self.pick(['sum', 'any', 'count_nonzero'])}({x})" if self.exact else f"xp.sum({x}) * 0.125"
        )

    def mask(self, x: str) -> str:
        """A mask of the shape of `x`."""
        if self.exact or not self._is_float(x):
            return f"{x} > {self.pick(['0', 'n', '2'])}"
        return f"xp.arange(xp.size({x})).reshape(xp.shape({x})) % 3 > {self.pick(['0', 'n', '1'])}"

    # -- statements ------------------------------------------------------------------------------------------

    def target(self) -> str:
        """An expression for an array that a statement writes."""
        x = self.pick(self.arrays())
        return x + self.pick(["", "", "", "", "", "[1:]", "[0]", "[..., ::-1]", ".T", "[:, 1:3]", "[:2]"])

    def block(self, count: int, *, plain: bool) -> list[str]:
        """Some statements; with `plain`, only such as make no variables and have no blocks."""
        lines: list[str] = []
        kinds = ["in_place", "in_place", "set_item", "set_item", "rebind", "bump", "shift"]
        if not plain:
            kinds += ["assign", "assign", "assign", "view", "branch", "loop", "swap", "mask", "count"]
        for _ in range(count):
            lines += getattr(self, "_" + self.pick(kinds) + "_statement")()
        return lines

    def _accept(self, text: str) -> list[str]:
        return [text] if self.try_statement(text) else []

    def _assign_statement(self) -> list[str]:
        name, text = f"v{self.made}", self.expression()
        self.made += 1
        return self._accept(
            f"{name} = {text} + 0" if self.try_expression(text).ndim == 0 else f"{name} = C({text})"
        )

    def _view_statement(self) -> list[str]:
        name, text = f"v{self.made}", self._view(1)
        value = self.try_expression(text)
        if not isinstance(value, np.ndarray) or value.size == 0 or value.ndim == 0:
            return []
        self.made += 1
        return self._accept(f"{name} = C({text})")

    def _in_place_statement(self) -> list[str]:
        target = self.target()
        value = self.pick([self.expression(1), self.number()])
        operators = ["+=", "-=", "*="] if self.exact else ["+=", "-="]
        if not self.exact:
            value = f"({value}) * 0.25"
        if target in self.values:  # a plain name: in place, not rebound, since it is an array
            return self._accept(f"{target} {self.pick(operators)} {value}")
        return self._accept(f"{target}[...] {self.pick(operators)} {value}")

    def _set_item_statement(self) -> list[str]:
        target, text = self.target(), self.pick([self.expression(1), self.number()])
        to, value = self.try_expression(target), self.try_expression(text)
        if to is None or value is None or not isinstance(to, np.ndarray):
            return []
        kind = np.asarray(value).dtype.kind
        if (
            (kind == "f" and to.dtype.kind != "f")
            or (kind in "iu" and to.dtype.kind in "bu")
            or to.dtype.kind == "b"
        ):
            return []
        return self._accept(f"{target}[...] = {text}")

    def _shift_statement(self) -> list[str]:
        """Elements of an array from others of it, at places that overlap."""
        x, places = self.target(), self.pick(SHIFTS)
        value = self.try_expression(x)
        if not isinstance(value, np.ndarray) or value.dtype.kind == "b":
            return []
        to, first, second = (self.pick(places) for _ in range(3))
        return self._accept(f"{x}[{to}] = {x}[{first}] {self.pick(['+', '-'])} {x}[{second}]")

    def _rebind_statement(self) -> list[str]:
        place = self.pick(["S['w']", "S['l'][0]", "o.x", "S['l'][1]"])
        old, text = self.try_expression(place), self.expression()
        value = self.try_expression(text)
        if old.ndim == 0:
            return []  # NumPy would hold a scalar there, which is no array any more
        if value is None or np.shape(value) != old.shape or np.asarray(value).dtype != old.dtype:
            return self._accept(f"{place} = C({place} {self.pick(['+', '-'])} {self.pick(['n', '1', '2'])})")
        return self._accept(f"{place} = C({text})")

    def _bump_statement(self) -> list[str]:
        return self._accept(self.pick(["S['k'] += 1", "o.t += 1", "o.t = o.t + n", "S['k'] = n * 2"]))

    def _branch_statement(self) -> list[str]:
        condition = self.pick(
            ["n % 2 == 0", "r > 1", "n > S['k']", "o.t > 2", "n", "isinstance(r, float)", "n < 3 < o.t"]
        )
        first, second = self.block(2, plain=True), self.block(1, plain=True)
        if not first:
            return []
        lines = [f"if {condition}:", *_indented(first)]
        return lines + (["else:", *_indented(second)] if second else [])

    def _loop_statement(self) -> list[str]:
        body = self.block(2, plain=True)
        head = self.pick(["for i in range(n % 3):", "for i in range(2):", "for i, a in enumerate(S['l']):"])
        return [head, *_indented(body)] if body else []

    def _swap_statement(self) -> list[str]:
        first, second = self.try_expression("S['l'][0]"), self.try_expression("S['l'][1]")
        if first.shape != second.shape or first.dtype != second.dtype:
            return []
        return ["S['l'][0], S['l'][1] = S['l'][1], S['l'][0]"]

    def _mask_statement(self) -> list[str]:
        target, other = self.pick(self.arrays()), self.pick(self.arrays())
        place, value = f"{target}[{self.mask(target)}]", self.pick(["0", "1", "n"])
        to, given = (np.asarray(self.try_expression(x)) for x in (target, other))
        if (to.shape, to.dtype) == (given.shape, given.dtype) and to.dtype.kind in "if" and self.pick([0, 1]):
            value = f"{other}{place[len(target) :]} {self.pick(['+', '-'])} {value}"
            return self._accept(f"{place} {self.pick(['=', '+=', '-='])} {value}")
        return self._accept(f"{place} = {value}")

    def _count_statement(self) -> list[str]:
        name = f"m{self.made}"
        self.made += 1
        return self._accept(
            f"{name} = {self.pick(['n * 2 + 1', 'r / 2 - n', 'len(S) + n', 'max(n, 2)', 'o.t + 1'])}"
        )

    def result(self) -> str:
        """What the step returns."""
        names = [k for k in self.values if k.startswith(("v", "m"))]
        parts = [self.pick([*names, "p", "q[1:]", "o.x", "n * r", "None", "p.T", "S['w']"]) for _ in range(3)]
        return self.pick(
            ["{0}", "({0}, {1})", "{{'a': {0}, 'b': [{1}, {2}]}}", "[{0}, ({1}, 'text')]"]
        ).format(*parts)


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


ARRAYS = ["A[0]", "A[1]", "A[2]", "A[3]", "A[1][::-1]", "A[0].T.T"]
PARTS = [*ARRAYS, "A[0][1:]", "A[3].reshape(-1)", "A[2][:, 1:3]", "A[1].T", "A[0][0]", "A[4]", "A[5]"]


@st.composite
def programs(draw: Any) -> Program:
    """A random program."""
    exact = draw(st.booleans())
    floats = draw(st.sampled_from(FLOATS if not exact else (*FLOATS, "int64")))
    others = [draw(st.sampled_from((*FLOATS, *INTEGERS) if exact else FLOATS)) for _ in range(2)]
    shapes = [SHAPE] * 4 + [draw(st.sampled_from(SHAPES)) for _ in range(2)]
    kinds = [floats] * 4 + others

    def pick(options: Any) -> Any:
        return draw(st.sampled_from(options))

    places = {name: pick(PARTS) for name in ("w", "l0", "l1", "x", "c0", "c1")}
    kind = pick(["Box", "Plain"])
    reference = ones(shapes, kinds)
    scope = {"A": reference}
    values: dict[str, Any] = {
        "p": np.ones(SHAPE, floats),
        "q": np.ones(SHAPE, floats),
        "x": np.ones(SHAPE, floats),
        "c0": eval(places["c0"], scope).copy(),
        "c1": eval(places["c1"], scope).copy(),
        "S": {
            "w": eval(places["w"], scope).copy(),
            "l": [eval(places[k], scope).copy() for k in ("l0", "l1")],
            "k": 0,
        },
        "o": types.SimpleNamespace(x=eval(places["x"], scope).copy(), t=1),
        "n": 1,
        "r": 0.5,
        "i": 0,
    }
    grower = Grower(draw, exact, values)
    body = grower.block(draw(st.integers(3, 12)), plain=False)
    body.append(f"return {grower.result()}")
    kinds_of_calls = [(pick(ARRAYS[:5]), pick(ARRAYS[:5]), draw(st.integers(0, 4))) for _ in range(2)]
    calls = []
    for k in range(5):
        p, q, number = pick(kinds_of_calls)
        calls.append(Call(p, q, number, pick([0.5, 1.5, 2.0]), 100 + k))
    return Program(_text(body, places, kind, shapes, kinds), calls, exact)


def ones(shapes: Any, kinds: Any) -> list[np.ndarray]:
    """Arrays of ones."""
    return [np.ones(s, k) for s, k in zip(shapes, kinds, strict=True)]


def _text(body: list[str], places: dict[str, str], kind: str, shapes: Any, kinds: Any) -> str:
    made = ", ".join(f"array({k}, {s}, {d!r})" for k, (s, d) in enumerate(zip(shapes, kinds, strict=True)))
    lines = [
        "def make(xp, array):",
        f"    A = [{made}]",
        f"    c0, c1 = {places['c0']}, {places['c1']}",
        f"    S = {{'w': {places['w']}, 'l': [{places['l0']}, {places['l1']}], 'k': 0}}",
        f"    o = {kind}({places['x']}, 1)",
        "    def step(p, q, S, o, n, r, x):",
        "        nonlocal c0, c1",
        *("        " + line for line in body),
        f"    return step, lambda seed: array(seed, {SHAPE}, {kinds[0]!r}), A, S, o, lambda: (c0, c1)",
    ]
    return "\n".join(lines)
