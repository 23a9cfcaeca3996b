# Written by `python -m docs.tools.stub` from the declarations of public functions.

from typing import Any

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.ndarray import NDArray

import tracejit.frontend.arrays.functions.applying
import tracejit.frontend.arrays.functions.elementwise
import tracejit.frontend.arrays.functions.joining
import tracejit.frontend.arrays.functions.linear
import tracejit.frontend.arrays.functions.manipulation
import tracejit.frontend.arrays.functions.movement
import tracejit.frontend.arrays.functions.placing
import tracejit.frontend.arrays.functions.reductions
import tracejit.frontend.arrays.functions.scans
import tracejit.frontend.arrays.functions.sorting
from tracejit.frontend.arrays.functions.reductions import all as all
from tracejit.frontend.arrays.functions.pointwise import allclose as allclose
from tracejit.frontend.arrays.functions.pointwise import angle as angle
from tracejit.frontend.arrays.functions.reductions import any as any
from tracejit.frontend.arrays.functions.joining import append as append
from tracejit.frontend.arrays.functions.applying import apply_along_axis as apply_along_axis
from tracejit.frontend.arrays.functions.applying import apply_over_axes as apply_over_axes
from tracejit.frontend.arrays.functions.ranges import arange as arange
from tracejit.frontend.arrays.functions.reductions import argmax as argmax
from tracejit.frontend.arrays.functions.reductions import argmin as argmin
from tracejit.frontend.arrays.functions.sorting import argpartition as argpartition
from tracejit.frontend.arrays.functions.sorting import argsort as argsort
from tracejit.frontend.arrays.functions.sorting import argwhere as argwhere
from tracejit.frontend.arrays.functions.creation import array as array
from tracejit.frontend.arrays.functions.pointwise import array_equal as array_equal
from tracejit.frontend.arrays.functions.pointwise import array_equiv as array_equiv
from tracejit.frontend.arrays.functions.joining import array_split as array_split
from tracejit.frontend.arrays.functions.creation import asarray as asarray
from tracejit.frontend.arrays.functions.creation import asarray_chkfinite as asarray_chkfinite
from tracejit.frontend.arrays.functions.creation import ascontiguousarray as ascontiguousarray
from tracejit.frontend.arrays.functions.creation import asfortranarray as asfortranarray
from tracejit.frontend.arrays.functions.dtypes import astype as astype
from tracejit.frontend.arrays.functions.joining import atleast_1d as atleast_1d
from tracejit.frontend.arrays.functions.joining import atleast_2d as atleast_2d
from tracejit.frontend.arrays.functions.joining import atleast_3d as atleast_3d
from tracejit.frontend.arrays.functions.statistics import average as average
from tracejit.frontend.arrays.functions.windows import bartlett as bartlett
from tracejit.frontend.arrays.functions.dtypes import bfloat16 as bfloat16
from tracejit.frontend.arrays.functions.histograms import bincount as bincount
from tracejit.frontend.arrays.functions.pointwise import bitwise_count as bitwise_count
from tracejit.frontend.arrays.functions.windows import blackman as blackman
from tracejit.frontend.arrays.functions.joining import block as block
from tracejit.frontend.arrays.functions.dtypes import bool_ as bool_
from tracejit.frontend.arrays.functions.manipulation import broadcast_arrays as broadcast_arrays
from tracejit.frontend.arrays.functions.manipulation import broadcast_shapes as broadcast_shapes
from tracejit.frontend.arrays.functions.manipulation import broadcast_to as broadcast_to
from tracejit.frontend.arrays.functions.indexers import c_ as c_
from tracejit.frontend.arrays.functions.dtypes import can_cast as can_cast
from tracejit.frontend.arrays.functions.pointwise import cbrt as cbrt
from tracejit.frontend.arrays.functions.applying import choose as choose
from tracejit.frontend.arrays.functions.elementwise import clip as clip
from tracejit.frontend.arrays.functions.joining import column_stack as column_stack
from tracejit.frontend.arrays.functions.dtypes import common_type as common_type
from tracejit.frontend.arrays.functions.dtypes import complex128 as complex128
from tracejit.frontend.arrays.functions.dtypes import complex64 as complex64
from tracejit.frontend.arrays.functions.placing import compress as compress
from tracejit.frontend.arrays.functions.movement import concat as concat
from tracejit.frontend.arrays.functions.elementwise import conj as conj
from tracejit.frontend.arrays.functions.convolution import convolve as convolve
from tracejit.frontend.arrays.functions.attributes import copy as copy
from tracejit.frontend.arrays.functions.placing import copyto as copyto
from tracejit.frontend.arrays.functions.statistics import corrcoef as corrcoef
from tracejit.frontend.arrays.functions.convolution import correlate as correlate
from tracejit.frontend.arrays.functions.reductions import count_nonzero as count_nonzero
from tracejit.frontend.arrays.functions.statistics import cov as cov
from tracejit.frontend.arrays.functions.linear import cross as cross
from tracejit.frontend.arrays.functions.scans import cumprod as cumprod
from tracejit.frontend.arrays.functions.scans import cumsum as cumsum
from tracejit.frontend.arrays.functions.scans import cumulative_prod as cumulative_prod
from tracejit.frontend.arrays.functions.scans import cumulative_sum as cumulative_sum
from tracejit.frontend.arrays.functions.pointwise import degrees as degrees
from tracejit.frontend.arrays.functions.joining import delete as delete
from tracejit.frontend.arrays.functions.placing import diag as diag
from tracejit.frontend.arrays.functions.grids import diag_indices as diag_indices
from tracejit.frontend.arrays.functions.grids import diag_indices_from as diag_indices_from
from tracejit.frontend.arrays.functions.placing import diagflat as diagflat
from tracejit.frontend.arrays.functions.placing import diagonal as diagonal
from tracejit.frontend.arrays.functions.calculus import diff as diff
from tracejit.frontend.arrays.functions.histograms import digitize as digitize
from tracejit.frontend.arrays.functions.pointwise import divmod as divmod
from tracejit.frontend.arrays.functions.linear import dot as dot
from tracejit.frontend.arrays.functions.joining import dsplit as dsplit
from tracejit.frontend.arrays.functions.joining import dstack as dstack
from tracejit.frontend.arrays.functions.dtypes import e as e
from tracejit.frontend.arrays.functions.calculus import ediff1d as ediff1d
from tracejit.frontend.arrays.functions.contraction import einsum as einsum
from tracejit.frontend.arrays.functions.contraction import einsum_path as einsum_path
from tracejit.frontend.arrays.functions.creation import empty as empty
from tracejit.frontend.arrays.functions.creation import empty_like as empty_like
from tracejit.frontend.arrays.functions.dtypes import euler_gamma as euler_gamma
from tracejit.frontend.arrays.functions.manipulation import expand_dims as expand_dims
from tracejit.frontend.arrays.functions.placing import extract as extract
from tracejit.frontend.arrays.functions.ranges import eye as eye
from tracejit.frontend.arrays.functions.pointwise import fabs as fabs
from tracejit.frontend.arrays.functions.placing import fill_diagonal as fill_diagonal
from tracejit.frontend.arrays.functions.dtypes import finfo as finfo
from tracejit.frontend.arrays.functions.sorting import flatnonzero as flatnonzero
from tracejit.frontend.arrays.functions.manipulation import flip as flip
from tracejit.frontend.arrays.functions.joining import fliplr as fliplr
from tracejit.frontend.arrays.functions.joining import flipud as flipud
from tracejit.frontend.arrays.functions.dtypes import float16 as float16
from tracejit.frontend.arrays.functions.dtypes import float32 as float32
from tracejit.frontend.arrays.functions.dtypes import float64 as float64
from tracejit.frontend.arrays.functions.pointwise import float_power as float_power
from tracejit.frontend.arrays.functions.pointwise import fmax as fmax
from tracejit.frontend.arrays.functions.pointwise import fmin as fmin
from tracejit.frontend.arrays.functions.pointwise import fmod as fmod
from tracejit.frontend.arrays.functions.pointwise import frexp as frexp
from tracejit.frontend.arrays.functions.creation import frombuffer as frombuffer
from tracejit.frontend.arrays.functions.grids import fromfunction as fromfunction
from tracejit.frontend.arrays.functions.creation import fromiter as fromiter
from tracejit.frontend.arrays.functions.creation import full as full
from tracejit.frontend.arrays.functions.creation import full_like as full_like
from tracejit.frontend.arrays.functions.pointwise import gcd as gcd
from tracejit.frontend.arrays.functions.ranges import geomspace as geomspace
from tracejit.frontend.arrays.functions.calculus import gradient as gradient
from tracejit.frontend.arrays.functions.windows import hamming as hamming
from tracejit.frontend.arrays.functions.windows import hanning as hanning
from tracejit.frontend.arrays.functions.pointwise import heaviside as heaviside
from tracejit.frontend.arrays.functions.histograms import histogram as histogram
from tracejit.frontend.arrays.functions.histograms import histogram2d as histogram2d
from tracejit.frontend.arrays.functions.histograms import histogram_bin_edges as histogram_bin_edges
from tracejit.frontend.arrays.functions.histograms import histogramdd as histogramdd
from tracejit.frontend.arrays.functions.joining import hsplit as hsplit
from tracejit.frontend.arrays.functions.joining import hstack as hstack
from tracejit.frontend.arrays.functions.windows import i0 as i0
from tracejit.frontend.arrays.functions.grids import identity as identity
from tracejit.frontend.arrays.functions.dtypes import iinfo as iinfo
from tracejit.frontend.arrays.functions.elementwise import imag as imag
from tracejit.frontend.arrays.functions.grids import indices as indices
from tracejit.frontend.arrays.functions.dtypes import inf as inf
from tracejit.frontend.arrays.functions.linear import inner as inner
from tracejit.frontend.arrays.functions.joining import insert as insert
from tracejit.frontend.arrays.functions.dtypes import int16 as int16
from tracejit.frontend.arrays.functions.dtypes import int32 as int32
from tracejit.frontend.arrays.functions.dtypes import int64 as int64
from tracejit.frontend.arrays.functions.dtypes import int8 as int8
from tracejit.frontend.arrays.functions.calculus import interp as interp
from tracejit.frontend.arrays.functions.sorting import intersect1d as intersect1d
from tracejit.frontend.arrays.functions.pointwise import isclose as isclose
from tracejit.frontend.arrays.functions.pointwise import iscomplex as iscomplex
from tracejit.frontend.arrays.functions.pointwise import iscomplexobj as iscomplexobj
from tracejit.frontend.arrays.functions.dtypes import isdtype as isdtype
from tracejit.frontend.arrays.functions.attributes import isfortran as isfortran
from tracejit.frontend.arrays.functions.sorting import isin as isin
from tracejit.frontend.arrays.functions.pointwise import isneginf as isneginf
from tracejit.frontend.arrays.functions.pointwise import isposinf as isposinf
from tracejit.frontend.arrays.functions.pointwise import isreal as isreal
from tracejit.frontend.arrays.functions.pointwise import isrealobj as isrealobj
from tracejit.frontend.arrays.functions.dtypes import isscalar as isscalar
from tracejit.frontend.arrays.functions.dtypes import issubdtype as issubdtype
from tracejit.frontend.arrays.functions.grids import ix_ as ix_
from tracejit.frontend.arrays.functions.windows import kaiser as kaiser
from tracejit.frontend.arrays.functions.linear import kron as kron
from tracejit.frontend.arrays.functions.pointwise import lcm as lcm
from tracejit.frontend.arrays.functions.pointwise import ldexp as ldexp
from tracejit.frontend.arrays.functions.sorting import lexsort as lexsort
from tracejit.frontend.arrays.functions.ranges import linspace as linspace
from tracejit.frontend.arrays.functions.pointwise import logaddexp2 as logaddexp2
from tracejit.frontend.arrays.functions.ranges import logspace as logspace
from tracejit.frontend.arrays.functions.grids import mask_indices as mask_indices
from tracejit.frontend.arrays.functions.linear import matmul as matmul
from tracejit.frontend.arrays.functions.manipulation import matrix_transpose as matrix_transpose
from tracejit.frontend.arrays.functions.linear import matvec as matvec
from tracejit.frontend.arrays.functions.reductions import max as max
from tracejit.frontend.arrays.functions.attributes import may_share_memory as may_share_memory
from tracejit.frontend.arrays.functions.reductions import mean as mean
from tracejit.frontend.arrays.functions.quantiles import median as median
from tracejit.frontend.arrays.functions.ranges import meshgrid as meshgrid
from tracejit.frontend.arrays.functions.indexers import mgrid as mgrid
from tracejit.frontend.arrays.functions.reductions import min as min
from tracejit.frontend.arrays.functions.dtypes import min_scalar_type as min_scalar_type
from tracejit.frontend.arrays.functions.pointwise import modf as modf
from tracejit.frontend.arrays.functions.manipulation import moveaxis as moveaxis
from tracejit.frontend.arrays.functions.dtypes import nan as nan
from tracejit.frontend.arrays.functions.pointwise import nan_to_num as nan_to_num
from tracejit.frontend.arrays.functions.missing import nanargmax as nanargmax
from tracejit.frontend.arrays.functions.missing import nanargmin as nanargmin
from tracejit.frontend.arrays.functions.missing import nancumprod as nancumprod
from tracejit.frontend.arrays.functions.missing import nancumsum as nancumsum
from tracejit.frontend.arrays.functions.missing import nanmax as nanmax
from tracejit.frontend.arrays.functions.missing import nanmean as nanmean
from tracejit.frontend.arrays.functions.quantiles import nanmedian as nanmedian
from tracejit.frontend.arrays.functions.missing import nanmin as nanmin
from tracejit.frontend.arrays.functions.quantiles import nanpercentile as nanpercentile
from tracejit.frontend.arrays.functions.missing import nanprod as nanprod
from tracejit.frontend.arrays.functions.quantiles import nanquantile as nanquantile
from tracejit.frontend.arrays.functions.missing import nanstd as nanstd
from tracejit.frontend.arrays.functions.missing import nansum as nansum
from tracejit.frontend.arrays.functions.missing import nanvar as nanvar
from tracejit.frontend.arrays.functions.creation import ndarray as ndarray
from tracejit.frontend.arrays.functions.attributes import ndim as ndim
from tracejit.frontend.arrays.functions.grids import ndindex as ndindex
from tracejit.frontend.arrays.functions.dtypes import newaxis as newaxis
from tracejit.frontend.arrays.functions.sorting import nonzero as nonzero
from tracejit.frontend.arrays.functions.indexers import ogrid as ogrid
from tracejit.frontend.arrays.functions.creation import ones as ones
from tracejit.frontend.arrays.functions.creation import ones_like as ones_like
from tracejit.frontend.arrays.functions.linear import outer as outer
from tracejit.frontend.arrays.functions.applying import packbits as packbits
from tracejit.frontend.arrays.functions.padding import pad as pad
from tracejit.frontend.arrays.functions.sorting import partition as partition
from tracejit.frontend.arrays.functions.quantiles import percentile as percentile
from tracejit.frontend.arrays.functions.manipulation import permute_dims as permute_dims
from tracejit.frontend.arrays.functions.dtypes import pi as pi
from tracejit.frontend.arrays.functions.pointwise import piecewise as piecewise
from tracejit.frontend.arrays.functions.placing import place as place
from tracejit.frontend.arrays.functions.polynomials import poly as poly
from tracejit.frontend.arrays.functions.polynomials import polyadd as polyadd
from tracejit.frontend.arrays.functions.polynomials import polyder as polyder
from tracejit.frontend.arrays.functions.polynomials import polydiv as polydiv
from tracejit.frontend.arrays.functions.polynomials import polyfit as polyfit
from tracejit.frontend.arrays.functions.polynomials import polyint as polyint
from tracejit.frontend.arrays.functions.polynomials import polymul as polymul
from tracejit.frontend.arrays.functions.polynomials import polysub as polysub
from tracejit.frontend.arrays.functions.polynomials import polyval as polyval
from tracejit.frontend.arrays.functions.elementwise import positive as positive
from tracejit.frontend.arrays.functions.elementwise import pow as pow
from tracejit.frontend.arrays.functions.reductions import prod as prod
from tracejit.frontend.arrays.functions.dtypes import promote_types as promote_types
from tracejit.frontend.arrays.functions.statistics import ptp as ptp
from tracejit.frontend.arrays.functions.placing import put as put
from tracejit.frontend.arrays.functions.placing import put_along_axis as put_along_axis
from tracejit.frontend.arrays.functions.placing import putmask as putmask
from tracejit.frontend.arrays.functions.quantiles import quantile as quantile
from tracejit.frontend.arrays.functions.indexers import r_ as r_
from tracejit.frontend.arrays.functions.pointwise import radians as radians
from tracejit.frontend.arrays.functions.manipulation import ravel as ravel
from tracejit.frontend.arrays.functions.grids import ravel_multi_index as ravel_multi_index
from tracejit.frontend.arrays.functions.elementwise import real as real
from tracejit.frontend.arrays.functions.pointwise import real_if_close as real_if_close
from tracejit.frontend.arrays.functions.joining import repeat as repeat
from tracejit.frontend.arrays.functions.manipulation import reshape as reshape
from tracejit.frontend.arrays.functions.joining import resize as resize
from tracejit.frontend.arrays.functions.dtypes import result_type as result_type
from tracejit.frontend.arrays.functions.pointwise import rint as rint
from tracejit.frontend.arrays.functions.movement import roll as roll
from tracejit.frontend.arrays.functions.manipulation import rollaxis as rollaxis
from tracejit.frontend.arrays.functions.polynomials import roots as roots
from tracejit.frontend.arrays.functions.joining import rot90 as rot90
from tracejit.frontend.arrays.functions.elementwise import round as round
from tracejit.frontend.arrays.functions.indexers import s_ as s_
from tracejit.frontend.arrays.functions.placing import scatter_add as scatter_add
from tracejit.frontend.arrays.functions.sorting import searchsorted as searchsorted
from tracejit.frontend.arrays.functions.pointwise import select as select
from tracejit.frontend.arrays.functions.sorting import setdiff1d as setdiff1d
from tracejit.frontend.arrays.functions.sorting import setxor1d as setxor1d
from tracejit.frontend.arrays.functions.attributes import shape as shape
from tracejit.frontend.arrays.functions.attributes import shares_memory as shares_memory
from tracejit.frontend.arrays.functions.pointwise import sinc as sinc
from tracejit.frontend.arrays.functions.attributes import size as size
from tracejit.frontend.arrays.functions.manipulation import sliding_window_view as sliding_window_view
from tracejit.frontend.arrays.functions.sorting import sort as sort
from tracejit.frontend.arrays.functions.sorting import sort_complex as sort_complex
from tracejit.frontend.arrays.functions.pointwise import spacing as spacing
from tracejit.frontend.arrays.functions.joining import split as split
from tracejit.frontend.arrays.functions.manipulation import squeeze as squeeze
from tracejit.frontend.arrays.functions.movement import stack as stack
from tracejit.frontend.arrays.functions.reductions import std as std
from tracejit.frontend.arrays.functions.elementwise import stop_gradient as stop_gradient
from tracejit.frontend.arrays.functions.reductions import sum as sum
from tracejit.frontend.arrays.functions.manipulation import swapaxes as swapaxes
from tracejit.frontend.arrays.functions.movement import take as take
from tracejit.frontend.arrays.functions.placing import take_along_axis as take_along_axis
from tracejit.frontend.arrays.functions.linear import tensordot as tensordot
from tracejit.frontend.arrays.functions.joining import tile as tile
from tracejit.frontend.arrays.functions.sorting import top_k as top_k
from tracejit.frontend.arrays.functions.linear import trace as trace
from tracejit.frontend.arrays.functions.manipulation import transpose as transpose
from tracejit.frontend.arrays.functions.calculus import trapezoid as trapezoid
from tracejit.frontend.arrays.functions.grids import tri as tri
from tracejit.frontend.arrays.functions.ranges import tril as tril
from tracejit.frontend.arrays.functions.grids import tril_indices as tril_indices
from tracejit.frontend.arrays.functions.grids import tril_indices_from as tril_indices_from
from tracejit.frontend.arrays.functions.applying import trim_zeros as trim_zeros
from tracejit.frontend.arrays.functions.ranges import triu as triu
from tracejit.frontend.arrays.functions.grids import triu_indices as triu_indices
from tracejit.frontend.arrays.functions.grids import triu_indices_from as triu_indices_from
from tracejit.frontend.arrays.functions.dtypes import uint16 as uint16
from tracejit.frontend.arrays.functions.dtypes import uint32 as uint32
from tracejit.frontend.arrays.functions.dtypes import uint64 as uint64
from tracejit.frontend.arrays.functions.dtypes import uint8 as uint8
from tracejit.frontend.arrays.functions.sorting import union1d as union1d
from tracejit.frontend.arrays.functions.sorting import unique as unique
from tracejit.frontend.arrays.functions.sorting import unique_all as unique_all
from tracejit.frontend.arrays.functions.sorting import unique_counts as unique_counts
from tracejit.frontend.arrays.functions.sorting import unique_inverse as unique_inverse
from tracejit.frontend.arrays.functions.sorting import unique_values as unique_values
from tracejit.frontend.arrays.functions.applying import unpackbits as unpackbits
from tracejit.frontend.arrays.functions.grids import unravel_index as unravel_index
from tracejit.frontend.arrays.functions.movement import unstack as unstack
from tracejit.frontend.arrays.functions.calculus import unwrap as unwrap
from tracejit.frontend.arrays.functions.polynomials import vander as vander
from tracejit.frontend.arrays.functions.reductions import var as var
from tracejit.frontend.arrays.functions.linear import vdot as vdot
from tracejit.frontend.arrays.functions.linear import vecdot as vecdot
from tracejit.frontend.arrays.functions.linear import vecmat as vecmat
from tracejit.frontend.arrays.functions.joining import vsplit as vsplit
from tracejit.frontend.arrays.functions.joining import vstack as vstack
from tracejit.frontend.arrays.functions.elementwise import where as where
from tracejit.frontend.arrays.functions.creation import zeros as zeros
from tracejit.frontend.arrays.functions.creation import zeros_like as zeros_like

