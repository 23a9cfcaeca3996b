"""The text form of graphs that is kept: written without loss, and read back strictly.

The printer's form is for eyes; this one is for files. Attributes are plain data: numbers, strings, tuples,
dtypes, devices, types, views, nested graphs. `parse_graph` runs every typing rule again and compares.

Integers may be polynomials of named extents (`ir.extents`): such a text is a graph for all extents, and is
read for some of them, or with the names in the place of integers, to be looked at.

    graph(%0: float32[batch,4]) {
      %1: float32[4,batch] = view(%0) [view=0+[4,batch]:[1,4]] at "model.py:12"
      return %1
    }

>>> text = "graph(%0: float32[n,4]) {\\n  %1: float32[4,n] = view(%0) [view=0+[4,n]:[1,4]]\\n  return %1\\n}"
>>> import tracejit.ops  # which registers the operators
>>> print(parse_graph(text, {"n": 3}))
graph(%0: float32[3,4]) {
  %1: float32[4,3] = view(%0) [view=0+[4,3]:[1,4]]
  return %1
}
>>> write_graph(parse_graph(text)) == text
True
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tracejit.device_kinds import HOST_NAME, KINDS
from tracejit.errors import ArgumentError, TracejitError
from tracejit.ir.extents import Extents, Polynomial, named, simplest
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value, constant_of
from tracejit.ir.op import OPS
from tracejit.ir.printer import ValueNames, graph_text
from tracejit.ir.types import CPU, DTYPES, HOST, ArrayType, Device
from tracejit.ir.view import View

# ------------------------------------------------------------------------------------------------ writing


def write_graph(graph: Graph, indent: str = "") -> str:
    """`graph` as text, with the user's lines.

    Raises ArgumentError for an attribute that is no plain data.
    """
    return graph_text(graph, write_type, lambda node, name: _write_node(node, name, indent + "  "), indent)


def _write_node(node: Node, name: ValueNames, indent: str) -> str:
    inputs = ", ".join(map(name, node.inputs))
    outputs = ", ".join(f"{name(v)}: {write_type(v.type)}" for v in node.outputs)
    text = f"{outputs}{' = ' if outputs else ''}{node.op.name}({inputs})"
    if node.attrs:
        text += f" [{', '.join(f'{key}={write(value, indent)}' for key, value in node.attrs.items())}]"
    return text if node.location is None else f"{text} at {json.dumps(node.location)}"


def write_type(type: ArrayType) -> str:
    """A type as text; numbers on the host have no brackets."""
    if type.on_host:
        return str(type.dtype)
    where = "" if type.device == CPU else f"@{type.device}"
    return f"{type.dtype}[{','.join(map(str, type.shape))}]{where}"


def write(value: Any, indent: str = "") -> str:
    """Plain data as text.

    Raises ArgumentError for anything else.

    >>> write((1, -0.0, "a", None, np.dtype("int8"), View(2, (3,), (0,), False)))
    '(1, -0.0, "a", None, int8, 2+[3]:[0]:r)'
    """
    if value is None or isinstance(value, bool):
        return str(value)
    writer = _WRITERS.get(type(value))
    if isinstance(value, np.dtype):
        writer = str
    if isinstance(value, Graph):
        return write_graph(value, indent)
    if writer is None:
        raise ArgumentError(f"an attribute of type {type(value).__name__} is no plain data: {value!r}")
    return writer(value)


def _write_tuple(value: tuple[Any, ...]) -> str:
    return f"({', '.join(map(write, value))}{',' * (len(value) == 1)})"


def _write_view(view: View) -> str:
    return f"{view}{':r' * (not view.writable)}"


class Quotient(NamedTuple):
    """A float of which only the extents are missing."""

    above: Polynomial | float
    below: Polynomial

    def __str__(self) -> str:
        return f"quotient({self.above},{self.below})"


_WRITERS: dict[type, Callable[[Any], str]] = {
    int: str,
    float: repr,
    complex: lambda value: f"complex({value.real!r},{value.imag!r})",
    str: json.dumps,
    tuple: _write_tuple,
    Polynomial: str,
    Quotient: str,
    Device: str,
    ArrayType: write_type,
    View: _write_view,
}

# ------------------------------------------------------------------------------------------------ reading

TOKEN = re.compile(
    r'\s*(?P<token>"(?:[^"\\\n]|\\.)*"|%\d+|-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf\b|nan\b)|-?\d+'
    r"|[A-Za-z_]\w*|<-|[][(){}:,=*+@-])",
    re.ASCII,
)
"""One token of the text form, with the space before it."""
_INTEGER = re.compile(r"-?\d+", re.ASCII)
_FLOAT = re.compile(r"-?(?:\d.*[.e].*|inf|nan)")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
DIGITS = 40  # the most digits of an integer: a number of the graph has less
_DTYPES = {str(dtype): dtype for dtype in DTYPES}
_DEVICE = re.compile("|".join((*KINDS, HOST_NAME)))


Token = tuple[str, int]
"""A token and where it ends. (No named tuple: it is made while calls are recorded, and the code of these is
watched, as it is none of this package.)
"""


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text; raises ArgumentError where it has something else."""
    found: list[Token] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = TOKEN.match(text, position)
        if match is None:
            raise ArgumentError(f"line {_line(text, position)} is no text of a graph")
        position = match.end()
        found.append((match["token"], position))
    return found


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


