"""Source text for all targets: steps as lines of Python, imports, identities of reductions.

Names in a source: ``x0`` a pointer, ``n0`` an extent, ``i0`` an index, ``s0_1`` the stride of layout 0 along
dimension 1, ``p0`` the place of layout 0 so far, ``v0`` a value, ``c0`` a number, ``t0`` an accumulator,
``row0`` a scratch row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracejit.codegen.spec import Access, Instruction, KernelSpec, Section
from tracejit.ir.op import COMPENSATED, EXPENSIVE, OPS, SLOW, TYPED, Trait

INDENT = "    "


def load_source(source: str, name: str = "<kernel>") -> Callable[..., Any]:
    """The function ``kernel`` that `source` defines, to be compiled by `build_object`."""
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)
    return namespace["kernel"]


def identity(function: str, dtype: str) -> str:
    """The identity of a reduction or scan, as source."""
    find = OPS[function].identity
    assert find is not None
    value = find(np.dtype(dtype))
    return str(bool(value)) if dtype == "bool" else f"{dtype}({value})"


HALVES = ("float16", "bfloat16")
HALF_TYPES = "tracejit.kernels.compiler.half"
"""The module with types of half numbers, which Numba lacks on a CPU."""

MOST_STEPS = 16
"""The most steps in the loop of a COLUMNS kernel that reads several lines side by side."""


def memory_type(dtype: str) -> str:
    """The Numba type of a dtype in memory: a bool is a byte."""
    return "uint8" if dtype == "bool" else dtype


class SourceText:
    """Lines of Python under construction, and the names they import."""

    def __init__(self, spec: KernelSpec):
        self.spec = spec
        self.lines: list[str] = []
        self.depth = 0
        self.imports: dict[str, set[str]] = {}
        self.bases = {}

    def use(self, name: str, module: str) -> str:
        """`name`, imported from `module`."""
        self.imports.setdefault(module, set()).add(name)
        return name

    def type(self, dtype: str) -> str:
        """The name of a Numba type."""
        return self.use(dtype, HALF_TYPES if dtype in HALVES else "numba")

    def number_one(self, dtype: str) -> str:
        """The number 1 of a dtype."""
        if dtype in HALVES:
            return f"{self.function('astype', dtype)}({self.number_one('float32')})"
        return "True" if dtype == "bool" else f"{self.type(dtype)}(1)"

    def function(self, kernel: str, dtype: str) -> str:
        """The scalar function of an operator's kernel with a result of `dtype`."""
        suffix = f"_{dtype}" if has_trait(kernel, TYPED) else ""
        return self.use(kernel + suffix, "tracejit.kernels.scalar")

    def combining(self, function: str, dtype: str) -> str:
        """The scalar function that combines two elements of a reduction or scan."""
        kernel = OPS[function].kernel
        assert kernel is not None
        return self.function(kernel, dtype)

    def memory(self, name: str) -> str:
        """A function of `tracejit.kernels.compiler.memory`."""
        return self.use(name, "tracejit.kernels.compiler.memory")

    def accumulate(self, name: str) -> str:
        """A function of `tracejit.kernels.scalar.accumulate`."""
        return self.use(name, "tracejit.kernels.scalar.accumulate")

    def line(self, text: str) -> None:
        self.lines.append(INDENT * self.depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Write a header, and what follows inside one level deeper."""
        self.line(header)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def finish(self, opening: list[str]) -> str:
        """The whole file: a comment on what it computes, the imports, `opening` and the lines."""
        imports = [f"from {m} import {', '.join(sorted(names))}" for m, names in sorted(self.imports.items())]
        return "\n".join([summary(self.spec), "", *imports, "", "", *opening, *self.lines, ""])

    # ---- steps

    bases: dict[int, str]
    """The variable with each layout's place outside the lane; "" is 0."""

    in_lane = False
    """Whether the lines being written stand in the innermost loop."""

    def place(self, layout: int) -> str:
        """The index of the element of `layout` at the current place."""
        lane, base = self.spec.layouts[layout].lane, self.bases[layout]
        index = f"i{self.spec.lane}"
        if not self.in_lane or lane == "zero":
            return base or "0"
        moved = index if lane == "one" else f"{index} * s{layout}_{self.spec.lane}"
        return f"{base} + {moved}" if base else moved

    def element(self, access: Access, moved: str = "") -> str:
        """An element of a buffer."""
        return f"x{access.pointer}[{self.place(access.layout)}{moved}]"

    def read(self, step: Instruction, element: str) -> None:
        self.line(f"v{step.result} = {element}{' != 0' if step.dtype == 'bool' else ''}")

    def write(self, element: str, value: str, dtype: str) -> None:
        """Store `value`; a bool becomes a byte."""
        self.line(f"{element} = {self.type('uint8') + '(' + value + ')' if dtype == 'bool' else value}")

    def step(self, step: Instruction) -> None:
        """The lines of one step (not of folds and scans, whose accumulators depend on the target)."""
        args = [f"v{a}" for a in step.args]
        match step.kind:
            case "number":
                loaded = f"c{step.position}"
                self.line(f"v{step.result} = {loaded}{' != 0' if step.dtype == 'bool' else ''}")
            case "load":
                assert step.access is not None
                self.read(step, self.element(step.access))
            case "gather":
                assert step.access is not None
                self.read(step, self.element(step.access, f" + {args[0]} * jump{step.position}"))
            case "store":
                assert step.access is not None
                partial = self.spec.pieces and self.spec.layouts[step.access.layout].level == "kept"
                self.write(self.element(step.access, " + piece" if partial else ""), args[0], step.dtype)
            case "index":
                self.line(f"v{step.result} = offset{step.position} + {self.place(step.layout)}")
            case "apply":
                self.line(f"v{step.result} = {self.function(step.function, step.dtype)}({', '.join(args)})")
            case "check":
                self.check(step, args)
            case "match":
                found = f"{self.accumulate('is_extreme')}({args[0]}, {args[1]})"
                where = self.function("where", "int64")
                self.line(f"v{step.result} = {where}({found}, {args[2]}, bound{step.position})")
            case _:
                raise AssertionError(f"no line for a {step.kind}")

    def check(self, step: Instruction, args: list[str]) -> None:
        bound = f"bound{step.position}"
        failed = f"{self.accumulate('out_of_range')}({args[0]}, {bound})"
        self.line(f"status = {self.accumulate('first_failure')}(status, {failed}, {args[1]})")
        self.line(f"v{step.result} = {self.accumulate('wrapped_index')}({args[0]}, {bound})")

    # ---- slots and indices

    def load_slots(self, skip: Sequence[str] = ()) -> None:
        """One line for each slot of the block, but for those that end like one of `skip`."""
        spec = self.spec
        across = {f"s{n}_{spec.lane}" for n, layout in enumerate(spec.layouts) if layout.lane == "step"}
        across = across if computes_much(spec) else set()
        for position, name in enumerate(spec.slot_names()):
            kind, number = name[0], name[1:]
            if name.endswith((*skip, "_imag")):  # the second half of a complex number, read with the first
                continue
            if name == f"x{spec.panel}":
                self.pointer(
                    name, f"{self.panel_place(position)} - lo * panel_row", spec.pointers[spec.panel]
                )
            elif kind == "x" and number.isdigit():
                dtype = self.type(memory_type(spec.pointers[int(number)]))
                self.line(f"{name} = {self.memory('pointer_slot')}(block, {position}, {dtype})")
            elif kind == "c" and number.isdigit():
                dtype = self.type(memory_type(spec.numbers[int(number)]))
                self.line(f"{name} = {self.memory('number_slot')}(block, {position}, {dtype})")
            elif name in across:
                self.line(f"{name} = {self.memory('stride_slot')}(block, {position})")
            else:
                self.line(f"{name} = {self.memory('slot')}(block, {position})")

    def panel_place(self, position: int) -> str:
        """The address of the panel of a product; its slot is the panel's offset in scratch memory."""
        return f"scratch + {self.memory('slot')}(block, {position})"

    def pointer(self, name: str, address: str, dtype: str) -> None:
        """A typed pointer to an address."""
        self.line(f"{name} = {self.memory('pointer')}({address}, {self.type(memory_type(dtype))})")

    def unravel(self, linear: str, dims: range) -> None:
        """Indices along `dims` from a linear one."""
        if len(dims) == 1:
            self.line(f"i{dims[0]} = {linear}")
            return
        for position, d in enumerate(reversed(dims)):
            if position == 0:
                self.line(f"rest = {linear}")
            if d == dims[0]:
                self.line(f"i{d} = rest")
            else:
                self.line(f"i{d} = rest % n{d}")
                self.line(f"rest = rest // n{d}")

    def piece(self, unit: str) -> str:
        """The unit without its piece; in a kernel of partial results, also the range of the piece."""
        if not self.spec.pieces:
            return unit
        d = self.spec.kept
        self.line(f"piece = {unit} % pieces")
        self.line("first = piece * length")
        self.line(f"last = min(first + length, n{d})")
        return f"{unit} // pieces"

    def bounds(self, d: int) -> tuple[str, str]:
        """The range of the reduced dimension `d`."""
        return ("first", "last") if self.spec.pieces and d == self.spec.kept else ("0", f"n{d}")

    def set_bases(self, sections: Sequence[Section], dims: Sequence[int], name: str = "p") -> None:
        """Variables for the places of all layouts of `sections`, moved along `dims`."""
        for layout in layouts_of(sections):
            before = self.bases.get(layout, "")
            moves = [f"i{d} * s{layout}_{d}" for d in dims if d in self.spec.moving(layout)]
            self.bases[layout] = f"{name}{layout}" if moves else before
            if moves:
                self.line(f"{name}{layout} = {' + '.join([before] * bool(before) + moves)}")

    # ---- accumulators

    def accumulators(self, section: Section) -> list[Instruction]:
        return [s for s in section.steps if s.kind in ("fold", "scan")]

    def use_type(self, dtype: str) -> str:
        """`dtype`, imported as a Numba type (and infinity with it)."""
        if dtype != "bool":
            self.type(dtype)
        return dtype

    def identity(self, step: Instruction) -> str:
        """The initial value of the accumulator of `step`."""
        found = identity(step.function, self.use_type(self.spec.accumulators[step.position]))
        if "inf" in found:
            self.use("inf", "math")
        return found


def summary(spec: KernelSpec) -> str:
    """A comment: orientation, and the operators in order."""
    steps = [step for section in spec.sections for step in section.steps]
    names = [step.function for step in steps if step.kind in ("apply", "fold", "scan")]
    names += [step.kind for step in steps if step.kind in ("gather", "check", "match")]
    text = f"# {spec.orientation}: {', '.join(dict.fromkeys(names)) or 'copy'}"
    return text if len(text) <= 110 else text[:107] + "..."


def computes_much(spec: KernelSpec) -> bool:
    """Whether a kernel gains from vectors although it has to gather their elements one by one."""
    steps = [step for section in spec.sections for step in section.steps]
    return any(step.kind == "fold" or is_dear(step.function) for step in steps)


def is_dear(function: str) -> bool:
    """Whether a scalar function takes longer than reading its operands."""
    return has_trait(function, SLOW) or has_trait(function, EXPENSIVE)


def is_compensated(function: str | None) -> bool:
    """Whether a reduction of floats is a compensated sum."""
    return function is not None and OPS[function].accumulation is COMPENSATED


def has_trait(function: str, trait: Trait) -> bool:
    """Whether the operator of a scalar function has a trait; helpers of kernels have no operator."""
    op = OPS.get(function)
    return op is not None and trait in op.traits


def moving_results(spec: KernelSpec, steps: Iterable[Instruction]) -> set[int]:
    """The values among `steps` that change along the lane."""
    moving: set[int] = set()
    for step in steps:
        layout = step.layout if step.access is None else step.access.layout
        if (
            any(a in moving for a in step.args)
            or (layout >= 0 and spec.layouts[layout].lane != "zero")
            or step.kind in ("recall", "scan")
            or (step.kind == "finish" and spec.orientation == "columns")
        ):
            moving.add(step.result)
    return moving


def layouts_of(sections: Iterable[Section]) -> list[int]:
    """The layouts that sections use, in order of first use."""
    steps = [step for section in sections for step in section.steps]
    used = [s.layout if s.access is None else s.access.layout for s in steps]
    return list(dict.fromkeys(n for n in used if n >= 0))


def lines_at_once(section: Section, most: int) -> int:
    """The number of lines of a COLUMNS kernel that are read side by side: as many as keep its loop short."""
    steps = [step for step in section.steps if step.kind != "prefetch"]
    if not {step.kind for step in steps} <= {"load", "index", "apply", "recall", "fold"}:
        return 1
    return max([n for n in (8, 4, 2) if n <= most and n * len(steps) <= MOST_STEPS], default=1)


def renumbered(steps: Sequence[Instruction], shift: int) -> list[Instruction]:
    """`steps` with other numbers for the values they make."""
    made = {step.result for step in steps} - {-1}
    return [
        step.replace(
            result=step.result + shift * (step.result in made),
            args=tuple(a + shift * (a in made) for a in step.args),
        )
        for step in steps
    ]
