"""Torch's autograd on our tensors against plain torch: orders, transformations, modes, hooks."""

import pytest

torch = pytest.importorskip("torch")

import torch.autograd.forward_ad as fwad
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tanjax.bridges import torch as tjt

# Torch compiles its formulas for forward mode with a tool that it has deprecated.
# Its formula for `prod` makes ones of its own, which are lifted.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::tanjax.bridges.torch.LiftWarning"),
]

DATA = torch.linspace(-1.3, 1.7, 12, dtype=torch.float64).reshape(3, 4).sin() + 0.1
SQUARE = DATA[:, :3]
KERNEL = torch.tensor([[[0.3, -0.7]]], dtype=torch.float64)


def constant(like, values):
    """A constant of the same kind as an input."""
    return tjt.from_torch(values) if _is_ours(like) else values


def _is_ours(x):
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return isinstance(x, tjt.Tensor)


def spd(x):
    return x @ x.mT + constant(x, torch.eye(3, dtype=torch.float64))


def written(x):
    y = x.clone()
    y[1:].mul_(x[:2])
    y[:, 0] = x[:, 1] ** 2
    return y.exp_()


FUNCTIONS = {
    "sin": lambda x: x.sin(),
    "quotient": lambda x: (x * 2 - 1) / (x * x + 2),
    "power": lambda x: (x.abs() + 0.5) ** 1.7,
    "tanh": lambda x: x.tanh() * x.sigmoid(),
    "gelu": F.gelu,
    "softplus": lambda x: F.softplus(x, 2.0),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "logsumexp": lambda x: x.logsumexp(1),
    "var": lambda x: x.var(1),
    "norm": lambda x: x.norm(dim=0),
    "prod": lambda x: x.prod(1),
    "cumsum": lambda x: x.cumsum(1) * x,
    "amax": lambda x: x.amax(0) * x.sum(),
    "where": lambda x: torch.where(x > 0.2, x * x, x.exp()),
    "matmul": lambda x: x @ x.mT,
    "einsum": lambda x: torch.einsum("ij,ik->jk", x, x * x),
    "solve": lambda x: torch.linalg.solve(spd(x), x),
    "cholesky": lambda x: torch.linalg.cholesky(spd(x)),
    "slogdet": lambda x: torch.linalg.slogdet(spd(x))[1],
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "conv1d": lambda x: F.conv1d(x[:, None], constant(x, KERNEL), padding=1) ** 2,
    "index": lambda x: x[[0, 2, 0]].flip(0) * x,
    "reshape": lambda x: torch.cat([x.T.reshape(4, 3), x.view(4, 3)], 1).square(),
    "written": written,
}
every = pytest.mark.parametrize("name", FUNCTIONS)


def ours(requires_grad=False):
    return tjt.from_torch(DATA).requires_grad_(requires_grad)


def assert_same(a, b):
    torch.testing.assert_close(tjt.to_torch(a.detach()), b.detach(), rtol=1e-9, atol=1e-11)


def on_plain(f):
    """A function of ours between plain tensors: the only ones that `gradcheck` perturbs."""
    return lambda x: tjt.to_torch(f(tjt.from_torch(x)))


@every
def test_gradients_of_second_order_agree_with_differences(name):
    f, x = on_plain(FUNCTIONS[name]), DATA.clone().requires_grad_()
    assert torch.autograd.gradcheck(f, (x,), fast_mode=True)
    assert torch.autograd.gradgradcheck(f, (x,), fast_mode=True)


def scalar(f):
    return lambda x: (f(x) * 1.5).sin().sum()


def jvp_of(f):
    return lambda x: torch.func.jvp(f, (x,), (x.cos(),))[1]


def batched(f):
    return lambda x: torch.func.vmap(f)(torch.stack([x, 2 * x]))


@every
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: torch.func.grad(scalar(f)),
        batched,
        jvp_of,
        torch.func.jacrev,
        lambda f: torch.func.hessian(scalar(f)),
    ],
    ids=["grad", "vmap", "jvp", "jacrev", "hessian"],
)
def test_transformations_of_torch_func(name, transform):
    f = transform(FUNCTIONS[name])
    found = f(ours())
    assert isinstance(found, tjt.Tensor)
    assert_same(found, f(DATA))


