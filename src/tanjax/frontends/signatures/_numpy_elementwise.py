"""`jax.numpy`: functions that work element by element."""

from ._notation import each

_BITS = "refuse: the bits of a number mean nothing in another unit"

TABLE = {
    # sums and differences; `add` and `subtract` also accept points and differences
    **each("add subtract", "x1: u, x2: u -> u"),
    **each("maximum minimum fmax fmin", "x1: U, x2: U -> U kept"),
    **each("nextafter", "x: u, y: u -> u"),
    **each("hypot gcd lcm fmod mod remainder", "x1: u, x2: u -> u"),
    "copysign": "x1: u, x2: v -> u",
    # the unit stays
    **each("abs absolute fabs negative conj conjugate", "x: u -> u kept"),
    "spacing": "x: u -> u",
    **each("real imag", "val: u -> u kept"),
    "positive": "x: U -> U kept",
    "ldexp": "x1: u, x2: 1 -> u",
    "frexp": "x: u -> (u, -)",
    # rounding is to integer multiples of the unit of the quantity
    **each("ceil floor rint trunc", "x: u -> u"),
    **each("round around", "a: u, decimals: - -> u"),
    "modf": "x: u -> (u, u)",
    # products and powers
    "multiply": "x1: u, x2: v -> u*v",
    **each("divide true_divide", "x1: u, x2: v -> u/v"),
    "floor_divide": "x1: u, x2: u -> 1",
    "divmod": "x1: u, x2: u -> (1, u)",
    "reciprocal": "x: u -> 1/u",
    "square": "x: u -> u^2",
    "sqrt": "x: u -> u^1/2",
    "cbrt": "x: u -> u^1/3",
    **each("power pow float_power", "special"),
    # angles
    **each("sin cos tan sinc", "x: 1 -> 1"),
    **each("arcsin arccos arctan asin acos atan", "x: 1 -> rad"),
    **each("arctan2 atan2", "x1: u, x2: u -> rad"),
    **each("angle deg2rad radians rad2deg degrees", "special"),
    "unwrap": "special",
    # exponentials, logarithms, hyperbolic functions
    **each("exp exp2 expm1 log log2 log10 log1p i0", "x: 1 -> 1"),
    **each("sinh cosh tanh arcsinh arccosh arctanh asinh acosh atanh", "x: 1 -> 1"),
    **each("logaddexp logaddexp2", "x1: 1, x2: 1 -> 1"),
    "heaviside": "x1: u, x2: 1 -> 1",
    # tests
    **each("sign signbit isneginf isposinf", "x: u -> - kept"),
    **each("isfinite isinf isnan iscomplex isreal iscomplexobj isrealobj", "x: U -> - kept"),
    "isscalar": "element: U -> -",
    **each("equal not_equal less less_equal greater greater_equal", "x: U, y: U -> - kept"),
    **each("isclose allclose", "special"),
    **each("array_equal array_equiv", "a1: U, a2: U -> - kept"),
    # truth: a test for zero
    "logical_not": "x: u -> -",
    **each("logical_and logical_or logical_xor", "x1: u, x2: v -> -"),
    # replacing values
    "clip": "arr: U, min: U, max: U -> U kept",
    "nan_to_num": "x: u, nan: u, posinf: u, neginf: u -> u",
    # bits
    **each("bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_invert invert", _BITS),
    **each("bitwise_left_shift bitwise_right_shift left_shift right_shift bitwise_count", _BITS),
    **each("packbits unpackbits", _BITS),
    # one dtype for another
    "astype": "x: U -> U",
}
