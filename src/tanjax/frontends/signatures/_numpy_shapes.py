"""`jax.numpy`: making, reshaping, joining and indexing arrays; functions of functions; tools."""

from ._notation import each

_FILE = "refuse: a file has no place for the unit; store it beside the numbers"

TABLE = {
    # making arrays like others
    **each("zeros_like ones_like", "a: u -> u kept"),
    "empty_like": "prototype: u -> u kept",
    "full_like": "a: U, fill_value: U -> U",
    "full": "fill_value: U -> U",
    "copy": "a: U -> U kept",
    **each("array asarray", "special"),
    # ranges
    **each("arange linspace", "special"),
    "geomspace": "start: u, stop: u -> u",
    "logspace": "start: 1, stop: 1, base: 1 -> 1",
    "meshgrid": "*xi: * -> [*]",
    # shape
    **each("reshape ravel squeeze transpose resize repeat swapaxes moveaxis", "a: U -> U kept"),
    **each("rollaxis expand_dims permute_dims roll", "a: U -> U kept"),
    **each("flip fliplr flipud rot90", "m: U -> U kept"),
    "matrix_transpose": "x: U -> U kept",
    "tile": "A: U -> U kept",
    "broadcast_to": "array: U -> U kept",
    "broadcast_arrays": "*args: * -> [*] kept",
    **each("atleast_1d atleast_2d atleast_3d", "*arys: * -> * kept"),
    **each("shape ndim size", "a: U -> - kept"),
    # joining and splitting
    **each("concatenate concat stack", "arrays: [U] -> U kept"),
    **each("column_stack dstack hstack vstack", "tup: [U] -> U kept"),
    "append": "arr: U, values: U -> U kept",
    "block": "special",
    **each("split array_split dsplit hsplit vsplit", "ary: U -> [U] kept"),
    "unstack": "x: U -> [U] kept",
    # padded with zeros: not for points of an affine scale
    **each("diag diagflat", "v: u -> u kept"),
    **each("tril triu", "m: u -> u kept"),
    "trim_zeros": "filt: u -> u kept",
    "pad": "special",
    # indexing
    "diagonal": "a: U -> U kept",
    "take": "a: U, fill_value: U -> U kept",
    "take_along_axis": "arr: U, fill_value: U -> U kept",
    **each("compress extract", "special"),
    "delete": "arr: U -> U kept",
    "insert": "arr: U, values: U -> U kept",
    "put": "a: U, v: U -> U",
    "put_along_axis": "arr: U, values: U -> U",
    "place": "arr: U, vals: U -> U",
    "fill_diagonal": "a: U, val: U -> U",
    "where": "x: U, y: U -> U kept",
    "select": "special",
    "choose": "choices: [U] -> U",
    **each("diag_indices_from tril_indices_from triu_indices_from", "arr: U -> -"),
    # functions of functions that get quantities
    **each("apply_along_axis apply_over_axes piecewise vectorize", "special"),
    **each("fromfunction frompyfunc", "plain"),
    # texts
    **each("array_repr array_str", "special"),
    # files and memory
    **each("save savez", _FILE),
    **each("load fromfile frombuffer fromiter fromstring from_dlpack", "plain"),
    # arrays without any operand
    **each("zeros ones empty eye identity tri indices", "plain"),
    **each("bartlett blackman hamming hanning kaiser", "plain"),
    **each("diag_indices tril_indices triu_indices mask_indices ix_", "plain"),
    **each("ravel_multi_index unravel_index", "plain"),
    # dtypes, shapes, printing
    "result_type": "*args: * -> -",
    "iterable": "y: U -> -",
    **each("broadcast_shapes einsum_path", "plain"),
    **each("can_cast promote_types issubdtype isdtype finfo iinfo dtype", "plain"),
    **each("get_printoptions printoptions set_printoptions", "plain"),
    # classes
    **each("ComplexWarning ndarray ufunc bool bool_ character object_", "plain"),
    **each("generic number inexact floating complexfloating flexible integer", "plain"),
    **each("signedinteger unsignedinteger", "plain"),
    **each("int1 int2 int4 int8 int16 int32 int64 int_", "plain"),
    **each("uint uint1 uint2 uint4 uint8 uint16 uint32 uint64", "plain"),
    **each("bfloat16 float16 float32 float64 float_ single double", "plain"),
    **each("complex64 complex128 complex_ csingle cdouble", "plain"),
    **each("float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3", "plain"),
    **each("float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2", "plain"),
    **each("float8_e5m2fnuz float8_e8m0fnu", "plain"),
}
