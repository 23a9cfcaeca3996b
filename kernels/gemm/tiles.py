"""Register tiles of a matrix product: a tile of C accumulates in vector registers.

    for k in range(depth):
        for r in range(rows): tile[r, :] += A[r, k] * B[k, :]

A is read element by element, in place; a row of B, as wide as the tile, consists of a few vectors.
`tracejit.kernels.gemm.packed` packs the operands for locality.

Tiles need 32 registers of 64 bytes. A tile uses 24 of them: 6 rows of 4 vectors. For each multiply-add it
loads less than half a vector, fewer than other shapes; 8 rows of 2 vectors were 4 % slower, 8 rows of 3
vectors as fast, but with a larger remainder of columns.

Tiles are written in LLVM assembly, and linked in after all other code has been optimised: the optimiser would
find nothing to improve, and take as long as for the rest of a product. Until then they are only declared.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from tracejit.kernels.compiler.code import features
from tracejit.kernels.compiler.memory import I64
from tracejit.kernels.gemm.plan import TILE_BYTES, TILE_FEATURE, TILE_ROWS, VECTOR_BYTES

HEIGHTS = (2, 4, TILE_ROWS)
"""The heights of tiles in rows."""

WIDTHS = (1, 2, 3, TILE_BYTES // VECTOR_BYTES)
"""The widths of narrow tiles in vectors."""

ITEMSIZE = {"float": 4, "double": 8}
"""The sizes of LLVM's float types in bytes."""

NAMES = ("tile", "tile_and_copy", "narrow_tile")

PARAMETERS = ("a", "a_down", "a_across", "b", "b_down", "copy", "c", "c_down", "rows", "depth", "columns")
"""The parameters of a tile, all int64; the last one, ``add``, is a boolean."""


def tiles_are_profitable() -> bool:
    """Whether this machine has registers of 64 bytes. With smaller registers, tiles load so much for each
    multiply-add that BLAS should be faster.
    """
    return bool(features().get(TILE_FEATURE))


# ------------------------------------------------------------------------------------------------ in kernels


def _function(name, scalar):
    """The name of the function of a tile for LLVM's type `scalar`."""
    return f"gemm_{name}_{scalar}"


def _declare(name):
    """Declare an intrinsic ``name(block, sliver, target, extents, add, dtype)``.

    block: address in A, stride between rows and between columns
    sliver: address in B, stride between rows, address for a copy of the sliver
    target: address in C, stride between rows
    extents: rows, depth, columns (of a narrow tile); a tile with more rows repeats the last one
    add: whether to add to C

    Strides are in bytes, extents at least 1.
    """

    @intrinsic
    def tile(typingctx, block, sliver, target, extents, add, dtype):
        def codegen(context, builder, signature, args):
            words = [word for argument in args[:4] for word in cgutils.unpack_tuple(builder, argument)]
            kind = ir.FunctionType(ir.VoidType(), [I64] * len(PARAMETERS) + [ir.IntType(1)])
            full = _function(name, context.get_data_type(dtype.dtype))
            function = cgutils.get_or_insert_function(builder.module, kind, full)
            function.attributes.add("nounwind")
            builder.call(function, [*words, args[4]])
            return context.get_dummy_value()

        words = [types.UniTuple(int64, count) for count in (3, 3, 2, 3)]
        return types.void(*words, types.boolean, dtype), codegen

    return tile


tile, tile_and_copy, narrow_tile = map(_declare, NAMES)
"""A tile of the height needed; a tile of full height that also copies its rows of B for further tiles; a tile
of full height and of the width needed.
"""

# ----------------------------------------------------------------------------------------------- definitions

FUNCTIONS = {scalar: frozenset(_function(name, scalar) for name in NAMES) for scalar in ITEMSIZE}
"""The functions that `definitions` defines, by LLVM's float types."""


@functools.cache
def definitions(scalar: str) -> str:
    """The tiles for LLVM's type `scalar`, as LLVM assembly."""
    vectors = TILE_BYTES // VECTOR_BYTES
    copying = _Tile(scalar, TILE_ROWS, vectors, copies=True)
    bodies = [
        _tiles_of_all_heights(scalar, vectors),
        _dispatch("%rows", [(copying, TILE_ROWS)]),
        _tiles_of_all_widths(scalar),
    ]
    parameters = ", ".join([*(f"i64 %{word}" for word in PARAMETERS), "i1 %add"])
    text = [*_declarations(copying)]
    for name, body in zip(NAMES, bodies, strict=True):
        text += [f"define void @{_function(name, scalar)}({parameters}) nounwind {{", *body, "}"]
    return "\n".join(text)