class Parser:
    """Reads a text from its first token on.

    extents: integers for the names; None: names stay, as polynomials, and no typing rule is run.
    moved:   devices by those that the text names, where they are others.
    """

    def __init__(
        self, text: str, extents: Extents | None = None, moved: Mapping[Device, Device] | None = None
    ) -> None:
        self.text, self.extents, self.moved = text, extents, moved or {}
        self.tokens = tokens_of(text)
        self.position = 0

    # -- tokens ----------------------------------------------------------------------------------------------

    def fail(self, expected: str) -> NoReturn:
        """Raise ArgumentError: something else was expected at the next token."""
        if self.position < len(self.tokens):
            token, end = self.tokens[self.position]
            line = _line(self.text, end)
            raise ArgumentError(f"line {line}: expected {expected}, found {token[:80]}")
        raise ArgumentError(f"the text ends where {expected} is expected")

    def peek(self, ahead: int = 0) -> str:
        """The next token; empty at the end."""
        place = self.position + ahead
        return self.tokens[place][0] if place < len(self.tokens) else ""

    def next(self, pattern: re.Pattern[str], expected: str) -> str:
        """Take the next token, which matches."""
        token = self.peek()
        if not pattern.fullmatch(token):
            self.fail(expected)
        self.position += 1
        return token

    def take(self, token: str) -> None:
        """Take this token."""
        if not self.takes(token):
            self.fail(repr(token))

    def takes(self, token: str) -> bool:
        """Take this token, if it is the next one."""
        if self.peek() != token:
            return False
        self.position += 1
        return True

    def end(self) -> None:
        """Raise unless the text is over."""
        if self.peek():
            self.fail("the end")

    def listed(self, item: Callable[[], Any], end: str) -> tuple[Any, ...]:
        """Items with commas between them, one more after the last perhaps, up to the token `end`."""
        found = []
        while not self.takes(end):
            found.append(item())
            if not self.takes(","):
                self.take(end)
                break
        return tuple(found)

    # -- integers --------------------------------------------------------------------------------------------

    def _number(self) -> int:
        if len(self.peek()) > DIGITS:
            self.fail(f"an integer of at most {DIGITS} digits")
        return int(self.next(_INTEGER, "an integer"))

    def _term(self) -> Polynomial:
        """A product of an integer and names."""
        sign = -1 if self.takes("-") else 1
        product = Polynomial({(): sign * (self._number() if _INTEGER.fullmatch(self.peek()) else 1)})
        if not _INTEGER.fullmatch(self.tokens[self.position - 1][0]):
            product *= named(self.next(_NAME, "an integer"))
        while self.takes("*"):
            product *= named(self.next(_NAME, "the name of an extent"))
        return product

    def polynomial(self) -> Polynomial:
        """A sum of terms, maybe divided."""
        if self.peek() == "div" and self.peek(1) == "(":
            self.position += 2
            total = self.polynomial()
            self.take(",")
            divisor = self._number()
            self.take(")")
            if divisor < 1:
                self.fail("a positive divisor")
            return total * Fraction(1, divisor)
        total = self._term()
        while self.peek() in ("+", "-") and self.peek(1) != "[":
            if self.peek() == "+":
                self.position += 1
            total += self._term()
        if self.extents is not None and not total.names() <= self.extents.keys():
            unknown = sorted(total.names() - self.extents.keys())
            raise ArgumentError(f"{' and '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} no extents")
        return total

    def integer(self) -> Any:
        """An integer, of which only a text without extents has a polynomial."""
        if _INTEGER.fullmatch(self.peek()) and self.peek(1) not in ("*", "+", "-"):
            return self._number()  # most are
        total = self.polynomial()
        return total.at(self.extents) if self.extents is not None else simplest(total)

    # -- values ----------------------------------------------------------------------------------------------

    def value(self) -> Any:
        """Plain data."""
        token = self.peek()
        if token.startswith('"'):
            self.position += 1
            return json.loads(token)
        if self.takes("("):
            return self.listed(self.value, ")")
        if token in _CONSTANTS:
            self.position += 1
            return _CONSTANTS[token]
        if _FLOAT.fullmatch(token):
            self.position += 1
            return float(token)
        if token in _DTYPES:
            return self.type() if self.peek(1) == "[" else self._dtype()
        if self.peek(1) == "(" and token in ("quotient", "complex"):
            return self._function()
        if self.peek(1) == ":" and _DEVICE.fullmatch(token):
            return self._device()
        if token == "graph" and self.peek(1) == "(":
            return self.graph()
        number = self.integer()
        return self._view(number) if self.peek() == "+" else number

    def _function(self) -> Any:
        """A float computed of extents, or a complex number."""
        name = self.peek()
        self.position += 2
        if name == "complex":
            real, imaginary = self.listed(self.value, ")")
            return complex(real, imaginary)
        above = self.value() if _FLOAT.fullmatch(self.peek()) else self.polynomial()
        self.take(",")
        below = self.polynomial()
        self.take(")")
        if self.extents is None:
            return Quotient(above, below)
        divisor = float(below.value(self.extents))
        number = above if isinstance(above, float) else float(above.value(self.extents))
        return number / divisor if divisor else float("inf")

    def _dtype(self) -> np.dtype:
        token = self.peek()
        if token not in _DTYPES:
            self.fail("a dtype")
        self.position += 1
        return _DTYPES[token]

    def _device(self) -> Device:
        kind = self.next(_DEVICE, "a device")
        self.take(":")
        return self._moved(Device(kind, self._number()))

    def _moved(self, device: Device) -> Device:
        return self.moved.get(device, device)

    def type(self) -> ArrayType:
        """The type of a value."""
        dtype = self._dtype()
        if not self.takes("["):
            return ArrayType((), dtype, HOST)
        shape = self.listed(self.integer, "]")
        if any(isinstance(n, int) and n < 0 for n in shape):
            raise ArgumentError(f"the shape {shape} has a negative extent")
        return ArrayType(shape, dtype, self._device() if self.takes("@") else self._moved(CPU))

    def _view(self, offset: Any) -> View:
        self.take("+")
        self.take("[")
        shape = self.listed(self.integer, "]")
        self.take(":")
        self.take("[")
        strides = self.listed(self.integer, "]")
        if len(shape) != len(strides) or any(isinstance(n, int) and n < 0 for n in shape):
            self.fail("a view with an extent and a stride for each axis")
        if self.peek() == ":" and self.peek(1) == "r":
            self.position += 2
            return View(offset, shape, strides, False)
        return View(offset, shape, strides)

    # -- graphs ----------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        """A graph."""
        names: dict[str, Value] = {}
        builder = Builder()
        self.take("graph")
        self.take("(")
        for name, type in self.listed(self._typed_name, ")"):
            self._define(names, name, builder.input(type))
        self.take("{")
        effects = []
        while self.peek() != "return":
            if self.peek(1) == "<-":
                target = self._known(names)
                self.position += 1
                effects.append(Effect(target, self._known(names)))
            else:
                self._node(builder, names)
        self.take("return")
        outputs = []
        while self.peek() != "}":
            outputs.append(self._known(names))
            if self.peek() != "}":
                self.take(",")
        self.take("}")
        return builder.graph(outputs, effects)

    def _typed_name(self) -> tuple[str, ArrayType]:
        name = self.next(_VALUE, "a value")
        self.take(":")
        return name, self.type()

    def _define(self, names: dict[str, Value], name: str, value: Value) -> None:
        if name != f"%{len(names)}":
            self.fail(f"the definition of %{len(names)}")
        names[name] = value

    def _known(self, names: dict[str, Value]) -> Value:
        name = self.next(_VALUE, "a value")
        if name not in names:
            self.position -= 1
            self.fail("a value that was defined before")
        return names[name]

    def _node(self, builder: Builder, names: dict[str, Value]) -> None:
        """One node: its types must be what its typing rule says."""
        results = []
        while self.peek().startswith("%"):
            results.append(self._typed_name())
            if not self.takes(","):
                self.take("=")
                break
        op = OPS.get(self.next(_NAME, "an operator"))
        if op is None:
            self.position -= 1
            self.fail("an operator of this version of tracejit")
        self.take("(")
        inputs = self.listed(lambda: self._known(names), ")")
        attrs = dict(self.listed(self._attribute, "]")) if self.takes("[") else {}
        location = None
        if self.takes("at"):
            location = self.value()
            if not isinstance(location, str):
                self.fail("the user's line")
        if op.name == "constant" and isinstance(attrs.get("value"), float) and "dtype" in attrs:
            attrs = constant_of(**attrs)  # a quotient of extents, in the dtype
        types = tuple(type for _, type in results)
        if self.extents is None:
            values = tuple(map(Value, types))
            builder.nodes.append(Node(op, inputs, values, attrs, location))
        else:
            values = self._append(builder, op, inputs, location, attrs)
            if tuple(v.type for v in values) != types:
                shown = [write_type(v.type) for v in values]
                self.fail(f"results of the types {shown} before {op.name}")
        for (name, _), value in zip(results, values, strict=True):
            self._define(names, name, value)

    def _append(self, builder: Builder, op: Any, inputs: Any, location: Any, attrs: Any) -> tuple[Value, ...]:
        """Append a node; other errors of its typing rule are raised as errors of ours."""
        try:
            values = builder.append(op, inputs, location, attrs)
        except TracejitError:
            raise
        except Exception as error:
            self.fail(f"attributes of {op.name} before this ({type(error).__name__}: {error})")
        return values if isinstance(values, tuple) else (values,)

    def _attribute(self) -> tuple[str, Any]:
        name = self.next(_NAME, "an attribute")
        self.take("=")
        return name, self.value()


_VALUE = re.compile(r"%\d+")
_CONSTANTS = {"None": None, "True": True, "False": False}


def parse_graph(text: str, extents: Extents | None = None) -> Graph:
    """The graph that a text says, with these extents for its names; None: with polynomials of them.

    Raises ArgumentError for text that `write_graph` does not write, and what the typing rules raise.
    """
    parser = Parser(text, extents)
    graph = parser.graph()
    parser.end()
    return graph
