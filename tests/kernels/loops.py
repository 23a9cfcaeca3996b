"""Loops over scalar functions, compiled as generated kernels are, and errors in units in the last place."""

import ctypes
import math
import re

import mpmath
import numpy as np
from numba import types

from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.linker import link
from tracejit.kernels.compiler.half import HALVES
from tracejit.kernels.compiler.memory import load, pointer
from tracejit.kernels.scalar import FUNCTIONS

CALL = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
DTYPES = ["bool", *INTEGERS, *FLOATS]
TYPES = {name: getattr(types, "uint8" if name == "bool" else name) for name in DTYPES} | HALVES


class Loops:
    """One kernel for each case ``(names, operand dtypes, result dtypes)``: functions of the same operands.

    >>> loops = Loops([(["add", "less"], ["int8", "int8"], ["int8", "bool"])])
    >>> loops(0, np.array([1], "int8"), np.array([2], "int8"))
    [array([3], dtype=int8), array([ True])]
    """

    def __init__(self, cases, functions=FUNCTIONS):
        self.cases = cases
        entries = []
        for number, case in enumerate(cases):
            namespace = {"pointer": pointer, "load": load, "int64": types.int64, **TYPES}
            namespace |= {f"f_{name}": functions[name] for name in case[0]}
            exec(self._source(number, *case), namespace)
            entries.append(EntryPoint(f"kernel{number}", namespace[f"kernel{number}"]))
        built = build_object(entries)
        self.llvm_ir = built.llvm_ir
        self.addresses = link("loops", built.object_code, [entry.name for entry in entries])

    @staticmethod
    def _source(number, names, operands, results):
        lines = [f"def kernel{number}(block, lo, hi, scratch):"]
        for n, dtype in enumerate([*operands, *results]):
            kind = "uint8" if dtype == "bool" else dtype
            lines.append(f"    p{n} = pointer(load(block + {8 * n}, int64), {kind})")
        lines.append("    for i in range(lo, hi):")
        for n, dtype in enumerate(operands):
            lines.append(f"        x{n} = p{n}[i]{' != 0' if dtype == 'bool' else ''}")
        arguments = ", ".join(f"x{n}" for n in range(len(operands)))
        for n, (name, dtype) in enumerate(zip(names, results, strict=True), len(operands)):
            value = f"f_{name}({arguments})"
            lines.append(f"        p{n}[i] = {f'uint8({value})' if dtype == 'bool' else value}")
        return "\n".join([*lines, "    return 0"])

    def __call__(self, number, *arrays):
        """The results of a case on arrays of equal size."""
        _, operands, results = self.cases[number]
        arrays = [np.ascontiguousarray(a, dtype) for a, dtype in zip(arrays, operands, strict=True)]
        outputs = [np.empty(arrays[0].size, dtype) for dtype in results]
        block = np.array([a.ctypes.data for a in [*arrays, *outputs]])
        assert CALL(self.addresses[f"kernel{number}"])(block.ctypes.data, 0, arrays[0].size, 0) == 0
        return outputs

    def body(self, number):
        """The optimised LLVM IR of a case's loop."""
        return next(
            part
            for part in re.split(r"^(?=define )", self.llvm_ir, flags=re.MULTILINE)
            if re.match(rf"define [^\n]*@kernel{number}\(", part)
        )


def same(actual, expected):
    """Where two float arrays agree bit for bit, all NaNs being one."""
    bits = f"i{actual.itemsize}"
    return (actual.view(bits) == expected.view(bits)) | (np.isnan(actual) & np.isnan(expected))


@np.errstate(all="ignore")
def errors_f32(actual, exact):
    """Errors of float32 results in ulp, given the exact ones in float64; infinite where the kind differs."""
    rounded = exact.astype(np.float32)
    unit = np.spacing(np.minimum(np.abs(rounded), np.float32(2.0**127))).astype(np.float64)
    error = np.abs(actual.astype(np.float64) - exact) / unit
    error[same(actual, rounded) & ~np.isfinite(rounded)] = 0
    wrong_sign = (rounded == 0) & (np.signbit(rounded) != np.signbit(actual))
    return np.where(np.isnan(error) | wrong_sign, np.inf, error)


def error_f64(actual, exact):
    """Error of one float64 result in ulp, given the exact one as a float or mpmath number."""
    rounded = float(exact)
    if not np.isfinite(rounded) or not np.isfinite(actual) or actual == 0:
        if same(np.array([actual]), np.array([rounded]))[0]:
            return 0.0
        return abs(rounded) / math.ulp(0.0) if actual == 0 and rounded != 0 else math.inf
    return float(abs(mpmath.mpf(actual) - exact) / math.ulp(rounded))
