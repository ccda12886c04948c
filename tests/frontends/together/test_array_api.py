"""The array API on structured arrays and quantities: what consumers ask for is there."""

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj
from comparisons import assert_close, dense_tree

pytestmark = pytest.mark.core

X = jnp.asarray([0.5, -1.0, 2.0])
MATRICES = {
    "Diagonal": tj.Diagonal(jnp.asarray([1.0, 2.0, 4.0])),
    "Symmetric": tj.Symmetric(jnp.asarray([[4.0, 1, 0.5], [1, 5, -1], [0.5, -1, 3]])),
}
# The names of the standard of 2024, with its extension for linear algebra.
NAMES = """
abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh
bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor bool
broadcast_arrays broadcast_to can_cast ceil clip complex128 complex64 concat conj copysign cos
cosh count_nonzero cumulative_prod cumulative_sum diff divide e empty empty_like equal exp
expand_dims expm1 eye finfo flip float32 float64 floor floor_divide from_dlpack full full_like
greater greater_equal hypot iinfo imag inf int16 int32 int64 int8 isdtype isfinite isinf isnan
less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not logical_or
logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis multiply nan
negative newaxis nextafter nonzero not_equal ones ones_like permute_dims pi positive pow prod real
reciprocal remainder repeat reshape result_type roll round searchsorted sign signbit sin sinh sort
sqrt square squeeze stack std subtract sum take take_along_axis tan tanh tensordot tile tril triu
trunc uint16 uint32 uint64 uint8 unique_all unique_counts unique_inverse unique_values unstack var
vecdot where zeros zeros_like linalg.cholesky linalg.cross linalg.det linalg.diagonal linalg.eigh
linalg.eigvalsh linalg.inv linalg.matmul linalg.matrix_norm linalg.matrix_power linalg.matrix_rank
linalg.matrix_transpose linalg.outer linalg.pinv linalg.qr linalg.slogdet linalg.solve linalg.svd
linalg.svdvals linalg.tensordot linalg.trace linalg.vecdot linalg.vector_norm fft.fft fft.ifft
fft.rfft fft.irfft fft.fftfreq __array_namespace_info__ __array_api_version__
"""


def test_every_name_of_the_standard_is_there():
    xp = MATRICES["Diagonal"].__array_namespace__()
    assert xp is (X * tj.units.metre).__array_namespace__(api_version="2024.12")
    for name in NAMES.split():
        place, _, last = name.rpartition(".")
        assert hasattr(getattr(xp, place) if place else xp, last), name
    with pytest.raises(AttributeError, match="no attribute `no_such_function`"):
        xp.no_such_function  # noqa: B018


def consume(a, x):
    """A consumer of the standard, which knows no library."""
    xp = a.__array_namespace__()
    assert xp.isdtype(a.dtype, "real floating")
    assert xp.result_type(a, x) == a.dtype
    a, x = xp.asarray(a), xp.asarray(x, dtype=a.dtype)
    twice = xp.add(a, xp.permute_dims(a, (1, 0)))
    y = xp.linalg.solve(twice, xp.matmul(a, x)) + xp.matmul(xp.matrix_transpose(a), x)
    size = xp.sum(a) + xp.linalg.trace(a) + xp.linalg.det(a) + xp.linalg.slogdet(a)[1]
    norm = xp.linalg.matrix_norm(a) + xp.sum(xp.linalg.eigvalsh(a))
    return y, size + norm, xp.linalg.inv(xp.conj(a)), xp.linalg.cholesky(a)


@pytest.mark.parametrize("name", MATRICES)
def test_a_consumer_of_the_standard_keeps_the_structure(name):
    """Values are those of the dense array, whose namespace is that of JAX."""
    a = MATRICES[name]
    with tj.densify("error"):
        got = jax.jit(consume)(a, X)
        narrow = a.__array_namespace__().astype(a, jnp.float32)
    assert type(got[2]) is type(narrow) is type(a)
    assert narrow.dtype == jnp.float32
    assert_close(dense_tree(got), consume(a.to_dense(), X))


def test_functions_and_devices_of_a_structured_array():
    a = MATRICES["Symmetric"]
    xp = a.__array_namespace__()
    for call in (
        lambda: xp.exp(a),
        lambda: xp.concat([a, a]),
        lambda: xp.permute_dims(a, (0, 1))[0],
    ):
        with tj.densify("error"), pytest.raises(tj.NoRuleError):
            call()
    moved = a.to_device(jax.devices()[1])
    assert moved.device == jax.devices()[1]
    assert type(moved) is tj.Symmetric
    assert xp.asarray(a, device=jax.devices()[2]).device == jax.devices()[2]
    batch = tj.Diagonal(jnp.arange(1.0, 7.0).reshape(2, 3))
    for how in ({"ord": "nuc"}, {"ord": 2, "keepdims": True}, {"keepdims": True}):
        want = jnp.linalg.matrix_norm(batch.to_dense(), **how)
        assert_close(xp.linalg.matrix_norm(batch, **how), want)


def test_quantities_keep_structure_and_units():
    a = tj.Diagonal(jnp.asarray([1.0, 2.0, 4.0]) * tj.units.kg)
    x = X * tj.units.metre
    xp = a.__array_namespace__()
    with tj.densify("error"):
        assert xp.matmul(a, x).unit == tj.unit("kg m")
        assert xp.linalg.solve(a, x).unit == tj.unit("m/kg")
        assert type(xp.permute_dims(a, (1, 0)).value) is tj.Diagonal
        assert xp.linalg.matrix_norm(a).unit == tj.unit("kg")
