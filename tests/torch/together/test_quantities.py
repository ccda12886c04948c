"""Quantities in torch: no unit is lost, gradients are in [loss]/[x], and nonsense is refused."""

import warnings

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import numpy as np
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import tanjax as tj
import tanjax.numpy as tnp
from tanjax.bridges import torch as tjt
from torch_comparison import TYPES, VECTOR, N, assert_agree, definite, normal

pytestmark = pytest.mark.torch

with warnings.catch_warnings():  # torch compiles scripts when forward mode is used first
    warnings.simplefilter("ignore")
    import torch._decomp.decompositions_for_jvp

LENGTH, OTHER = tj.quantity(normal(N), "m"), tj.quantity(normal(N), "m")
TIME = tj.quantity(jnp.abs(normal(N)) + 1, "s")
Q, T = tjt.from_jax(LENGTH), tjt.from_jax(TIME)
PLAIN = tjt.from_jax(VECTOR)
STIFFNESS = tj.quantity(3.0, "J/m2")
SPRINGS = tj.Quantity(tj.Diagonal(jnp.abs(normal(N)) + 1), "N/m")
DEFINITE = tj.Quantity(tj.Symmetric(definite(N), definite=True), "N/m")
ZERO = tj.quantity(0.0, "m")


def unit_of(x):
    return x.unit if isinstance(x, tj.Quantity) else tj.units.one


def number_of(x):
    return x.stored if isinstance(x, tj.Quantity) else x