def _declarations(tile: _Tile) -> Iterator[str]:
    vector, suffix, mask = tile.vector, tile.suffix, f"<{tile.lanes} x i1>"
    yield "declare i64 @llvm.smin.i64(i64, i64)"
    yield f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})"
    yield f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, {mask}, {vector})"
    yield f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32, {mask})"


def _tiles_of_all_heights(scalar: str, vectors: int) -> Iterator[str]:
    """Tiles of all heights, and the dispatch to one of them."""
    tiles = [_Tile(scalar, height, vectors) for height in HEIGHTS]
    return _dispatch("%rows", [(tile, len(tile.rows)) for tile in tiles])


def _tiles_of_all_widths(scalar: str) -> Iterator[str]:
    """Narrow tiles of all widths, and the dispatch to one of them."""
    tiles = [
        _Narrow(scalar, TILE_ROWS, vectors, full) for full, vectors in zip((0, *WIDTHS), WIDTHS, strict=False)
    ]
    return _dispatch("%columns", [(tile, len(tile.columns) * tile.lanes) for tile in tiles])


def _dispatch(extent: str, tiles: Sequence[tuple[_Tile, int]]) -> Iterator[str]:
    """The dispatch to the first of several tiles that is large enough for an extent; the last one is the
    largest.
    """
    yield "  %last = sub i64 %rows, 1"
    for tile, size in tiles[:-1]:
        yield f"  %enough{tile.name} = icmp sle i64 {extent}, {size}"
        yield f"  br i1 %enough{tile.name}, label %tile{tile.name}, label %beyond{tile.name}"
        yield f"tile{tile.name}:"
        yield from tile.lines()
        yield f"beyond{tile.name}:"
    yield from tiles[-1][0].lines()


class _Tile:
    """The instructions of a tile; names of values contain its `name`, as a function may contain several
    tiles.
    """

    def __init__(self, scalar: str, height: int, vectors: int, *, copies: bool = False) -> None:
        self.scalar, self.copies, self.name = scalar, copies, f"{height}x{vectors}"
        self.itemsize = ITEMSIZE[scalar]
        self.lanes = VECTOR_BYTES // self.itemsize
        self.vector, self.suffix = f"<{self.lanes} x {scalar}>", f"v{self.lanes}f{8 * self.itemsize}"
        self.rows, self.columns = range(height), range(vectors)
        self.cells = [f"{self.name}.{r}.{v}" for r in self.rows for v in self.columns]

    def lines(self) -> Iterator[str]:
        """The loop over the depth, whose loop-carried values are the tile; then the update of C."""
        yield from self.row_starts()
        yield from self.loop()
        yield from self.result()

    def row_starts(self) -> Iterator[str]:
        """The addresses of the rows of A and C. Surplus rows of the tile repeat the last one."""
        h = self.name
        yield f"  br label %rows{h}"
        yield f"rows{h}:"
        for r in self.rows:
            yield f"  %n{h}.{r} = call i64 @llvm.smin.i64(i64 {r}, i64 %last)"
            for operand in "ac":
                yield f"  %{operand}.down{h}.{r} = mul i64 %n{h}.{r}, %{operand}_down"
                yield f"  %{operand}{h}.{r} = add i64 %{operand}, %{operand}.down{h}.{r}"
        yield f"  br label %depth{h}"

    def loop(self) -> Iterator[str]:
        h, vector = self.name, self.vector
        yield f"depth{h}:"
        yield f"  %k{h} = phi i64 [0, %rows{h}], [%next{h}, %depth{h}]"
        for cell in self.cells:
            yield f"  %old{cell} = phi {vector} [zeroinitializer, %rows{h}], [%new{cell}, %depth{h}]"
        yield f"  %across{h} = mul i64 %k{h}, %a_across"
        yield f"  %down{h} = mul i64 %k{h}, %b_down"
        yield f"  %row{h} = add i64 %b, %down{h}"
        for v in self.columns:
            yield from self.load(f"b{h}.{v}", f"%row{h}", v)
        if self.copies:
            yield f"  %place{h} = mul i64 %k{h}, {TILE_BYTES}"
            yield f"  %copy{h} = add i64 %copy, %place{h}"
            for v in self.columns:
                yield from self.store(f"b{h}.{v}", f"%copy{h}", v, "copied")
        for r in self.rows:
            x = f"x{h}.{r}"
            yield f"  %at.{x} = add i64 %a{h}.{r}, %across{h}"
            yield f"  %to.{x} = inttoptr i64 %at.{x} to ptr"
            yield f"  %one.{x} = load {self.scalar}, ptr %to.{x}, align {self.itemsize}"
            yield from self.broadcast(x, self.scalar, f"%one.{x}")
            for v in self.columns:
                cell = f"{h}.{r}.{v}"
                factors = f"{vector} %{x}, {vector} %b{h}.{v}, {vector} %old{cell}"
                yield f"  %new{cell} = call {vector} @llvm.fma.{self.suffix}({factors})"
        yield f"  %next{h} = add i64 %k{h}, 1"
        yield f"  %more{h} = icmp slt i64 %next{h}, %depth"
        yield f"  br i1 %more{h}, label %depth{h}, label %end{h}"

    def result(self) -> Iterator[str]:
        """The stores of the tile to C. If the tile is added to C, all of C is read before any store, as rows
        may repeat.
        """
        h = self.name
        yield f"end{h}:"
        yield f"  br i1 %add, label %add{h}, label %put{h}"
        yield f"add{h}:"
        cells = [(f"%c{h}.{r}", v, f"{h}.{r}.{v}") for r in self.rows for v in self.columns]
        for row, v, cell in cells:
            yield from self.load(f"before{cell}", row, v)
        for _, _, cell in cells:
            yield f"  %sum{cell} = fadd {self.vector} %new{cell}, %before{cell}"
        for row, v, cell in cells:
            yield from self.store(f"sum{cell}", row, v, "added")
        yield "  ret void"
        yield f"put{h}:"
        for row, v, cell in cells:
            yield from self.store(f"new{cell}", row, v, "put")
        yield "  ret void"

    def address(self, name: str, row: str, v: int) -> Iterator[str]:
        """``%to.name``: the address of vector `v` of a row."""
        yield f"  %at.{name} = add i64 {row}, {v * VECTOR_BYTES}"
        yield f"  %to.{name} = inttoptr i64 %at.{name} to ptr"

    def load(self, name: str, row: str, v: int) -> Iterator[str]:
        """``%name``: vector `v` of a row."""
        yield from self.address(name, row, v)
        yield f"  %{name} = load {self.vector}, ptr %to.{name}, align {self.itemsize}"

    def store(self, name: str, row: str, v: int, how: str) -> Iterator[str]:
        """Store ``%name`` to vector `v` of a row; `how` distinguishes the names of the temporaries."""
        yield from self.address(f"{how}.{name}", row, v)
        yield f"  store {self.vector} %{name}, ptr %to.{how}.{name}, align {self.itemsize}"

    def broadcast(self, name: str, kind: str, number: str) -> Iterator[str]:
        """``%name``: the broadcast of one number of an LLVM type."""
        vector, zeros = f"<{self.lanes} x {kind}>", f"<{self.lanes} x i32> zeroinitializer"
        yield f"  %first.{name} = insertelement {vector} poison, {kind} {number}, i64 0"
        yield f"  %{name} = shufflevector {vector} %first.{name}, {vector} poison, {zeros}"