def abs(x: Any, /) -> NDArray: ...
def acos(x: Any, /) -> NDArray: ...
def acosh(x: Any, /) -> NDArray: ...
def add(x1: Any, x2: Any, /) -> NDArray: ...
def asin(x: Any, /) -> NDArray: ...
def asinh(x: Any, /) -> NDArray: ...
def atan(x: Any, /) -> NDArray: ...
def atan2(x1: Any, x2: Any, /) -> NDArray: ...
def atanh(x: Any, /) -> NDArray: ...
def bitwise_and(x1: Any, x2: Any, /) -> NDArray: ...
def bitwise_invert(x: Any, /) -> NDArray: ...
def bitwise_left_shift(x1: Any, x2: Any, /) -> NDArray: ...
def bitwise_or(x1: Any, x2: Any, /) -> NDArray: ...
def bitwise_right_shift(x1: Any, x2: Any, /) -> NDArray: ...
def bitwise_xor(x1: Any, x2: Any, /) -> NDArray: ...
def ceil(x: Any, /) -> NDArray: ...
def complex(x1: Any, x2: Any, /) -> NDArray: ...
def copysign(x1: Any, x2: Any, /) -> NDArray: ...
def cos(x: Any, /) -> NDArray: ...
def cosh(x: Any, /) -> NDArray: ...
def divide(x1: Any, x2: Any, /) -> NDArray: ...
def equal(x1: Any, x2: Any, /) -> NDArray: ...
def erf(x: Any, /) -> NDArray: ...
def exp(x: Any, /) -> NDArray: ...
def exp2(x: Any, /) -> NDArray: ...
def expm1(x: Any, /) -> NDArray: ...
def floor(x: Any, /) -> NDArray: ...
def floor_divide(x1: Any, x2: Any, /) -> NDArray: ...
def greater(x1: Any, x2: Any, /) -> NDArray: ...
def greater_equal(x1: Any, x2: Any, /) -> NDArray: ...
def hypot(x1: Any, x2: Any, /) -> NDArray: ...
def isfinite(x: Any, /) -> NDArray: ...
def isinf(x: Any, /) -> NDArray: ...
def isnan(x: Any, /) -> NDArray: ...
def less(x1: Any, x2: Any, /) -> NDArray: ...
def less_equal(x1: Any, x2: Any, /) -> NDArray: ...
def log(x: Any, /) -> NDArray: ...
def log10(x: Any, /) -> NDArray: ...
def log1p(x: Any, /) -> NDArray: ...
def log2(x: Any, /) -> NDArray: ...
def logaddexp(x1: Any, x2: Any, /) -> NDArray: ...
def logical_and(x1: Any, x2: Any, /) -> NDArray: ...
def logical_not(x: Any, /) -> NDArray: ...
def logical_or(x1: Any, x2: Any, /) -> NDArray: ...
def logical_xor(x1: Any, x2: Any, /) -> NDArray: ...
def maximum(x1: Any, x2: Any, /) -> NDArray: ...
def minimum(x1: Any, x2: Any, /) -> NDArray: ...
def multiply(x1: Any, x2: Any, /) -> NDArray: ...
def negative(x: Any, /) -> NDArray: ...
def nextafter(x1: Any, x2: Any, /) -> NDArray: ...
def not_equal(x1: Any, x2: Any, /) -> NDArray: ...
def reciprocal(x: Any, /) -> NDArray: ...
def remainder(x1: Any, x2: Any, /) -> NDArray: ...
def sigmoid(x: Any, /) -> NDArray: ...
def sign(x: Any, /) -> NDArray: ...
def signbit(x: Any, /) -> NDArray: ...
def sin(x: Any, /) -> NDArray: ...
def sinh(x: Any, /) -> NDArray: ...
def sqrt(x: Any, /) -> NDArray: ...
def square(x: Any, /) -> NDArray: ...
def subtract(x1: Any, x2: Any, /) -> NDArray: ...
def tan(x: Any, /) -> NDArray: ...
def tanh(x: Any, /) -> NDArray: ...
def trunc(x: Any, /) -> NDArray: ...
absolute = abs
amax = max
amin = min
arccos = acos
arccosh = acosh
arcsin = asin
arcsinh = asinh
arctan = atan
arctan2 = atan2
arctanh = atanh
around = round
asanyarray = asarray
bitwise_not = bitwise_invert
bool = bool_
concatenate = concat
conjugate = conj
deg2rad = radians
fix = trunc
index_exp = s_
invert = bitwise_invert
left_shift = bitwise_left_shift
mod = remainder
power = pow
rad2deg = degrees
right_shift = bitwise_right_shift
row_stack = vstack
true_divide = divide

