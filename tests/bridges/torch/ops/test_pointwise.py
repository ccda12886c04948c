"""Every pointwise entry, at edges and in every kind of dtype, against torch on the same numbers.

All entries of one kind are one compiled program.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tanjax.bridges import torch as tjt
from tanjax.bridges.torch._dtypes import exact_dtype
from tanjax.bridges.torch._promotion import result_dtype
from tanjax.bridges.torch._registry import DENSE

aten = torch.ops.aten
FILES = tuple(f"ops.{name}" for name in ("_activations", "_binary", "_pointwise", "_special"))
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
PECULIAR = {  # where torch has no answer of its own at infinities: NaN in vectors, numbers beside
    "gelu": "finite",
    "igamma": "not nan",
    "igammac": "not nan",
    "rsub": "finite",
    "pow": "finite",
    "float_power": "finite",
}


def tensors_of(schema):
    """The names of the tensors among arguments that must be given; `None` if others must be."""
    given = [a for a in schema.arguments if not a.has_default_value()]
    return [a.name for a in given] if all(str(a.type) == "Tensor" for a in given) else None


def overloads(count):
    """Functional overloads with an entry in these files that take `count` tensors and give one."""
    for key in DENSE:
        if not str(key).startswith("aten.") or not DENSE[key].function.__module__.endswith(FILES):
            continue
        single = [key] if hasattr(key, "_schema") else [getattr(key, n) for n in key.overloads()]
        for op in single:
            schema = op._schema
            if torch.Tag.out in op.tags or schema.is_mutable or "backward" in str(op):
                continue
            if len(tensors_of(schema) or ()) == count and len(schema.returns) == 1:
                yield op


UNARY, BINARY = ({str(op): op for op in overloads(n)} for n in (1, 2))


def payload(t):
    return jnp.asarray(t.numpy())


@functools.cache
def ours(count, *kinds):
    """What each entry gives, and what it raises, from one compiled program."""
    raised = {}

    def run(*arrays):
        found = {}
        for name, op in (UNARY if count == 1 else BINARY).items():
            entry = DENSE.get(op) or DENSE[op.overloadpacket]
            try:
                found[name] = entry.function(*arrays)
            except Exception as error:
                raised[name] = error
        return found

    return jax.jit(run)(*(payload(t) for t in operands(count, *kinds))), raised


def operands(count, *kinds):
    """One tensor, or all pairs of two."""
    if count == 1:
        return [KINDS[kinds[0]]]
    return [KINDS[kinds[0]][:, None], KINDS[kinds[1]][None, :]]


def assert_agree(name, op, count, *kinds):
    found, raised = ours(count, *kinds)
    try:
        expected = op(*operands(count, *kinds)).resolve_conj()
    except RuntimeError:
        assert isinstance(raised.get(name), RuntimeError), raised.get(name, "nothing raised")
        return
    assert name not in raised, raised[name]
    actual = torch.from_numpy(np.array(found[name]))
    assert actual.dtype == expected.dtype
    told = PECULIAR.get(name.split(".")[1])
    if told:
        given = torch.broadcast_tensors(*operands(count, *kinds))
        keep = torch.stack([g == g if told == "not nan" else g.isfinite() for g in given]).all(0)
        actual, expected = actual[keep], expected[keep]
    rough = 2e-5 if expected.dtype in (torch.float32, torch.complex64) else 1e-9
    torch.testing.assert_close(actual, expected, rtol=rough, atol=rough, equal_nan=True)


def test_the_table_is_large():
    assert len(UNARY) > 75
    assert len(BINARY) > 45


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, kind):
    assert_agree(name, UNARY[name], 1, kind)


PAIRS = [
    ("float32", "float32"),
    ("float64", "float32"),
    ("int64", "int64"),
    ("int64", "float32"),
    ("uint8", "int64"),
    ("bool", "bool"),
    ("float32", "complex64"),
]


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, kinds):
    assert_agree(name, BINARY[name], 2, *kinds)


ALL = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16]
ALL += [torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]


def joined(a, b):
    """Torch's dtype, of complex numbers of 32 bits the next that JAX has."""
    dtype = torch.result_type(a, b)
    return torch.complex64 if dtype is torch.complex32 else dtype


