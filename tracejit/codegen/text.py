"""Source text common to all targets: steps as lines of Python, imports, and identities of reductions.

Names in generated source: ``x0`` is a pointer, ``n0`` an extent, ``i0`` an index, ``s0_1`` the stride of
layout 0 along dimension 1, ``p0`` the base offset of layout 0, ``v0`` a value, ``c0`` a number, ``t0`` an
accumulator, ``row0`` a scratch row.
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
    """Return the function ``kernel`` that `source` defines, for compilation by `build_object`."""
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)
    return namespace["kernel"]


def identity(function: str, dtype: str) -> str:
    """Return the identity of a reduction or scan, as source text."""
    identity_of = OPS[function].identity
    assert identity_of is not None
    value = identity_of(np.dtype(dtype))
    return str(bool(value)) if dtype == "bool" else f"{dtype}({value})"


HALVES = ("float16", "bfloat16")
HALF_TYPES = "tracejit.kernels.compiler.half"
"""The module that defines half-precision types, which Numba lacks on CPUs."""

MAX_STEPS = 16
"""The maximal number of steps in the loop of a COLUMNS kernel that reads several lines side by side."""


def memory_type(dtype: str) -> str:
    """Return the Numba type of a dtype in memory. A bool is stored as a byte."""
    return "uint8" if dtype == "bool" else dtype


class KernelText:
    """The lines of a kernel's Python source under construction, and the names they import."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self.imports: dict[str, set[str]] = {}

    def use(self, name: str, module: str) -> str:
        """Return `name`, and import it from `module`."""
        self.imports.setdefault(module, set()).add(name)
        return name

    def type(self, dtype: str) -> str:
        """Return the name of a Numba type, and import it."""
        return self.use(dtype, HALF_TYPES if dtype in HALVES else "numba")

    def function(self, kernel: str, dtype: str) -> str:
        """Return the scalar function of an operator's kernel whose result has the given dtype, and import
        it.
        """
        suffix = f"_{dtype}" if has_trait(kernel, TYPED) else ""
        return self.use(kernel + suffix, "tracejit.kernels.scalar")

    def memory(self, name: str) -> str:
        """Return a function of `tracejit.kernels.compiler.memory`, and import it."""
        return self.use(name, "tracejit.kernels.compiler.memory")

    def accumulate(self, name: str) -> str:
        """Return a function of `tracejit.kernels.scalar.accumulate`, and import it."""
        return self.use(name, "tracejit.kernels.scalar.accumulate")

    def line(self, text: str) -> None:
        self.lines.append(INDENT * self.depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Emit a header, and indent the lines that are emitted inside the `with` statement."""
        self.line(header)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def module(self, summary: str, opening: list[str]) -> str:
        """Return the complete file: a comment that summarises the kernel, the imports, `opening` and the
        lines.
        """
        imports = [f"from {m} import {', '.join(sorted(names))}" for m, names in sorted(self.imports.items())]
        return "\n".join([summary, "", *imports, "", "", *opening, *self.lines, ""])


class SourceText(KernelText):
    """The source text of the kernel of a `KernelSpec`."""

    def __init__(self, spec: KernelSpec):
        super().__init__()
        self.spec = spec
        self.bases = {}

    def number_one(self, dtype: str) -> str:
        """Return the number 1 of a dtype, as source text."""
        if dtype in HALVES:
            return f"{self.function('astype', dtype)}({self.number_one('float32')})"
        return "True" if dtype == "bool" else f"{self.type(dtype)}(1)"

    def combining(self, function: str, dtype: str) -> str:
        """Return the scalar function that combines two elements of a reduction or scan, and import it."""
        kernel = OPS[function].kernel
        assert kernel is not None
        return self.function(kernel, dtype)

    def finish(self, opening: list[str]) -> str:
        """Return the complete file."""
        return self.module(summary(self.spec), opening)

    # ---- steps

    bases: dict[int, str]
    """The variable that contains each layout's base offset, without the innermost index; "" means 0."""

    in_innermost = False
    """Whether lines are being emitted into the innermost loop."""

    def offset_of(self, layout: int) -> str:
        """Return the offset of the element of `layout` at the current indices."""
        stride, base = self.spec.layouts[layout].stride, self.bases[layout]
        index = f"i{self.spec.innermost}"
        if not self.in_innermost or stride == "zero":
            return base or "0"
        moved = index if stride == "one" else f"{index} * s{layout}_{self.spec.innermost}"
        return f"{base} + {moved}" if base else moved

    def element(self, access: Access, moved: str = "") -> str:
        """Return an element of a buffer. `moved`: source text that is added to its offset."""
        return f"x{access.pointer}[{self.offset_of(access.layout)}{moved}]"

    def read(self, step: Instruction, element: str) -> None:
        self.line(f"v{step.result} = {element}{' != 0' if step.dtype == 'bool' else ''}")

    def write(self, element: str, value: str, dtype: str) -> None:
        """Emit a store of `value`. A bool is converted to a byte."""
        self.line(f"{element} = {self.type('uint8') + '(' + value + ')' if dtype == 'bool' else value}")

    def step(self, step: Instruction) -> None:
        """Emit the lines of one step, except folds and scans, whose accumulators depend on the target."""
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
                self.line(f"v{step.result} = offset{step.position} + {self.offset_of(step.layout)}")
            case "apply":
                self.line(f"v{step.result} = {self.function(step.function, step.dtype)}({', '.join(args)})")
            case "check":
                self.check(step, args)
            case "match":
                matches = f"{self.accumulate('is_extreme')}({args[0]}, {args[1]})"
                where = self.function("where", "int64")
                self.line(f"v{step.result} = {where}({matches}, {args[2]}, bound{step.position})")
            case _:
                raise AssertionError(f"no line for a {step.kind}")

    def check(self, step: Instruction, args: list[str]) -> None:
        bound = f"bound{step.position}"
        failed = f"{self.accumulate('out_of_range')}({args[0]}, {bound})"
        self.line(f"status = {self.accumulate('first_failure')}(status, {failed}, {args[1]})")
        self.line(f"v{step.result} = {self.accumulate('wrapped_index')}({args[0]}, {bound})")

    # ---- slots and indices

    def load_slots(self, skip: Sequence[str] = ()) -> None:
        """Emit one line for each slot of the block, except those named in `skip`."""
        spec = self.spec
        across = {
            f"s{n}_{spec.innermost}" for n, layout in enumerate(spec.layouts) if layout.stride == "step"
        }
        across = across if computes_much(spec) else set()
        pointers = {f"x{n}": dtype for n, dtype in enumerate(spec.pointers)}
        numbers = {f"c{n}": dtype for n, dtype in enumerate(spec.numbers)}
        imaginary = [f"{name}_imag" for name in numbers]  # the second half of a complex number
        for position, name in enumerate(spec.slot_names()):
            if name in skip or name in imaginary:
                continue
            if name == f"x{spec.panel}":
                self.pointer(
                    name, f"{self.panel_address(position)} - lo * panel_row", spec.pointers[spec.panel]
                )
            elif name in pointers:
                dtype = self.type(memory_type(pointers[name]))
                self.line(f"{name} = {self.memory('pointer_slot')}(block, {position}, {dtype})")
            elif name in numbers:
                dtype = self.type(memory_type(numbers[name]))
                self.line(f"{name} = {self.memory('number_slot')}(block, {position}, {dtype})")
            elif name in across:
                self.line(f"{name} = {self.memory('stride_slot')}(block, {position})")
            else:
                self.line(f"{name} = {self.memory('slot')}(block, {position})")

    def panel_address(self, position: int) -> str:
        """Return the address of the panel of a product. The slot contains the panel's offset in scratch
        memory.
        """
        return f"scratch + {self.memory('slot')}(block, {position})"

    def pointer(self, name: str, address: str, dtype: str) -> None:
        """Emit a typed pointer to an address."""
        self.line(f"{name} = {self.memory('pointer')}({address}, {self.type(memory_type(dtype))})")

    def unravel(self, linear: str, dims: range) -> None:
        """Emit the indices along `dims` of a linear index."""
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

    def outer_unit(self, unit: str) -> str:
        """Return the unit without its piece. In a kernel of partial results, also emit the piece and its
        range.
        """
        if not self.spec.pieces:
            return unit
        d = self.spec.kept
        self.line(f"piece = {unit} % pieces")
        self.line("first = piece * length")
        self.line(f"last = min(first + length, n{d})")
        return f"{unit} // pieces"

    def bounds(self, d: int) -> tuple[str, str]:
        """Return the range of the reduced dimension `d`."""
        return ("first", "last") if self.spec.pieces and d == self.spec.kept else ("0", f"n{d}")

    def set_bases(
        self, sections: Sequence[Section], dims: Sequence[int], name: str = "p", function: str = ""
    ) -> None:
        """Emit the base offsets of all layouts of `sections`, advanced along `dims`. `function` is applied to
        each.
        """
        for layout in layouts_of(sections):
            before = self.bases.get(layout, "")
            terms = [f"i{d} * s{layout}_{d}" for d in dims if d in self.spec.moving(layout)]
            self.bases[layout] = f"{name}{layout}" if terms else before
            if terms:
                offset = " + ".join([before] * bool(before) + terms)
                self.line(f"{name}{layout} = {f'{function}({offset})' if function else offset}")

    # ---- accumulators

    def accumulators(self, section: Section) -> list[Instruction]:
        return [s for s in section.steps if s.kind in ("fold", "scan")]

    def use_type(self, dtype: str) -> str:
        """Return `dtype`, and import it as a Numba type unless it is bool."""
        if dtype != "bool":
            self.type(dtype)
        return dtype

    def identity(self, step: Instruction) -> str:
        """Return the initial value of the accumulator of `step`, as source text."""
        value = identity(step.function, self.use_type(self.spec.accumulators[step.position]))
        if "inf" in value:
            self.use("inf", "math")
        return value


def summary(spec: KernelSpec) -> str:
    """Return a comment with the orientation and the operators in order of execution."""
    steps = [step for section in spec.sections for step in section.steps]
    names = [step.function for step in steps if step.kind in ("apply", "fold", "scan")]
    names += [step.kind for step in steps if step.kind in ("gather", "check", "match")]
    text = f"# {spec.orientation}: {', '.join(dict.fromkeys(names)) or 'copy'}"
    return text if len(text) <= 110 else text[:107] + "..."


def computes_much(spec: KernelSpec) -> bool:
    """Return whether vectorisation is profitable although the kernel has to gather its elements one by
    one.
    """
    steps = [step for section in spec.sections for step in section.steps]
    return any(step.kind == "fold" or is_expensive(step.function) for step in steps)


def is_expensive(function: str) -> bool:
    """Return whether a scalar function takes longer than reading its operands."""
    return has_trait(function, SLOW) or has_trait(function, EXPENSIVE)


def is_compensated(function: str | None) -> bool:
    """Return whether a reduction of floats is a compensated sum."""
    return function is not None and OPS[function].accumulation is COMPENSATED


def has_trait(function: str, trait: Trait) -> bool:
    """Return whether the operator of a scalar function has a trait. Helper functions of kernels have no
    operator.
    """
    op = OPS.get(function)
    return op is not None and trait in op.traits


def moving_results(spec: KernelSpec, steps: Iterable[Instruction]) -> set[int]:
    """Return the values among the results of `steps` that change along the innermost dimension."""
    moving: set[int] = set()
    for step in steps:
        layout = step.layout if step.access is None else step.access.layout
        if (
            any(a in moving for a in step.args)
            or (layout >= 0 and spec.layouts[layout].stride != "zero")
            or step.kind in ("recall", "scan")
            or (step.kind == "finish" and spec.orientation == "columns")
        ):
            moving.add(step.result)
    return moving


def layouts_of(sections: Iterable[Section]) -> list[int]:
    """Return the layouts that `sections` use, in order of first use."""
    steps = [step for section in sections for step in section.steps]
    used = [s.layout if s.access is None else s.access.layout for s in steps]
    return list(dict.fromkeys(n for n in used if n >= 0))


def interleaved_lines(section: Section, most: int) -> int:
    """Return the number of lines that a COLUMNS kernel reads side by side: the largest that keeps its loop
    short.
    """
    steps = [step for step in section.steps if step.kind != "prefetch"]
    if not {step.kind for step in steps} <= {"load", "index", "apply", "recall", "fold"}:
        return 1
    return max([n for n in (8, 4, 2) if n <= most and n * len(steps) <= MAX_STEPS], default=1)


def renumbered(steps: Sequence[Instruction], shift: int) -> list[Instruction]:
    """Return `steps` with `shift` added to the numbers of the values they compute."""
    results = {step.result for step in steps} - {-1}
    return [
        step.replace(
            result=step.result + shift * (step.result in results),
            args=tuple(a + shift * (a in results) for a in step.args),
        )
        for step in steps
    ]
