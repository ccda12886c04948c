"""Every pointwise operation of OpInfo, at edges and in every kind of dtype, as in torch.

All operations on one kind are one compiled program.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F

from tanjax.bridges import torch as tjt
from torch_comparison import assert_same_as_torch
from torch_opinfo import UNSERVED, database

pytestmark = pytest.mark.torch

FLOATS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -3.0, 3.0, 6.25, -7.75, 40.0, -40.0]
EDGES = [float("nan"), float("inf"), -float("inf")]
KINDS = {
    "float32": torch.tensor(FLOATS + EDGES, dtype=torch.float32),
    "float64": torch.tensor(FLOATS + EDGES, dtype=torch.float64),
    "int64": torch.tensor([1, -1, 2, -3, 5, 7, -8, 100]),
    "uint8": torch.tensor([1, 2, 3, 5, 8, 100, 200, 255], dtype=torch.uint8),
    "bool": torch.tensor([True, False, True, True]),
    "complex64": torch.tensor([0.5 + 1j, -2 + 0.25j, 1 - 1j, 3j, -1.5], dtype=torch.complex64),
}
PAIRS = [
    ("float32", "float32"),
    ("float64", "float32"),
    ("int64", "int64"),
    ("int64", "float32"),
    ("uint8", "int64"),
    ("bool", "bool"),
    ("float32", "complex64"),
]
# Where torch has no answer of its own at infinities: NaN in vectors, numbers beside.
PECULIAR = dict.fromkeys(["igamma", "igammac"], "not nan")
PECULIAR |= dict.fromkeys(["byte", "char", "short", "int", "long"], "finite")
PECULIAR |= dict.fromkeys(["rsub", "__rsub__", "pow", "__rpow__", "float_power"], "finite")
PECULIAR |= {"nn.functional.gelu": "finite"}
OTHERS = (*UNSERVED, "frexp", "rrelu")  # also of two results, and random


def named(kind):
    ops = [op for op in database() if kind in {c.__name__ for c in type(op).__mro__}]
    names = {" ".join(filter(None, (op.name, op.variant_test_name))): op.op for op in ops}
    return {name: op for name, op in names.items() if not any(o in name for o in OTHERS)}


UNARY, BINARY = named("UnaryUfuncInfo"), named("BinaryUfuncInfo")


def operands(*kinds):
    """One tensor, or all pairs of two."""
    if len(kinds) == 1:
        return [KINDS[kinds[0]]]
    return [KINDS[kinds[0]][:, None], KINDS[kinds[1]][None, :]]


@functools.cache
def ours(*kinds):
    """What each operation gives, and what it raises, from one compiled program."""
    raised = {}

    def run(*arrays):
        found = {}
        for name, op in (UNARY if len(kinds) == 1 else BINARY).items():
            try:
                found[name] = tjt.to_jax(op(*map(tjt.from_jax, arrays)))
            except Exception as error:
                raised[name] = error
        return found

    return jax.jit(run)(*map(tjt.to_jax, operands(*kinds))), raised


def assert_agree(name, op, *kinds):
    found, raised = ours(*kinds)
    given = operands(*kinds)
    try:
        expected = op(*given).resolve_conj()
    except (RuntimeError, TypeError):
        lenient = name in ("clamp_min", "clamp_max")  # of complex numbers
        assert isinstance(raised.get(name), (RuntimeError, TypeError)) or lenient, raised.get(name)
        return
    assert name not in raised, raised[name]
    actual = tjt.to_torch(tjt.from_jax(found[name]))
    assert actual.dtype == expected.dtype
    if told := PECULIAR.get(name):
        given = torch.broadcast_tensors(*given)
        keep = torch.stack([g == g if told == "not nan" else g.isfinite() for g in given]).all(0)
        actual, expected = actual[keep], expected[keep]
    rough = 2e-5 if expected.dtype in (torch.float32, torch.complex64) else 1e-9
    torch.testing.assert_close(actual, expected, rtol=rough, atol=rough, equal_nan=True)


def test_the_table_is_large():
    assert len(UNARY) > 75
    assert len(BINARY) > 45


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", UNARY)
def test_unary_operations_are_torchs(name, kind):
    assert_agree(name, UNARY[name], kind)


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
@pytest.mark.parametrize("name", BINARY)
def test_binary_operations_are_torchs(name, kinds):
    assert_agree(name, BINARY[name], *kinds)


ALL = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16]
ALL += [torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]


def test_promotion_is_torchs():
    """For all pairs of dtypes, of arrays, arrays without axes, and numbers."""
    arrays = [torch.ones(shape, dtype=dtype) for dtype in ALL for shape in ((2,), ())]
    found = []

    def compare(x):
        for a, b in itertools.product(arrays, [*arrays, True, 2, 0.5, 1j]):
            expected = torch.result_type(a, b)  # of complex32, the next that JAX has
            expected = torch.complex64 if expected is torch.complex32 else expected
            one, other = (tjt.from_torch(t) if isinstance(t, torch.Tensor) else t for t in (a, b))
            found.append((torch.mul(one, other).dtype, expected, a, b))
        return x

    jax.eval_shape(compare, 1.0)
    assert len(found) == 24 * 28
    assert [f for f in found if f[0] != f[1]] == []


def test_division_of_integers_by_zero_raises():
    x, zero = tjt.from_torch(torch.tensor([1, 2])), tjt.from_torch(torch.tensor([1, 0]))
    calls = [lambda y: x // y, lambda y: x % y, lambda y: torch.fmod(x, y)]
    calls.append(lambda y: torch.div(x, y, rounding_mode="trunc"))
    for call in calls:
        for y in (zero, 0):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                call(y)


def test_masks_times_infinities_are_nan():
    """XLA would choose 0 for what is masked; in one program, where it sees the mask."""
    mask, edges = torch.tensor([True, False] * 2), torch.tensor([*EDGES[:2], -1.0, 2.0])
    calls = [lambda m, x: m * x, lambda m, x: x * m, lambda m, x: m * float("inf")]
    calls += [lambda m, x: m / 0, lambda m, x: m / x, lambda m, x: torch.addcmul(x, m, x)]
    calls += [lambda m, x: m**True, lambda m, x: m * -2, lambda m, x: m * m]
    every = lambda m, x: [f(m, x) for f in calls]
    got = tjt.as_jax(every)[1]({}, jnp.array(mask.numpy()), jnp.array(edges.numpy()))
    for mine, theirs in zip(got, every(mask, edges), strict=True):
        torch.testing.assert_close(torch.tensor(np.array(mine)), theirs, equal_nan=True)


CALLS = {
    "pow": lambda x: (x**2, x**-1, x**0.5, 2**x, x**3.3, x**5, x**0),
    "round": lambda x: (x.round(decimals=1), (x * 100).round(decimals=-1)),
    "bounded": lambda x: (F.hardtanh(x), F.relu6(x), F.hardswish(x), F.threshold(x, 0.5, -2.0)),
    "clamp": lambda x: (x.clamp(-1, 1), x.clamp(min=0.5), x.clamp(torch.zeros_like(x), x.abs())),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_numbers_beside_tensors_give_torchs_gradients(call):
    assert_same_as_torch(call, torch.tensor(FLOATS, dtype=torch.float64))
