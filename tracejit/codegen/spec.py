"""A generated kernel: its structure (`KernelSpec`), its argument block (slots), and its division into units.

A `KernelSpec` is immutable data: operators, dtypes, the number of dimensions after merging, and the operands
that move along the innermost loop. Extents, strides, offsets and literals are not part of it: they are
run-time slots, so kernels are shared between shapes. Equal specs generate equal source; the kernel store
hashes ``repr(spec)``.

Conventions for units and blocks:

- The block is an array of 8-byte slots in the order of `KernelSpec.slot_names`. An `AddressSlot` contains the
  address of an operand plus a byte offset, an `IntegerSlot` an int64, and a `NumberSlot` a host value *in its
  own dtype*, in the low bytes of the slot.
- Operands are numbered like those of the fused node: its inputs, then its outputs.
- A unit of a MAP kernel is a tile of `rows` x `columns` elements of the last two dimensions. A unit of a ROWS
  kernel is one kept index (and piece), a unit of a COLUMNS kernel a tile of the last kept dimension (and
  piece). A sweep is a MAP kernel that updates the array it reads; its unit is a band of rows
  (`tracejit.loopnest.sweep`).
- A STREAM step is a non-temporal store. Its results pass through a block of scratch memory, its stage
  (`tracejit.kernels.streams.stream`).
- Scratch memory: `Lowered.scratch` bytes that belong to the worker while it runs a unit. The panel of a
  product that only its epilogue reads is stored behind them, with the rows of the units [lo, hi) of the call.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from typing import Any, NamedTuple, Self

from tracejit.ir.view import View

BLOCK = 1024
"""The number of elements along the innermost dimension in a block of non-temporal stores."""


class AddressSlot(NamedTuple):
    """A slot with the address of operand number `operand`, plus `byte_offset`."""

    operand: int
    byte_offset: int


class IntegerSlot(NamedTuple):
    """A slot with an int64 that is known when the schedule is built."""

    value: int


class NumberSlot(NamedTuple):
    """A slot with 8 bytes of the host value `operand` in its own dtype, starting at `byte_offset`."""

    operand: int
    byte_offset: int = 0


BlockSlot = AddressSlot | IntegerSlot | NumberSlot


class StrideClass(NamedTuple):
    """The stride class of an access: its level, and its stride along the dimension of the
    innermost loop: "one", "zero" or "step".
    """

    level: str  # "kept" or "full"
    stride: str


class Access(NamedTuple):
    """The element of pointer number `pointer` at the offset that layout number `layout` computes."""

    pointer: int
    layout: int


class Instruction(NamedTuple):
    """One instruction. `result` and `args` are value numbers; the kind determines the other fields:

    number (position), load (access), index (position of its offset, layout), apply (function), gather
    (access, args: index; position of its stride), check (args: index, linear position; position of its
    bound), match (args: value, extreme, index; position of its bound), recall/keep (position of the scratch
    row), fold (function; args: value), finish (position of the fold), scan (args: value), store (access,
    args: value), stream (access, args: value; position of its stage), ring (access, args: value),
    prefetch (access; function and position: the distance in "rows" or "elements"; "written" refers to the
    current row, see `tracejit.kernels.streams.prefetch`).
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
        """Return the same instruction with other fields."""
        return self._replace(**fields)


class Section(NamedTuple):
    """The steps at one level, in order. A "kept" section runs once for each kept index, a "full" section
    for each reduced index too.
    """

    level: str
    steps: tuple[Instruction, ...]


class KernelSpec(NamedTuple):
    """The structure of a kernel.

    orientation:     "map", "rows" or "columns": the choice of the innermost loop
                     (`tracejit.loopnest.schedule.Orientation`).
    kept, reduced:   numbers of dimensions.
    pieces:          whether the first reduced dimension is split into ranges, one per unit.
    pointers:        dtypes of the buffers.
    numbers:         dtypes of the host values.
    offsets, bounds, jumps: numbers of slots of the INDEX steps, of the CHECK and MATCH steps, and of the
                     GATHER steps.
    rows:            dtypes of the scratch rows.
    tiles:           accesses to operands that are transposed tile by tile.
    accumulators:    dtypes of the accumulators of reductions and scans.
    stages:          dtypes of the results of STREAM steps.
    lines:           the maximal number of lines that a COLUMNS kernel reads side by side.
    panel:           the pointer to the panel of a product in scratch memory, or -1.
    sweep:           whether the only RING step is stored row by row, once no later row reads the old content.
    along:           whether the loop that computes the last such reader also stores the row.
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
    def innermost(self) -> int:
        """The dimension of the innermost loop."""
        return self.kept + self.reduced - 1 if self.orientation == "rows" else self.kept - 1

    def moving(self, layout: int) -> list[int]:
        """Return the dimensions along which `layout` has a run-time stride."""
        stride_class = self.layouts[layout]
        n_dims = self.kept if stride_class.level == "kept" else self.kept + self.reduced
        return [d for d in range(n_dims) if d != self.innermost or stride_class.stride == "step"]

    def slot_names(self) -> list[str]:
        """Return the names of the slots of the argument block, in order."""
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
        buffers, stages, accumulators = self.scratch_slot_names()
        names += buffers + stages
        names += ["scratch_bytes"] * bool(self.rows and self.orientation == "rows")
        return names + accumulators

    def scratch_slot_names(self) -> tuple[list[str], list[str], list[str]]:
        """Return the names of the slots for offsets in scratch memory: of tiles and rows, of stages, and of
        accumulators.
        """
        tiles = [f"tile{n}_at" for n in range(len(self.tiles))]
        rows = [f"row{n}_at" for n in range(len(self.rows))]
        stages = [f"stage{n}_at" for n in range(len(self.stages))]
        accumulators = [f"t{n}_at" for n in range(len(self.accumulators)) if self.orientation == "columns"]
        return tiles + rows, stages, accumulators


class Product(NamedTuple):
    """The matrix product of a panel kernel: its operand numbers, the views of the operands, and the
    operand that receives the product (None: scratch memory, panel by panel). `add`: whether the product is
    added to the content of that operand.
    """

    a: int
    a_view: View
    b: int
    b_view: View
    result: int | None
    add: bool = False


class Lowered(NamedTuple):
    """A kernel for concrete shapes. `chunk`: the number of units per call; `scratch`: bytes of scratch
    memory; `product`: the matrix product of a panel kernel.
    """

    spec: KernelSpec
    slots: tuple[BlockSlot, ...]
    units: int
    chunk: int
    scratch: int
    product: Product | None = None