ONE_KM, DECAY = tj.quantity(1.0, "km"), tj.quantity(2.0, "m")
OF = tjt.from_jax
PROGRAMS = {
    "energy": (
        lambda q: 0.5 * OF(STIFFNESS) * (q**2).sum(),
        lambda q: 0.5 * STIFFNESS * tj.linalg.sum(q**2),
    ),
    "decay": (lambda q: torch.exp(-q / OF(DECAY)).sum(), lambda q: tnp.sum(tnp.exp(-q / DECAY))),
    "kilometres": (lambda q: (q + OF(ONE_KM)).sum(), lambda q: tj.linalg.sum(q + ONE_KM)),
    "differences": (
        lambda q: (q[1:] - q[:-1]).pow(2).sum() * q[0],
        lambda q: tj.linalg.sum((q[1:] - q[:-1]) ** 2) * q[0],
    ),
    "branches": (
        lambda q: torch.where(q > OF(ZERO), q, -2 * q).sum() + q.abs().sum(),
        lambda q: tnp.where(q > ZERO, q, -2 * q).sum() + tj.linalg.sum(abs(q)),
    ),
    "speed": (lambda q, t: ((q / t) ** 2).mean(), lambda q, t: tnp.mean((q / t) ** 2), TIME),
    "loss": (F.mse_loss, lambda q, r: tnp.mean((q - r) ** 2), OTHER),
    "lists": (
        lambda q, r: torch.cat([q, r]).pow(2).sum() + torch.stack([q, r]).norm() * q[0],
        lambda q, r: (
            tj.linalg.sum(q**2)
            + tj.linalg.sum(r**2)
            + (tj.linalg.sum(q**2) + tj.linalg.sum(r**2)) ** 0.5 * q[0]
        ),
        OTHER,
    ),
    "springs": (
        lambda q, k: 0.5 * (q @ (k @ q)),
        lambda q, k: 0.5 * tj.linalg.pairing(q, k @ q),
        SPRINGS,
    ),
    "solve": (
        lambda q, k: torch.linalg.solve(k, q).sum(),
        lambda q, k: tj.linalg.sum(tj.solve(k, q)),
        DEFINITE,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_and_units(name):
    in_torch, in_jax, *others = PROGRAMS[name]
    arrays = [LENGTH, *others]
    tensors = [tjt.from_jax(a, requires_grad=True) for a in arrays]
    loss = in_torch(*tensors)
    loss.backward()
    value, expected = in_jax(*arrays), tj.grad(in_jax, tuple(range(len(arrays))))(*arrays)
    got = [t.grad.payload for t in tensors]
    for x, y in ((loss.detach().payload, value), *zip(got, expected, strict=True)):
        assert unit_of(x) == unit_of(y)
        assert_agree(number_of(x), number_of(y))


def test_a_structured_parameter_with_a_unit():
    """In [loss]/[x], and structural: what `jax.grad` gives for the numbers."""
    numbers = TYPES["Kronecker"]
    k = tjt.from_jax(tj.Quantity(numbers, "N/m"), requires_grad=True)
    (0.5 * (Q @ (k @ Q))).backward()
    expected = jax.grad(lambda k: LENGTH.stored @ (k @ LENGTH.stored) / 2)(numbers)
    assert_agree(k.grad.payload.stored, expected)
    assert k.grad.payload.unit == tj.unit("m2")


REFUSED = {
    "add": lambda: Q + T,
    "a number": lambda: Q + 1.0,
    "to a number": lambda: 1.0 + Q,
    "dense": lambda: Q - PLAIN,
    "from dense": lambda: PLAIN - Q,
    "numpy": lambda: np.ones(N) + Q,
    "less": lambda: Q < T,
    "equal": lambda: Q == T,
    "exp": lambda: torch.exp(Q),
    "log": lambda: Q.log(),
    "exponent": lambda: 2.0**Q,
    "softmax": lambda: Q.softmax(0),
    "cat": lambda: torch.cat([Q, T]),
    "stack": lambda: torch.stack([Q, PLAIN]),
    "in place": lambda: Q.clone().add_(T),
    "into dense": lambda: PLAIN.clone().add_(Q),
    "copied": lambda: Q.clone().copy_(PLAIN),
    "filled": lambda: Q.clone().fill_(1.0),
    "assigned": lambda: PLAIN.clone().__setitem__(0, Q[0]),
    "loss": lambda: F.mse_loss(Q, T),
    "lerp": lambda: torch.lerp(Q, T, 0.5),
    "truth": lambda: bool(Q[0]),
    "float": lambda: float(Q[0]),
    "item": lambda: Q[0].item(),
    "to numpy": lambda: Q.numpy(),
    "to torch": lambda: tjt.to_torch(Q),
    "maximum": lambda: torch.maximum(Q, T),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nonsense_is_refused(name):
    """By our error, and never by Python's "unsupported operand"."""
    with pytest.raises(tj.UnitError):
        REFUSED[name]()


def test_plain_tensors_join_as_pure_numbers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tjt.LiftWarning)
        for add in (lambda x: x + Q, lambda x: Q + x):
            with pytest.raises(tj.UnitError):
                add(torch.ones(N, dtype=torch.float64))
        assert_agree((torch.full((N,), 2.0, dtype=torch.float64) * Q).payload, 2 * LENGTH)


def test_gradients_that_do_not_fit():
    q = tjt.from_jax(LENGTH, requires_grad=True)
    (q * q).sum().backward()
    with pytest.raises(tj.UnitError):
        q.sum().backward()
    p = tjt.from_jax(LENGTH, requires_grad=True)
    ends = tjt.wrap(lambda p: (p[0], p[1]))(p)
    bars = [tjt.from_jax(tj.quantity(1.0, unit)) for unit in ("J", "s")]
    with pytest.raises(tj.UnitError, match="disagree"):
        torch.autograd.backward(ends, bars)


def test_steps_whose_units_do_not_fit_are_refused():
    speed = torch.nn.Parameter(tjt.from_jax(LENGTH))
    (speed**3).sum().backward()
    with pytest.raises(tj.UnitError):
        torch.optim.SGD([speed], 0.1).step()


def test_orders_and_transformations():
    q = tjt.from_jax(LENGTH, requires_grad=True)
    (g,) = torch.autograd.grad((q**3).sum(), q, create_graph=True)
    g.sum().backward()
    assert_agree(q.grad.payload.stored, 6 * LENGTH.stored)
    assert (unit_of(g.payload), unit_of(q.grad.payload)) == (tj.unit("m2"), tj.unit("m"))
    tangent = tjt.from_jax(tj.quantity(jnp.ones(N), "m/s"))
    moved = torch.func.jvp(lambda q: (q**2).sum(), (Q,), (tangent,))[1].payload
    assert unit_of(moved) == tj.unit("m2/s")
    assert_agree(moved.stored, 2 * LENGTH.stored.sum())
    hessian = torch.func.hessian(lambda q: (q**3).sum())(Q).payload
    assert unit_of(hessian) == tj.unit("m")
    assert_agree(hessian.stored, jnp.diag(6 * LENGTH.stored))
    squares = torch.func.vmap(lambda q: q * q)(Q).payload
    assert unit_of(squares) == tj.unit("m2")
    p = tjt.from_jax(LENGTH, requires_grad=True)
    (p * p).backward(gradient=tjt.from_jax(tj.quantity(jnp.ones(N), "1/m2")))
    assert unit_of(p.grad.payload) == tj.unit("1/m")


@pytest.mark.parametrize("payload", [LENGTH, SPRINGS])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_compute_again_what_was_computed(payload, reentrant):
    """In `backward` and in `torch.autograd.grad`, torch calls functions as it does outside."""
    program = lambda x: ((x @ (2 * Q)) * (x @ Q)).sum()
    x, y = (tjt.from_jax(payload, requires_grad=True) for _ in range(2))
    program(y).backward()
    checkpointed = lambda: checkpoint(program, x, use_reentrant=reentrant)
    checkpointed().backward()
    found = [x.grad] if reentrant else [x.grad, *torch.autograd.grad(checkpointed(), x)]
    for g in found:
        assert unit_of(g.payload) == unit_of(y.grad.payload)
        assert_agree(number_of(g.payload), number_of(y.grad.payload))


def test_gradients_of_several_outputs_are_asked_for_as_in_torch():
    a, b = (tjt.from_jax(LENGTH, requires_grad=True) for _ in range(2))
    ends = (a * b).sum(), (a * a).sum()
    (found,) = torch.autograd.grad(ends, [a])
    assert unit_of(found.payload) == tj.unit("m")
    assert_agree(found.payload.stored, 3 * LENGTH.stored)
    with pytest.raises(RuntimeError, match="implicitly created only for scalar"):
        torch.autograd.grad(a * b, a)
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad((a * a).sum(), [a, b])
    unused = torch.autograd.grad((a * a).sum(), [a, b], allow_unused=True)[1]
    assert unused is None
    for ask in (lambda: torch.autograd.grad((a * Q).sum(), [a, Q]), (Q * Q).sum().backward):
        with pytest.raises(RuntimeError, match="does not require grad"):
            ask()
    (a * b).sum().backward(inputs=[a])
    assert b.grad is None
    assert_agree(a.grad.payload.stored, LENGTH.stored)


METRES, KM = jnp.array([3.0, 1.0, 2.0, 1.0]), OF(tj.quantity(2.0, "km"))


def set_one(x):
    x[0] = KM


def set_through_views(x):
    x.view(2, 2).t()[1, 0] = KM
    x[1:][1:].squeeze_()[0] = KM


def add_slice(x):
    x[1:] += KM


def set_masked(x):
    x[x > x[1]] = KM


def set_part(x):
    x.unbind()[2].copy_(KM)


WRITES = {  # metres afterwards
    set_one: [2000, 1, 2, 1],
    set_through_views: [3, 2000, 2000, 1],
    add_slice: [3, 2001, 2002, 2001],
    set_masked: [2000, 1, 2000, 1],
    set_part: [3, 1, 2000, 1],
}


@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__)
def test_writes_into_views_are_seen_by_all_and_have_the_unit(write):
    x = OF(tj.quantity(METRES, "m"))
    view, version = x[:], x._version
    write(x)
    for t in (x, view):
        assert unit_of(t.payload) == tj.unit("m")
        assert_agree(t.payload.stored, jnp.array(WRITES[write], float))
    assert x._version == view._version > version
    with pytest.raises(tj.UnitError):
        x[0] = T[0]


def test_a_write_into_what_a_gradient_needs_raises():
    x, weight = OF(tj.quantity(METRES, "m")), tjt.from_jax(METRES, requires_grad=True)
    part = x[1:]
    loss = (weight[1:] * part).sum()
    x[2] = KM
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


OF_NUMBERS = {  # functions that give for metres what they give for numbers, in metres or as numbers
    "mask": lambda x: x[x > x[1]],
    "masked_select": lambda x: x.masked_select(x > x[1]),
    "quantile": lambda x: x.quantile(0.3),
    "norms": lambda x: x.view(2, 2).norm(dim=1),
    "unique": lambda x: x.detach().unique(return_counts=True)[0],
    "where": lambda x: torch.where(x > x[1], x, 0),
    "normalize": lambda x: F.normalize(x, dim=0),
    "cosine": lambda x: F.cosine_similarity(x, 2 * x, 0),
    "nonzero": lambda x: x.nonzero(),
}


@pytest.mark.filterwarnings("ignore:a plain torch tensor")  # torch makes one of a level
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_functions_that_need_values_or_have_numbers_in_them(name):
    f = OF_NUMBERS[name]
    number = tjt.from_jax(METRES, requires_grad=True)
    length = tjt.from_jax(tj.quantity(METRES, "m"), requires_grad=True)
    expected, got = f(number), f(length)
    assert_agree(number_of(got.payload), expected.payload)
    whole = ("normalize", "cosine", "nonzero")
    assert unit_of(got.payload) == (tj.units.one if name in whole else tj.unit("m"))
    if expected.requires_grad:
        for out in (expected, got):
            (out * out.detach()).sum().backward()
        assert_agree(number_of(length.grad.payload), number.grad.payload)


def test_small_and_zero_lengths_are_normalised():
    """The guard of a norm is no number of metres."""
    small = tj.quantity(jnp.array([[3e-20, 4e-20], [0.0, 0.0]]), "m")
    assert_agree(F.normalize(OF(small)).payload.stored, jnp.array([[0.6, 0.8], [0.0, 0.0]]))
    with pytest.raises(tj.UnitError, match="eps"):
        F.normalize(OF(small), eps=0.1)
    floor = OF(tj.quantity(1e-19, "m"))
    assert_agree(F.normalize(OF(small[:1]), eps=floor).payload.stored, jnp.array([[0.3, 0.4]]))


def test_closeness_has_a_tolerance_with_a_unit():
    near = Q + OF(tj.quantity(1e-9, "m"))
    assert torch.allclose(Q, near)
    assert not torch.allclose(Q, near, rtol=0)
    assert torch.allclose(Q, near, rtol=0, atol=OF(tj.quantity(1e-3, "mm")))
    assert torch.equal(OF(tj.quantity(1.0, "km")), OF(tj.quantity(1000.0, "m")))
    for f in (lambda: torch.equal(Q, T), lambda: torch.allclose(Q, near, atol=1e-3)):
        with pytest.raises(tj.UnitError):
            f()


def test_random_numbers_for_quantities():
    """A mask of dropout is a number, with a gradient; numbers like a quantity have no unit."""
    x = tjt.from_jax(tj.quantity(jnp.ones(100), "m"), requires_grad=True)
    torch.manual_seed(0)
    dropped = F.dropout(x, 0.5)
    assert unit_of(dropped.payload) == tj.unit("m")
    assert set(np.unique(dropped.payload.stored)) == {0.0, 2.0}
    dropped.sum().backward()
    assert_agree(x.grad.payload, dropped.payload.stored)
    assert isinstance(torch.randn_like(x).payload, jax.Array)
    first, second = (torch.rand_like(x).payload for _ in range(2))
    assert not np.allclose(first, second)


def test_other_prefixes_are_added_in_place_and_ratios_are_numbers():
    far = Q.clone().add_(OF(ONE_KM)).payload
    assert unit_of(far) == tj.unit("m")
    assert_agree(far.stored, LENGTH.stored + 1000)
    assert float(Q[0] / Q[0]) == 1.0
