"""Optimisers of torch on our tensors take plain torch's steps, and optax takes the same."""

import copy
import io
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn, optim
from torch.optim import swa_utils

import tanjax as tj
from tanjax.bridges import torch as tjt
from torch_comparison import MATRIX, VECTOR, assert_agree, compilations, definite

pytestmark = pytest.mark.torch

RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.normal(size=(16, 4)))
FACTOR = jnp.array([[1.0, 0.5], [-0.5, 1.0]])
Y = torch.sin(X).sum(1, keepdim=True)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()


def pair():
    """The same model and data, plain and ours."""
    plain = model()
    return (plain, X, Y), (tjt.convert(copy.deepcopy(plain)), tjt.from_torch(X), tjt.from_torch(Y))


def train(world, optimiser, steps=6, after=lambda step: None):
    """The losses of some steps."""
    net, x, y = world
    losses = []

    def closure():
        optimiser.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        return loss

    for step in range(steps):
        losses.append(optimiser.step(closure).item())
        after(step)
    return losses


def numbers(net):
    return [p.detach().numpy() for p in net.parameters()]


def assert_same(make, steps=6, after=lambda optimiser: lambda step: None):
    """The losses and the parameters are those of plain torch; and something was learnt."""
    plain, ours = pair()
    found = []
    for world in (plain, ours):
        optimiser = make(world[0])
        found.append(train(world, optimiser, steps, after(optimiser)))
    np.testing.assert_allclose(found[1], found[0], 1e-9)
    for expected, got in zip(numbers(plain[0]), numbers(ours[0]), strict=True):
        np.testing.assert_allclose(got, expected, 1e-9, 1e-12)
    assert found[1][-1] < found[1][0]


KINDS = {
    "sgd": lambda p, **o: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01, **o),
    "adam": lambda p, **o: optim.Adam(p, 0.02, amsgrad=True, weight_decay=0.01, **o),
    "adamw": lambda p, **o: optim.AdamW(p, 0.02, **o),
    "rmsprop": lambda p, **o: optim.RMSprop(p, 0.01, momentum=0.5, centered=True, **o),
    "adagrad": lambda p, **o: optim.Adagrad(p, 0.1, lr_decay=0.1, **o),
    "adadelta": lambda p, **o: optim.Adadelta(p, 1.0, **o),
    "adamax": lambda p, **o: optim.Adamax(p, 0.02, **o),
    "nadam": lambda p, **o: optim.NAdam(p, 0.02, decoupled_weight_decay=True, **o),
    "radam": lambda p, **o: optim.RAdam(p, 0.02, **o),
    "asgd": lambda p, **o: optim.ASGD(p, 0.1, **o),
    "rprop": lambda p, **o: optim.Rprop(p, 0.01, **o),
}


WAYS = [(name, {"foreach": way}) for name in KINDS for way in (False, True)]
WAYS += [(name, {"fused": True}) for name in ("sgd", "adam", "adamw", "adagrad")]


@pytest.mark.parametrize(("name", "options"), WAYS, ids=str)
def test_steps_are_torchs(name, options):
    assert_same(lambda net: KINDS[name](net.parameters(), **options))


def assert_same_in_both(run, *lists):
    """What a function leaves in lists of tensors, in plain ones and in ours."""
    found = []
    for world in (torch.clone, tjt.from_torch):
        given = [[world(t) for t in row] for row in lists]
        run(*given)
        found.append([t.numpy() for row in given for t in row])
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, 1e-9)


@pytest.mark.parametrize("infinite", [0.0, 1.0])
def test_fused_steps_take_the_scale_of_gradients(infinite):
    """Of scaled gradients, upwards, and none at all where a gradient was infinite."""
    decay = {"lr": 0.1, "weight_decay": 0.1, "maximize": True}
    adam = {**decay, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": False}
    sgd = {**decay, "momentum": 0.9, "dampening": 0.5, "nesterov": False, "is_first_step": False}

    def steps(p, g, m, v, buffers, count, scaler):
        scaled = {"grad_scale": scaler[0], "found_inf": scaler[1]}
        torch._fused_adam_(p, g, m, v, [], count, **adam, **scaled)
        torch._fused_sgd_(p, g, buffers, **sgd, **scaled)

    numbers = [[X[i], X[i + 5]] for i in range(5)]
    numbers[3] = [t.square() for t in numbers[3]]
    scaler = torch.tensor(8.0), torch.tensor(infinite)
    assert_same_in_both(steps, *numbers, [torch.tensor(3.0)] * 2, scaler)


def test_foreach_takes_a_factor_for_each_tensor():
    """As in Adam, where one parameter has taken more steps than another."""

    def steps(a, b, c):
        torch._foreach_addcdiv_(a, b, c, [0.5, 2.0])
        torch._foreach_addcmul_(a, b, c, [0.5, 2.0])

    assert_same_in_both(steps, X[:2], X[2:4], X[4:6])


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_steps_of_lbfgs_are_torchs(search):
    assert_same(lambda net: optim.LBFGS(net.parameters(), 0.5, 5, line_search_fn=search), steps=3)


def groups(net):
    return optim.SGD(
        [{"params": net[0].parameters(), "lr": 0.05}, {"params": net[2].parameters()}], 0.2
    )


def one_cycle(optimiser):
    scheduler = optim.lr_scheduler.OneCycleLR(optimiser, 0.2, total_steps=8)
    return lambda step: scheduler.step()


def plateau(optimiser):
    """A schedule that reads a loss of ours."""
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimiser, patience=0, threshold=0.5)
    return lambda step: scheduler.step(tjt.from_jax(jnp.asarray(1.0)))


