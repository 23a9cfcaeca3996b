"""Einstein summation: `einsum`, as a sequence of contractions of two arrays.

A term is an array with labelled dimensions. A contraction combines two terms into one: it sums over labels
that neither other terms nor the result need. If both terms have such a label, the contraction is a matrix
product:

    bik,bjk->bij    (b, i, k) @ (b, k, j)          labels: shared and kept, left only, right only, summed
    i,j->ij         a product that broadcasts      nothing is summed

The order of contractions is greedy: the next pair is the one whose result is smallest compared with its
operands, as in Smith and Gray, "opt_einsum", JOSS 2018.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.linear import matmul
from tracejit.frontend.arrays.functions.manipulation import permute_dims, reshape
from tracejit.frontend.arrays.public import public
from tracejit.frontend.arrays.views import dropped
from tracejit.frontend.recording.location import user_location
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

Label = Hashable
"""A letter or an integer; ``("...", n)`` is the n-th dimension from the end that an ellipsis represents."""

ELLIPSIS = "..."
DEFAULTS = {"dtype": None, "order": "K", "casting": "safe"}


@public
def einsum(*operands: Any, optimize: Any = True, **options: Any) -> NDArray:
    """Einstein summation over labelled dimensions, in NumPy's two forms.

    ``einsum("ij,jk->ik", a, b)`` or ``einsum(a, [0, 1], b, [1, 2], [0, 2])``. A label that occurs twice in an
    operand selects its diagonal. Labels that the result lacks are summed; without an explicit result, its
    labels are those that occur once, in order. An ellipsis represents dimensions that broadcast.
    Products run as matrix products of two operands at a time. `optimize` may be NumPy's path, a list that
    begins with "einsum_path"; for all other values the order is greedy. `dtype` is that of the result, by
    default the common dtype of the operands.
    Raises ShapeError if extents or numbers of dimensions do not match the labels, ArgumentError for text that
    is not a summation, for unsupported options, and for an object that is not an array or number.

    >>> import tracejit as tj
    >>> a = tj.asarray([[1, 2], [3, 4]])
    >>> tj.einsum("ij,jk->ik", a, a)
    NDArray([[ 7, 10],
             [15, 22]], dtype=int64)
    >>> tj.einsum("ii", a), tj.einsum(a, [0, 1], [1])
    (NDArray(5, dtype=int64), NDArray([4, 6], dtype=int64))
    """
    unknown = [k for k, value in options.items() if k not in DEFAULTS or (k == "order" and value not in "KC")]
    if unknown:
        raise _refused(f"the option {unknown[0]}={options[unknown[0]]!r} is not supported")
    inputs, result, arrays = _parsed(operands)
    terms = _terms(arrays, inputs, result, options.get("dtype"))
    for positions in _path(optimize, len(terms)) or itertools.repeat(None):
        if len(terms) == 1:
            break
        pair = _next_pair(terms, result) if positions is None else positions
        contracted = [terms[i] for i in pair]
        terms = [term for i, term in enumerate(terms) if i not in pair]
        while len(contracted) > 1:
            first, second, *others = contracted
            needed = set(result).union(*(term.labels for term in (*others, *terms)))
            contracted = [_contract(first, second, needed), *others]
        terms += contracted
    return _arranged(_summed(terms[0], set(result)), result)


def _refused(what: str) -> Exception:
    return locate(ArgumentError(f"einsum: {what}"), user_location())


# -- labels --------------------------------------------------------------------------------------------------


def _parsed(operands: Sequence[Any]) -> tuple[list[list[Label]], list[Label], list[Any]]:
    """Return the labels of each operand and of the result, without ellipses, and the operands as arrays."""
    if not operands:
        raise _refused('expected subscripts and operands, such as einsum("ij,jk->ik", a, b)')
    if isinstance(operands[0], str):
        inputs, result = _from_text(operands[0])
        values = list(operands[1:])
    else:
        inputs = [_from_list(labels) for labels in operands[1::2]]
        result = _from_list(operands[-1]) if len(operands) % 2 else None
        values = list(operands[: 2 * len(inputs) : 2])
    if len(inputs) != len(values):
        raise _refused(f"subscripts for {len(inputs)} operands, but {len(values)} were given")
    arrays = [dispatch.as_array("einsum", x) for x in values]
    expanded = [_expanded(labels, x.ndim) for labels, x in zip(inputs, arrays, strict=True)]
    return expanded, _result_labels(expanded, result), arrays


def _from_text(text: str) -> tuple[list[list[Label]], list[Label] | None]:
    compact = "".join(text.split())
    left, arrow, right = compact.partition("->")
    inputs = [_from_part(part, text) for part in left.split(",")]
    return inputs, _from_part(right, text) if arrow else None


def _from_part(part: str, text: str) -> list[Label]:
    before, ellipsis, behind = part.partition(ELLIPSIS)
    if not all(c.isascii() and c.isalpha() for c in before + behind):
        raise _refused(f"{text!r} is no list of letters, commas, one ... an operand, and one arrow")
    return [*before, *([ELLIPSIS] if ellipsis else []), *behind]


def _from_list(labels: Any) -> list[Label]:
    if not isinstance(labels, list | tuple):
        raise _refused(f"expected a list of labels, got {type(labels).__name__}")
    return [ELLIPSIS if label is Ellipsis else integer("einsum: label", label) for label in labels]


def _expanded(labels: list[Label], ndim: int) -> list[Label]:
    """Replace the ellipsis in the labels of an operand of `ndim` dimensions by one label per dimension."""
    extra = ndim - sum(label != ELLIPSIS for label in labels)
    if extra < 0 or (extra and ELLIPSIS not in labels) or labels.count(ELLIPSIS) > 1:
        raise locate(
            ShapeError(f"einsum: the labels {_text(labels)} for an operand of {ndim} dimensions"),
            user_location(),
        )
    return _replaced(labels, extra)


def _replaced(labels: list[Label], extra: int) -> list[Label]:
    ellipsis: list[Label] = [(ELLIPSIS, n) for n in reversed(range(extra))]
    return [new for label in labels for new in (ellipsis if label == ELLIPSIS else [label])]


def _result_labels(inputs: list[list[Label]], result: list[Label] | None) -> list[Label]:
    """Return the labels of the result, implicit or checked, with its ellipsis expanded."""
    present = list(itertools.chain.from_iterable(inputs))
    extra = len({label for label in present if isinstance(label, tuple)})
    if result is None:
        once = [label for label, count in Counter(present).items() if count == 1 and type(label) is not tuple]
        return _replaced([ELLIPSIS, *sorted(once, key=lambda label: (str(type(label)), label))], extra)
    if extra and ELLIPSIS not in result:
        raise _refused("operands have an ellipsis, the result has none")
    expanded = _replaced(result, extra)
    invalid = [label for label, count in Counter(expanded).items() if count > 1 or label not in present]
    if invalid:
        raise _refused(f"the result's label {_text(invalid[:1])} must occur once there, and in an operand")
    return expanded


def _text(labels: Sequence[Label]) -> str:
    return " ".join(ELLIPSIS if isinstance(label, tuple) else str(label) for label in labels)


# -- terms ---------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class _Term:
    """An array with one label for each dimension, all different."""

    array: Any
    labels: tuple[Label, ...]

    def extents(self) -> dict[Label, int]:
        return dict(zip(self.labels, self.array.shape, strict=True))


def _terms(arrays: list[Any], inputs: list[list[Label]], result: list[Label], dtype: Any) -> list[_Term]:
    """Return the operands as terms of one dtype, without repeated labels and dimensions that broadcast."""
    requested = promotion.common_dtype("einsum", arrays) if dtype is None else dtype
    common = promotion.supported("einsum", requested)
    terms = [_diagonal(dispatch.cast(x, common), labels) for x, labels in zip(arrays, inputs, strict=True)]
    full: dict[Label, int] = {}
    for label, extent in itertools.chain.from_iterable(term.extents().items() for term in terms):
        known = full.setdefault(label, extent)
        if known != extent and 1 not in (known, extent):
            raise _mismatch(label, known, extent)
        full[label] = extent if known == 1 else known
    return [_narrowed(term, full) for term in terms]


def _mismatch(label: Label, first: int, second: int) -> Exception:
    what = f"einsum: the label {_text([label])} means extents {first} and {second}"
    return locate(ShapeError(what), user_location())


def _diagonal(x: Any, labels: list[Label]) -> _Term:
    """Return a term of `x`; dimensions with equal labels are replaced by their diagonal."""
    strides: dict[Label, int] = {}
    extents: dict[Label, int] = {}
    for label, extent, stride in zip(labels, x._view.shape, x._view.strides, strict=True):
        if extents.setdefault(label, extent) != extent:
            raise _mismatch(label, extents[label], extent)
        strides[label] = strides.get(label, 0) + stride
    view = View(x._view.offset, tuple(extents.values()), tuple(strides.values()), x._view.writable)
    return _Term(ArrayCore.new(x._storage, view), tuple(extents))


def _narrowed(term: _Term, full: dict[Label, int]) -> _Term:
    """Remove the dimensions of extent 1 that broadcast to a larger extent."""
    removed = [a for a, label in enumerate(term.labels) if term.array.shape[a] != full[label]]
    remaining = tuple(label for a, label in enumerate(term.labels) if a not in removed)
    return _Term(dropped(term.array, *removed), remaining)


def _summed(term: _Term, needed: set[Label]) -> _Term:
    """Sum a term over the labels that are not needed."""
    axes = tuple(a for a, label in enumerate(term.labels) if label not in needed)
    if not axes:
        return term
    op = ops.any if term.array.dtype == bool else ops.sum
    result = dispatch.emit(op, term.array, axes=axes, pieces=0)
    return _Term(result, tuple(label for label in term.labels if label in needed))


def _arranged(term: _Term, labels: Sequence[Label]) -> Any:
    return permute_dims(term.array, tuple(term.labels.index(label) for label in labels))


def _contract(left: _Term, right: _Term, needed: set[Label]) -> _Term:
    """Return the product of two terms, summed over the labels that are not needed."""
    left, right = _summed(left, needed.union(right.labels)), _summed(right, needed.union(left.labels))
    shared = [label for label in left.labels if label in right.labels and label in needed]
    inner = [label for label in left.labels if label in right.labels and label not in needed]
    rows = [label for label in left.labels if label not in right.labels]
    columns = [label for label in right.labels if label not in left.labels]
    if not inner or not (rows or columns):
        return _summed(_product(left, right, (*shared, *rows, *columns, *inner)), needed)
    extents = left.extents() | right.extents()

    def matrices(term: _Term, *groups: Sequence[Label]) -> Any:
        shape = [extents[label] for label in shared]
        shape += [math.prod(extents[label] for label in group) for group in groups]
        return reshape(_arranged(term, (*shared, *groups[0], *groups[1])), tuple(shape))

    product = matmul(matrices(left, rows, inner), matrices(right, inner, columns))
    labels = (*shared, *rows, *columns)
    return _Term(reshape(product, tuple(extents[label] for label in labels)), labels)


def _product(left: _Term, right: _Term, labels: tuple[Label, ...]) -> _Term:
    """Return the broadcast product of two terms, with dimensions in the order of `labels`."""

    def aligned(term: _Term) -> Any:
        view = _arranged(term, [label for label in labels if label in term.labels])._view
        for axis, label in enumerate(labels):
            if label not in term.labels:
                view = view.expand(axis)
        return ArrayCore.new(term.array._storage, view)

    op = ops.logical_and if left.array.dtype == bool else ops.multiply
    return _Term(dispatch.apply(op, aligned(left), aligned(right)), labels)


# -- the order of contractions -------------------------------------------------------------------------------


def _path(optimize: Any, count: int) -> list[tuple[int, ...]] | None:
    """Return NumPy's path if `optimize` is one: the positions of the terms of each contraction; else None."""
    if not isinstance(optimize, list | tuple) or not optimize or optimize[0] != "einsum_path":
        return None
    steps = [tuple(integer("einsum: position", i) for i in step) for step in optimize[1:]]
    remaining = count
    for step in steps:
        if not step or len(set(step)) != len(step) or not all(0 <= i < remaining for i in step):
            raise _refused(f"the path {optimize!r} does not fit {count} operands")
        remaining -= len(step) - 1
    if remaining != 1:
        raise _refused(f"the path {optimize!r} leaves {remaining} of {count} operands")
    return steps