class _Narrow(_Tile):
    """A tile with masked loads and stores for the columns that exist; the first `full` vectors are
    complete.
    """

    def __init__(self, scalar: str, height: int, vectors: int, full: int) -> None:
        super().__init__(scalar, height, vectors)
        self.full = full

    def lines(self) -> Iterator[str]:
        h = self.name
        yield f"  %count{h} = trunc i64 %columns to i32"
        yield from self.broadcast(f"counts{h}", "i32", f"%count{h}")
        for v in self.columns[self.full :]:
            lanes = ", ".join(f"i32 {v * self.lanes + n}" for n in range(self.lanes))
            yield f"  %used{h}.{v} = icmp slt <{self.lanes} x i32> <{lanes}>, %counts{h}"
        yield from super().lines()

    def load(self, name: str, row: str, v: int) -> Iterator[str]:
        if v < self.full:
            yield from super().load(name, row, v)
            return
        yield from self.address(name, row, v)
        arguments = f"ptr %to.{name}, i32 {self.itemsize}, {self.mask(v)}, {self.vector} zeroinitializer"
        yield f"  %{name} = call {self.vector} @llvm.masked.load.{self.suffix}.p0({arguments})"

    def store(self, name: str, row: str, v: int, how: str) -> Iterator[str]:
        if v < self.full:
            yield from super().store(name, row, v, how)
            return
        yield from self.address(f"{how}.{name}", row, v)
        arguments = f"{self.vector} %{name}, ptr %to.{how}.{name}, i32 {self.itemsize}, {self.mask(v)}"
        yield f"  call void @llvm.masked.store.{self.suffix}.p0({arguments})"

    def mask(self, v: int) -> str:
        """The mask of the lanes of vector `v` that are columns of C."""
        return f"<{self.lanes} x i1> %used{self.name}.{v}"
