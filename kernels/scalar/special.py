"""The error function: a polynomial near zero, and ``1 - exp(p(x))`` elsewhere, with p close to log(erfc(x)).
In float32 the logarithm has base 2, because a power of 2 is cheaper to compute.
"""

from tracejit.kernels.compiler.intrinsics import copysign, fma, magnitude, select
from tracejit.kernels.scalar.building_blocks import is_double, nearest_multiple, polynomial, power_of_two
from tracejit.kernels.scalar.declare import scalar
from tracejit.kernels.scalar.exponential import exp2_reduced, exp_reduced, reduced

# erf(x) / x - 1 in x**2 for |x| <= 0.8 and for |x| <= 1, relative error of erf below 2**-28 and 2**-55
ERF_F32 = (
    0.12837916612625122,
    -0.3761260211467743,
    0.11283113062381744,
    -0.02682080678641796,
    0.00508513068780303,
    -0.0006535238353535533,
)
ERF_F64 = (
    0.12837916709551256,
    -0.37612638903183343,
    0.1128379167093695,
    -0.026866170641959137,
    0.005223977596735834,
    -0.0008548325484995265,
    0.00012055280496421043,
    -1.4924465635427309e-05,
    1.6444150490665827e-06,
    -1.618399026842682e-07,
    1.3616693718122866e-08,
    -7.607798284245617e-10,
)
# log2(erfc(x)) for 0.8 <= x <= END and log(erfc(x)) for 1 <= x <= END, error of erf below 2**-28 and 2**-58
ERFC_F32 = (
    -8.202242315746844e-05,
    -1.6277514696121216,
    -0.9177591800689697,
    -0.15130457282066345,
    0.0327453538775444,
    -0.0045659602619707584,
    0.0003010882355738431,
)
ERFC_F64 = (
    -1.7959789488473786e-07,
    -1.1283773294843837,
    -0.6366284879066909,
    -0.10274725498601976,
    0.019078160542613288,
    0.00028048185866029593,
    -0.0017689933892968798,
    0.000641166558790948,
    -4.48183588537429e-05,
    -7.036879910786389e-05,
    4.5038277291635743e-05,
    -1.65142397587609e-05,
    4.3271239829324516e-06,
    -8.505924253135372e-07,
    1.2570813923005638e-07,
    -1.3627120405719997e-08,
    1.0257384450671871e-09,
    -4.7962439485569205e-11,
    1.0496726007085945e-12,
)
END_F32, END_F64 = 3.95, 5.95  # from these arguments on, erf rounds to 1


@scalar()
def erf(x):
    a = magnitude(x)
    small = fma(a, polynomial(x * x, ERF_F64 if is_double(x) else ERF_F32), a)
    large = _erf_tail(select(a > END_F64, END_F64, a)) if is_double(x) else _erf_tail_f32(a)
    return copysign(select(a < (1.0 if is_double(x) else 0.8), small, large), x)


def _erf_tail(a):
    _, n, r = reduced(polynomial(a, ERFC_F64))
    return fma(-exp_reduced(r), power_of_two(n), 1.0)


def _erf_tail_f32(a):
    p = polynomial(select(a > END_F32, END_F32, a), ERFC_F32)
    n, i = nearest_multiple(p, 1.0)
    return fma(-exp2_reduced(p - n), power_of_two(i), 1.0)