def _next_pair(terms: list[_Term], result: Sequence[Label]) -> tuple[int, int]:
    """Return the pair whose contraction has the smallest result compared with its operands."""

    def growth(pair: tuple[int, int]) -> int:
        left, right = (terms[i] for i in pair)
        others = [term.labels for i, term in enumerate(terms) if i not in pair]
        needed = set(result).union(*others)
        extents = {k: n for k, n in (left.extents() | right.extents()).items() if k in needed}
        return math.prod(extents.values()) - left.array.size - right.array.size

    return min(itertools.combinations(range(len(terms)), 2), key=growth)


@public
def einsum_path(*operands: Any, optimize: Any = "greedy", **options: Any) -> tuple[list[Any], str]:
    """NumPy's order in which `einsum` may contract its operands, and a text with its cost.

    Only shapes are used. Arguments are those of `einsum`; the path may be its `optimize`.
    Raises ValueError for text that is not a summation or operands that do not match it.

    >>> import tracejit as tj
    >>> a = tj.ones((4, 4))
    >>> tj.einsum_path("ij,jk,kl->il", a, a, a)[0]
    ['einsum_path', (0, 1), (0, 1)]
    """
    shapes = [
        np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, ArrayCore) else x for x in operands
    ]
    return np.einsum_path(*shapes, optimize=optimize, **options)