@pytest.mark.parametrize("after", [one_cycle, plateau])
def test_schedules_of_two_groups_are_torchs(after):
    assert_same(groups, after=after)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("dense", {"foreach": False}),
        ("dense", {"foreach": True}),
        ("dense", {"fused": True}),
        ("structured", {}),
    ],
)
def test_a_step_compiles_nothing_anew(kind, options):
    """Neither the count of steps nor a rate that a schedule moves is part of a program."""
    _, ours = pair()
    if kind == "structured":
        layer = tjt.nn.StructuredLinear(tj.Kronecker(FACTOR, FACTOR))
        ours = (nn.Sequential(layer, ours[0]), *ours[1:])
    optimiser = optim.AdamW(ours[0].parameters(), 0.02, **options)
    scheduler = optim.lr_scheduler.ExponentialLR(optimiser, 0.9)
    train(ours, optimiser, 2, lambda step: scheduler.step())
    with compilations() as found:
        jax.jit(lambda x: x + 1)(1)  # what counts, counts
        assert len(found) == 1
        train(ours, optimiser, 4, lambda step: scheduler.step())
    assert len(found) == 1


def from_a_file(net, optimiser):
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimiser": optimiser.state_dict()}, file)
    file.seek(0)
    state, other = torch.load(file, weights_only=True), tjt.convert(model())
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    new = KINDS["adam"](other.parameters())
    other.load_state_dict(state["net"])
    new.load_state_dict(state["optimiser"])
    return other, new


@pytest.mark.parametrize("revived", [from_a_file, lambda *both: copy.deepcopy(both)])
def test_training_resumed_continues_the_losses(revived):
    _, (net, x, y) = pair()
    optimiser = KINDS["adam"](net.parameters())
    train((net, x, y), optimiser, 3)
    other, new = revived(net, optimiser)
    before = numbers(other)
    rest = train((net, x, y), optimiser, 3)
    for old, now in zip(before, numbers(other), strict=True):
        np.testing.assert_array_equal(old, now)
    for p in other.parameters():
        assert isinstance(p, tjt.Tensor)
        assert isinstance(p, nn.Parameter)
    assert train((other, x, y), new, 3) == rest


def test_scaled_gradients_are_refused():
    """The scaler for half precision keeps plain tensors, which it would have ours write into."""
    _, (net, x, y) = pair()
    optimiser, scaler = optim.SGD(net.parameters(), 0.1), torch.amp.GradScaler("cpu", 8.0)
    scaler.scale((net(x) - y).square().mean()).backward()
    with pytest.raises(tjt.TensorError, match="_amp_foreach_non_finite_check_and_unscale"):
        scaler.step(optimiser)


@pytest.mark.parametrize("shape", [(), (64, 64)])
def test_a_plain_tensor_is_read_when_it_is_used(shape):
    """JAX computes later, and torch may write into what was lifted at once: optimisers do."""
    x = tjt.from_torch(torch.ones(64, 64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tjt.LiftWarning)
        for n in range(200):
            t = torch.full(shape, float(n))
            y = (x @ x) * t
            t.fill_(-1.0)
            assert y[0, 0].item() == 64 * n


AVERAGES = {
    "ema": swa_utils.get_ema_multi_avg_fn(0.75),
    "swa": swa_utils.get_swa_multi_avg_fn(),
    "polyak": None,
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_of_models_are_those_of_the_fields(name):
    """A copy of a parameter is a point, too, also where it is written through `detach()`."""
    starts = tj.Kronecker(definite(2), definite(2)), tj.LowRankUpdate(tj.Diagonal(VECTOR), MATRIX)
    for start in starts:
        layer = tjt.nn.StructuredLinear(start, jnp.zeros(4))
        averaged = swa_utils.AveragedModel(layer, multi_avg_fn=AVERAGES[name])
        expected = start
        for step in range(3):
            layer.weight.data.mul_(0.5)
            now = jax.tree.map(lambda x, step=step: 0.5 ** (step + 1) * x, start)
            rate = {"ema": 0.25, "swa": float(np.float32(1 / (step + 1))), "polyak": 0.1}[name]
            if name == "polyak":
                averaged.module.weight.detach().mul_(0.9).add_(layer.weight.detach(), alpha=0.1)
            else:
                averaged.update_parameters(layer)
                rate = 1 if step == 0 else rate
            mixed = lambda a, b, rate=rate: (1 - rate) * a + rate * b
            expected = jax.tree.map(mixed, expected, now)
        assert_agree(averaged.module.weight.detach().payload, expected)


def test_an_average_of_matrices_of_a_product_is_refused():
    layer = tjt.nn.StructuredLinear(tj.Kronecker(definite(2), definite(2)))
    averaged = swa_utils.AveragedModel(layer)
    averaged.update_parameters(layer)
    with pytest.raises(tj.errors.CotangentError, match="multi_avg_fn"):
        averaged.update_parameters(layer)