class Methods(ArrayCore):
    all = tracejit.frontend.arrays.functions.reductions.all
    any = tracejit.frontend.arrays.functions.reductions.any
    argmax = tracejit.frontend.arrays.functions.reductions.argmax
    argmin = tracejit.frontend.arrays.functions.reductions.argmin
    argpartition = tracejit.frontend.arrays.functions.sorting.argpartition
    argsort = tracejit.frontend.arrays.functions.sorting.argsort
    choose = tracejit.frontend.arrays.functions.applying.choose
    clip = tracejit.frontend.arrays.functions.elementwise.clip
    conj = tracejit.frontend.arrays.functions.elementwise.conj
    cumprod = tracejit.frontend.arrays.functions.scans.cumprod
    cumsum = tracejit.frontend.arrays.functions.scans.cumsum
    diagonal = tracejit.frontend.arrays.functions.placing.diagonal
    dot = tracejit.frontend.arrays.functions.linear.dot
    max = tracejit.frontend.arrays.functions.reductions.max
    mean = tracejit.frontend.arrays.functions.reductions.mean
    min = tracejit.frontend.arrays.functions.reductions.min
    nonzero = tracejit.frontend.arrays.functions.sorting.nonzero
    prod = tracejit.frontend.arrays.functions.reductions.prod
    put = tracejit.frontend.arrays.functions.placing.put
    ravel = tracejit.frontend.arrays.functions.manipulation.ravel
    repeat = tracejit.frontend.arrays.functions.joining.repeat
    round = tracejit.frontend.arrays.functions.elementwise.round
    searchsorted = tracejit.frontend.arrays.functions.sorting.searchsorted
    squeeze = tracejit.frontend.arrays.functions.manipulation.squeeze
    std = tracejit.frontend.arrays.functions.reductions.std
    sum = tracejit.frontend.arrays.functions.reductions.sum
    swapaxes = tracejit.frontend.arrays.functions.manipulation.swapaxes
    take = tracejit.frontend.arrays.functions.movement.take
    trace = tracejit.frontend.arrays.functions.linear.trace
    var = tracejit.frontend.arrays.functions.reductions.var