@every
def test_forward_mode(name):
    def tangent(x, direction):
        with fwad.dual_level():
            return fwad.unpack_dual(FUNCTIONS[name](fwad.make_dual(x, direction))).tangent

    assert_same(tangent(ours(), ours()), tangent(DATA, DATA))


def model(w, x):
    return torch.log_softmax((x @ w).tanh() @ w.mT, -1)


def leaves():
    return DATA.mT.clone().requires_grad_(), DATA.clone()


def both():
    """Weights and data on plain torch, and on ours."""
    return leaves(), tuple(
        tjt.from_torch(t.detach()).requires_grad_(t.requires_grad) for t in leaves()
    )


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_give_the_same_gradient(reentrant):
    grads = []
    for w, x in both():
        x = x.clone().requires_grad_()
        checkpoint(model, w, x, use_reentrant=reentrant).square().sum().backward()
        grads += [w.grad, x.grad]
    assert_same(grads[2], grads[0])
    assert_same(grads[3], grads[1])


def test_checkpoints_remember_random_numbers():
    def dropped(x):
        return F.dropout(x.sin(), 0.5)

    x = ours(requires_grad=True)
    torch.manual_seed(3)
    (plainly,) = torch.autograd.grad(dropped(x).sum(), x)
    torch.manual_seed(3)
    (again,) = torch.autograd.grad(checkpoint(dropped, x, use_reentrant=False).sum(), x)
    assert_same(again, tjt.to_torch(plainly))


def test_hooks_on_leaves_and_on_results():
    def seen_by_hooks(w, x):
        seen = []
        w.register_hook(lambda g: 2 * g)
        w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.detach().clone()))
        y = x @ w
        y.register_hook(lambda g: seen.append(g.detach().clone()))
        y.retain_grad()
        (y * y).sum().backward()
        return [*seen, w.grad, y.grad]

    plain, ours = both()
    for expected, found in zip(seen_by_hooks(*plain), seen_by_hooks(*ours), strict=True):
        assert_same(found, expected)


def test_gradients_accumulate_and_graphs_are_kept_on_request():
    (w, x), (v, y) = both()
    for a, b in ((w, x), (v, y)):
        loss = model(a, b).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
    assert_same(v.grad, w.grad)
    v.grad.zero_()
    assert not tjt.to_torch(v.grad).any()


def test_a_graph_of_gradients_and_unused_inputs():
    found = []
    for w, x in both():
        unused = w.clone().detach().requires_grad_()
        loss = model(w, x).square().sum()
        (g,) = torch.autograd.grad(loss, w, create_graph=True)
        second, nothing = torch.autograd.grad(g.square().sum(), (w, unused), allow_unused=True)
        assert nothing is None
        found.append(second)
    assert_same(found[1], found[0])


def test_without_gradients():
    w, _ = both()[1]
    with torch.no_grad():
        y = w * 2
        w.mul_(1.0)  # a leaf may be written here
    assert not y.requires_grad
    assert (w * 2).requires_grad
    assert not (w * 2).detach().requires_grad
    with pytest.raises(RuntimeError, match="leaf"):
        w.mul_(2)
    with torch.enable_grad(), torch.set_grad_enabled(False):
        assert not (w * 2).requires_grad


def test_inference_mode():
    w, x = both()[1]
    with torch.inference_mode():
        y = x @ w
        z = y.mul_(2)[0]
        assert y.is_inference()
        assert not y.requires_grad
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        w[:3] * y
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        z.add_(1)


def test_a_tensor_changed_after_it_was_saved():
    for x in (DATA, ours()):
        x = x.clone().requires_grad_()
        y = x.exp()
        z = y * y
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_a_function_of_the_users():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * g * x * x

    x = DATA.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(on_plain(Cube.apply), (x,), fast_mode=True)


def test_anomalies_are_named():
    x = ours(requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        y = (x * 0).sqrt() * 0
        with (
            pytest.warns(UserWarning, match="Error detected in SqrtBackward0"),
            pytest.raises(RuntimeError, match="returned nan values"),
        ):
            y.sum().backward()


def test_functional_interface():
    for name in ("jacobian", "hessian"):
        f = FUNCTIONS["tanh"] if name == "jacobian" else scalar(FUNCTIONS["softmax"])
        transform = getattr(torch.autograd.functional, name)
        assert_same(transform(f, ours()), transform(f, DATA))
