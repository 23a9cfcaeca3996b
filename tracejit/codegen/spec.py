"""A generated kernel: its structure (`KernelSpec`), its argument block (slots), its split into units.

A `KernelSpec` is plain frozen data: operators, dtypes, how many dimensions are left after merging, which
operands move along the innermost loop. Extents, strides, offsets and literals are not in it: they are
run-time slots, so kernels are shared between shapes. Equal specs give equal source; ``repr(spec)`` is what
the kernel store hashes.

Unit and block conventions:

- The block is a row of 8-byte slots in the order of `KernelSpec.slot_names`. `AddressSlot` is the address of
  an operand plus a byte offset; `IntegerSlot` is an int64; `NumberSlot` is a host value *in its own dtype*,
  in the low bytes of the slot.
- Operands are numbered like the fused node's: its inputs, then its outputs.
- MAP kernels: a unit is a tile, `rows` x `columns` elements, of the last two dimensions. ROWS: a unit is
  one kept index (and piece). COLUMNS: a unit is a tile of the last kept dimension (and piece). SWEEP: a MAP
  kernel that updates what it reads; a unit is a band of rows (`tracejit.loopnest.sweep`).
- A STREAM step is a non-temporal store: its results pass through a block in scratch, its stage
  (`tracejit.kernels.streams.stream`).
- scratch: `Lowered.scratch` bytes that belong to the worker while it runs a unit. The panel of a product that
  only its epilogue needs lies behind them: its rows are those of the units [lo, hi) of the call.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from typing import Any, NamedTuple, Self

from tracejit.ir.view import View

BLOCK = 1024
"""Elements along the lane in one block of non-temporal stores."""


class AddressSlot(NamedTuple):
    """A slot: address of operand number `operand`, plus `byte_offset`."""

    operand: int
    byte_offset: int


class IntegerSlot(NamedTuple):
    """A slot: an int64 known when the schedule is made."""

    value: int


class NumberSlot(NamedTuple):
    """A slot: 8 bytes of the host value `operand` in its own dtype, from `byte_offset` on."""

    operand: int
    byte_offset: int = 0


Slot = AddressSlot | IntegerSlot | NumberSlot


class StrideClass(NamedTuple):
    """The stride class of an access: its level, and its stride along the lane (the innermost loop): "one",
    "zero" or "step".
    """

    level: str  # "kept" or "full"
    lane: str


class Access(NamedTuple):
    """An element of pointer number `pointer` with the strides of layout number `layout`."""

    pointer: int
    layout: int


class Instruction(NamedTuple):
    """One instruction. `result` and `args` number values; other fields as the kind needs them.

    number (position), load (access), index (position of its offset, layout), apply (function), gather
    (access, args: index; position of its stride), check (args: index, linear position; position of its
    bound), match (args: value, extreme, index; position of its bound), recall/keep (position of the scratch
    row), fold (function; args: value), finish (position of the fold), scan (args: value), store (access,
    args: value), stream (access, args: value; position of its stage), ring (access, args: value),
    prefetch (access; function and position: how many "rows" or "elements" further; "written" is the same
    row, see `tracejit.kernels.streams.prefetch`).
    """

    kind: str
    dtype: str
    result: int = -1
    args: tuple[int, ...] = ()
    function: str = ""
    access: Access | None = None
    layout: int = -1
    position: int = -1

    def replace(self, **fields: Any) -> Self:
        """The same step with other fields."""
        return self._replace(**fields)


class Section(NamedTuple):
    """Steps at one level, in order: "kept" once for each kept index, "full" for each reduced index too."""

    level: str
    steps: tuple[Instruction, ...]


class KernelSpec(NamedTuple):
    """The structure of a kernel.

    orientation: "map", "rows" or "columns": which loop is innermost
    (`tracejit.loopnest.schedule.Orientation`). kept, reduced: numbers of dimensions. pieces: the first
    reduced dimension is cut into ranges, one per unit. pointers: dtypes. numbers: dtypes of host values.
    offsets, bounds, jumps: how many slots INDEX, CHECK and MATCH, and GATHER steps use. rows: dtypes of
    scratch rows. stages: dtypes of what STREAM steps write. lines: how many of them a COLUMNS kernel may read
    side by side. panel: the pointer that leads to the panel of a product in scratch memory, or -1. sweep:
    whether its one RING step is stored row by row, when no later row reads the old content; along: in the
    loop that computes the last row which reads it.
    """

    orientation: str
    kept: int
    reduced: int
    pieces: bool
    pointers: tuple[str, ...]
    layouts: tuple[StrideClass, ...]
    numbers: tuple[str, ...]
    offsets: int
    bounds: int
    jumps: int
    rows: tuple[str, ...]
    tiles: tuple[Access, ...]
    accumulators: tuple[str, ...]
    prologue: tuple[Instruction, ...]
    sections: tuple[Section, ...]
    panel: int = -1
    stages: tuple[str, ...] = ()
    lines: int = 1
    sweep: bool = False
    along: bool = False

    @property
    def lane(self) -> int:
        """The dimension of the innermost loop."""
        return self.kept + self.reduced - 1 if self.orientation == "rows" else self.kept - 1

    def moving(self, layout: int) -> list[int]:
        """Dimensions along which `layout` has a run-time stride."""
        chosen = self.layouts[layout]
        count = self.kept if chosen.level == "kept" else self.kept + self.reduced
        return [d for d in range(count) if d != self.lane or chosen.lane == "step"]

    def slot_names(self) -> list[str]:
        """The slots of the argument block, in order."""
        names = [f"n{d}" for d in range(self.kept + self.reduced)]
        if self.sweep:
            names += ["bands", "band", "up", "down", "edges_at", "ring_at"] + ["columns"] * (self.kept == 1)
        elif self.orientation == "map":
            names += ["tile"] if self.kept == 1 else ["rows", "row_tiles", "columns", "column_tiles"]
        if self.orientation == "columns":
            names += ["columns", "column_tiles"]
        if self.pieces:
            names += ["pieces", "length"]
        names += ["panel_row"] * (self.panel >= 0)
        names += [f"x{p}" for p in range(len(self.pointers))]
        names += [f"s{n}_{d}" for n in range(len(self.layouts)) for d in self.moving(n)]
        names += [f"offset{n}" for n in range(self.offsets)]
        names += [f"bound{n}" for n in range(self.bounds)]
        names += [f"jump{n}" for n in range(self.jumps)]
        for n, dtype in enumerate(self.numbers):
            names += [f"c{n}"] + [f"c{n}_imag"] * (dtype == "complex128")
        names += [f"tile{n}_at" for n in range(len(self.tiles))]
        names += [f"row{n}_at" for n in range(len(self.rows))]
        names += [f"stage{n}_at" for n in range(len(self.stages))]
        names += ["scratch_bytes"] * bool(self.rows and self.orientation == "rows")
        names += [f"t{n}_at" for n in range(len(self.accumulators)) if self.orientation == "columns"]
        return names


class Product(NamedTuple):
    """The matrix product of a panel kernel: operand numbers, how they are read, and where the product is
    stored (None: in scratch memory, panel by panel). `add`: it is added to what is there.
    """

    a: int
    a_view: View
    b: int
    b_view: View
    result: int | None
    add: bool = False


class Lowered(NamedTuple):
    """A kernel for concrete shapes. `chunk`: units of a call; `scratch`: bytes; `product`: of panels."""

    spec: KernelSpec
    slots: tuple[Slot, ...]
    units: int
    chunk: int
    scratch: int
    product: Product | None = None