def test_promotion_is_torchs():
    """For all pairs of dtypes, of arrays, arrays without axes, and numbers."""
    numbers = [True, 2, 0.5, 1j]
    for a, b in itertools.product(ALL, ALL):
        for shape_a, shape_b in itertools.product([(2,), ()], repeat=2):
            expected = joined(torch.zeros(shape_a, dtype=a), torch.zeros(shape_b, dtype=b))
            x, y = jnp.zeros(shape_a, exact_dtype(a)), jnp.zeros(shape_b, exact_dtype(b))
            assert result_dtype(x, y) == exact_dtype(expected), (a, shape_a, b, shape_b)
    for a, number, shape in itertools.product(ALL, numbers, [(2,), ()]):
        expected = joined(torch.zeros(shape, dtype=a), number)
        assert result_dtype(jnp.zeros(shape, exact_dtype(a)), number) == exact_dtype(expected)


def test_integers_are_not_divided_by_zero():
    x, zero = tjt.from_torch(torch.tensor([1, 2])), tjt.from_torch(torch.tensor([1, 0]))
    calls = [lambda y: x // y, lambda y: x % y, lambda y: torch.fmod(x, y)]
    calls.append(lambda y: torch.div(x, y, rounding_mode="trunc"))
    for call in calls:
        for y in (zero, 0):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                call(y)


CALLS = {
    "clamp": lambda x: (x.clamp(-1, 1), x.clamp(min=0.5), x.clamp(torch.zeros_like(x), x.abs())),
    "lerp": lambda x: (torch.lerp(x, x * x, 0.3), torch.lerp(x, x * x, x)),
    "addcmul": lambda x: (torch.addcmul(x, x, x, value=2), torch.addcdiv(x, x, x + 60, value=3)),
    "where": lambda x: torch.where(x > 0, x, 0.5),
    "threshold": lambda x: torch.nn.functional.threshold(x, 0.5, -2.0),
    "pow": lambda x: (x**2, x**-1, x**0.5, 2**x, x**3.3, x**5, x**0),
    "round": lambda x: (x.round(decimals=1), (x * 100).round(decimals=-1)),
    "alpha": lambda x: (torch.add(x, x, alpha=3), torch.sub(x, 1.5, alpha=2), 1 - x),
    "softmax": lambda x: (x.softmax(0), x.log_softmax(0), torch.nn.functional.softmin(x, 0)),
    "glu": lambda x: torch.nn.functional.glu(x[:14]),
    "prelu": lambda x: torch.nn.functional.prelu(x, torch.zeros_like(x)[:1] + 0.2),
    "polygamma": lambda x: (torch.polygamma(1, x + 0.2), torch.polygamma(2, x + 0.2)),
    "isin": lambda x: torch.isin(x, torch.ones_like(x)[:1]),
}


@pytest.mark.parametrize("name", CALLS)
def test_call(name):
    """Functions with numbers beside tensors, and their gradients, through tensors."""
    call = CALLS[name]
    finite = torch.tensor(FLOATS, dtype=torch.float64)
    answers = []
    for make in (lambda t: t, tjt.from_torch):
        x = make(finite.clone()).requires_grad_()
        out = call(x)
        out = out if isinstance(out, tuple) else (out,)
        smooth = [o for o in out if o.requires_grad]
        if smooth:
            torch.autograd.backward(smooth, [torch.ones_like(o) for o in smooth])
        answers.append([tjt.to_torch(o.detach()) for o in out] + ([x.grad] if smooth else []))
    expected, actual = answers
    for a, e in zip(actual, expected, strict=True):
        plain = tjt.to_torch(a) if isinstance(a, tjt.Tensor) else a
        torch.testing.assert_close(plain, e, equal_nan=True)
