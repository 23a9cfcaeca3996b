"""The serialised text form of graphs, which is lossless and parsed strictly.

The printer's form is for display, this one is for files. Attributes are plain data: numbers, strings, tuples,
dtypes, devices, types, views, nested graphs. `parse_graph` applies every typing rule and compares the types.

Integers may be polynomials of named extents (`ir.extents`). Such a text represents a graph for all extents.
It is parsed for specific extents, or, for display, with the polynomials.

    graph(%0: float32[batch,4]) {
      %1: float32[4,batch] = view(%0) [view=0+[4,batch]:[1,4]] at "model.py:12"
      return %1
    }

>>> text = "graph(%0: float32[n,4]) {\\n  %1: float32[4,n] = view(%0) [view=0+[4,n]:[1,4]]\\n  return %1\\n}"
>>> import tracejit.ops  # registers the operators
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
    """Write a graph, with the user's lines; raise ArgumentError if an attribute is not plain data."""
    return graph_text(graph, write_type, lambda node, name: write_node(node, name, indent + "  "), indent)


def write_node(node: Node, name: ValueNames, indent: str = "") -> str:
    """Write a node. indent: of the lines of nested graphs."""
    inputs = ", ".join(map(name, node.inputs))
    outputs = ", ".join(f"{name(v)}: {write_type(v.type)}" for v in node.outputs)
    text = f"{outputs}{' = ' if outputs else ''}{node.op.name}({inputs})"
    if node.attrs:
        text += f" [{', '.join(f'{key}={write(value, indent)}' for key, value in node.attrs.items())}]"
    return text if node.location is None else f"{text} at {json.dumps(node.location)}"


def write_type(type: ArrayType) -> str:
    """Write a type; that of a number on the host has no brackets."""
    if type.on_host:
        return str(type.dtype)
    where = "" if type.device == CPU else f"@{type.device}"
    return f"{type.dtype}[{','.join(map(str, type.shape))}]{where}"


def write(value: Any, indent: str = "") -> str:
    """Write plain data; raise ArgumentError for other objects.

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
        raise ArgumentError(f"an attribute of type {type(value).__name__} is not plain data: {value!r}")
    return writer(value)


def _write_tuple(value: tuple[Any, ...]) -> str:
    return f"({', '.join(map(write, value))}{',' * (len(value) == 1)})"


def _write_view(view: View) -> str:
    return f"{view}{':r' * (not view.writable)}"


class Quotient(NamedTuple):
    """A float that depends on extents, in a graph with named extents."""

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

_TOKEN = re.compile(
    r'\s*(?P<token>"(?:[^"\\\n]|\\.)*"|%\d+|-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf\b|nan\b)|-?\d+'
    r"|[A-Za-z_]\w*|<-|[][(){}:,=*+@-])",
    re.ASCII,
)
"""A token of the text form, with the preceding white space."""
_INTEGER = re.compile(r"-?\d+", re.ASCII)
_FLOAT = re.compile(r"-?(?:\d.*[.e].*|inf|nan)")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
MAX_DIGITS = 40  # maximum digits of an integer; those of graphs have fewer
_DTYPES = {str(dtype): dtype for dtype in DTYPES}
_DEVICE = re.compile("|".join((*KINDS, HOST_NAME)))


Token = tuple[str, int]
"""A token and its end position. (Not a named tuple: tokens are created while calls are recorded, and the code
of a named tuple would be traced, as it does not belong to this package.)
"""


def tokens_of(text: str) -> list[Token]:
    """Split a text into tokens; raise ArgumentError for invalid characters."""
    tokens: list[Token] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ArgumentError(f"line {_line(text, position)} is no text of a graph")
        position = match.end()
        tokens.append((match["token"], position))
    return tokens


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


class Parser:
    """A recursive-descent parser of the text form.

    extents: values of the named extents; None: keep polynomials, and apply no typing rules.
    moved:   replacements of devices that the text names.
    """

    def __init__(
        self, text: str, extents: Extents | None = None, moved: Mapping[Device, Device] | None = None
    ) -> None:
        self.text, self.extents, self.moved = text, extents, moved or {}
        self.tokens = tokens_of(text)
        self.position = 0

    # -- tokens ----------------------------------------------------------------------------------------------

    def fail(self, expected: str) -> NoReturn:
        """Raise ArgumentError for the next token. expected: a description of valid tokens."""
        if self.position < len(self.tokens):
            token, end = self.tokens[self.position]
            line = _line(self.text, end)
            raise ArgumentError(f"line {line}: expected {expected}, found {token[:80]}")
        raise ArgumentError(f"the text ends where {expected} is expected")

    def peek(self, ahead: int = 0) -> str:
        """The token `ahead` of the next one; empty at the end."""
        index = self.position + ahead
        return self.tokens[index][0] if index < len(self.tokens) else ""

    def next(self, pattern: re.Pattern[str], expected: str) -> str:
        """Consume and return the next token, which must match a pattern."""
        token = self.peek()
        if not pattern.fullmatch(token):
            self.fail(expected)
        self.position += 1
        return token

    def take(self, token: str) -> None:
        """Consume the next token, which must be this one."""
        if not self.takes(token):
            self.fail(repr(token))

    def takes(self, token: str) -> bool:
        """Consume the next token if it is this one; return whether it is."""
        if self.peek() != token:
            return False
        self.position += 1
        return True

    def end(self) -> None:
        """Raise ArgumentError unless all tokens are consumed."""
        if self.peek():
            self.fail("the end")

    def listed(self, item: Callable[[], Any], end: str) -> tuple[Any, ...]:
        """Parse items separated by commas, with an optional trailing comma, up to the token `end`."""
        items = []
        while not self.takes(end):
            items.append(item())
            if not self.takes(","):
                self.take(end)
                break
        return tuple(items)

    # -- integers --------------------------------------------------------------------------------------------

    def _number(self) -> int:
        if len(self.peek()) > MAX_DIGITS:
            self.fail(f"an integer of at most {MAX_DIGITS} digits")
        return int(self.next(_INTEGER, "an integer"))

    def _term(self) -> Polynomial:
        """Parse a product of an integer and names."""
        sign = -1 if self.takes("-") else 1
        product = Polynomial({(): sign * (self._number() if _INTEGER.fullmatch(self.peek()) else 1)})
        if not _INTEGER.fullmatch(self.tokens[self.position - 1][0]):
            product *= named(self.next(_NAME, "an integer"))
        while self.takes("*"):
            product *= named(self.next(_NAME, "the name of an extent"))
        return product

    def polynomial(self) -> Polynomial:
        """Parse a sum of terms, optionally divided by an integer."""
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
        """Parse an integer or polynomial; the result is an integer if it is constant or extents are known."""
        if _INTEGER.fullmatch(self.peek()) and self.peek(1) not in ("*", "+", "-"):
            return self._number()  # the common case
        total = self.polynomial()
        return total.at(self.extents) if self.extents is not None else simplest(total)

    # -- values ----------------------------------------------------------------------------------------------

    def value(self) -> Any:
        """Parse plain data."""
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
        """Parse a float that depends on extents, or a complex number."""
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
        """Parse the type of a value."""
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
        """Parse a graph."""
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
        """Parse a node, whose types must agree with its typing rule."""
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
        """Append a node; unexpected exceptions of its typing rule become ArgumentError."""
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
    """Parse a graph.

    extents: values of the named extents; None: keep polynomials, and apply no typing rules.
    Raises ArgumentError for an invalid text, and the errors of typing rules.
    """
    parser = Parser(text, extents)
    graph = parser.graph()
    parser.end()
    return graph
