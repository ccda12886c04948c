"""Modules and exported programs as pure functions: values, gradients, state, randomness, leaks."""

import contextlib
import copy
import io
import threading

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import tanjax as tj
from tanjax.bridges import torch as tjt
from torch_modules import modules

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 12).reshape(4, 3)
MODULES = modules()


def array(t):
    return jnp.asarray(t.detach().numpy()) if isinstance(t, torch.Tensor) else t


def assert_same(ours, theirs, tolerance=1e-5):
    theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else theirs
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=tolerance, atol=tolerance)


def weighed(leaves, xp):
    """A number that sees every entry of a result."""
    parts = [x.reshape(-1) for x in leaves]
    weights = [np.cos(np.arange(p.shape[0])).astype(np.float32) for p in parts]
    return sum((p * xp(w)).sum() for p, w in zip(parts, weights, strict=True))


class Made(nn.Module):
    """A linear layer and a function of the module."""

    def __init__(self, run, **held):
        super().__init__()
        self.layer, self.run = nn.Linear(3, 3), run
        for name, value in held.items():
            setattr(self, name, value)

    def forward(self, *args, **kwargs):
        return self.run(self, *args, **kwargs)


@pytest.mark.filterwarnings("ignore:The tensor attributes self.cells")  # torch's, of an LSTM
@pytest.mark.parametrize("way", ["module", "export"])
@pytest.mark.parametrize("name", MODULES)
def test_values_gradients_and_buffers_are_torchs(name, way):
    module, args, kwargs = copy.deepcopy(MODULES[name])
    theirs = copy.deepcopy(module)
    out = theirs(*args, **kwargs)
    weighed(pytree.tree_leaves(out), torch.as_tensor).backward()
    program = module if way == "module" else torch.export.export(module, args, kwargs)
    params, f = tjt.as_jax(program)
    assert {*params} == {n for n, _ in module.named_parameters()}
    assert {*f.state} == {n for n, _ in module.named_buffers()}

    def loss(params, *args):
        result, new = f.with_state({**params, **f.state}, *args, **kwargs)
        return weighed(jax.tree.leaves(result), jnp.asarray), (result, new)

    run = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (_, (result, new)), gradients = run(params, *pytree.tree_map(array, args))
    jax.tree.map(assert_same, result, pytree.tree_map(array, out))
    for n, p in theirs.named_parameters():
        assert_same(gradients[n], torch.zeros_like(p) if p.grad is None else p.grad)
    for n, b in theirs.named_buffers():
        assert_same(new[n], b)
    for n, p in module.named_parameters():  # nothing of the trace is left in it
        assert type(p) is nn.Parameter
        assert torch.equal(p, MODULES[name][0].get_parameter(n))


def test_buffers_that_training_writes_are_not_lost():
    norm = nn.BatchNorm1d(3)
    params, f = tjt.as_jax(norm)
    with pytest.raises(tj.errors.MutationError, match=r"'running_mean'[\s\S]*with_state"):
        jax.jit(f)(params, array(X))
    _, params = jax.jit(f.with_state)(params, array(X))
    theirs = copy.deepcopy(norm)
    theirs(X)
    assert_same(params["running_var"], theirs.running_var)
    held = {n: array(p) for n, p in norm.named_parameters()}
    assert {*held} < {*params}
    with pytest.raises(tj.errors.MutationError, match="'running_mean'"):
        tjt.functional_call(norm, held, array(X))
    assert norm.num_batches_tracked == 0
    assert params["num_batches_tracked"] == 1
    norm.eval()
    assert_same(f(params, array(X)), theirs.eval()(X))


class Frozen(nn.Module):
    """A frozen layer, buffers, one of them of integers, and layers to be trained."""

    def __init__(self):
        super().__init__()
        self.frozen, self.norm = nn.Linear(3, 4).requires_grad_(False), nn.BatchNorm1d(4)
        self.register_buffer("table", torch.linspace(0, 1, 4))
        self.register_buffer("order", torch.tensor([3, 1, 0, 2]))
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.norm(self.frozen(x) * self.table)[:, self.order])


@pytest.mark.parametrize("way", ["module", "converted", "export", "graph"])
def test_an_optimiser_of_jax_moves_what_one_of_torch_moves(way):
    """Weight decay, too, leaves frozen parameters and buffers alone; statistics are given back."""
    module = Frozen()
    program, theirs = copy.deepcopy(module), copy.deepcopy(module)
    if way == "converted":
        program = tjt.convert(program)
    elif way == "export":
        program = torch.export.export(program, (X,))
    elif way == "graph":
        program = torch.fx.symbolic_trace(program)
    params, f = tjt.as_jax(program)
    trained = {n for n, p in module.named_parameters() if p.requires_grad}
    assert {*params} == trained
    assert {*f.state} == {*module.state_dict()} - trained
    optimiser, state = optax.chain(optax.add_decayed_weights(0.5), optax.sgd(0.05)), f.state
    steps = optimiser.init(params)

    @jax.jit
    def step(params, state, steps, x):
        def loss(params):
            out, new = f.with_state({**params, **state}, x)
            return (out**2).sum(), {n: new[n] for n in state}

        (_, state), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        updates, steps = optimiser.update(gradients, steps, params)
        return optax.apply_updates(params, updates), state, steps

    moved = [p for p in theirs.parameters() if p.requires_grad]
    descent = torch.optim.SGD(moved, 0.05, weight_decay=0.5)
    for _ in range(3):
        params, state, steps = step(params, state, steps, array(X))
        descent.zero_grad()
        theirs(X).square().sum().backward()
        descent.step()
    for name, value in theirs.state_dict().items():
        assert_same({**params, **state}[name], value, 1e-4)
    theirs.eval()
    if way in ("module", "converted"):
        program.eval()
        given = {**params, **state}
        assert_same(f(given, array(X)), theirs(X), 1e-4)
        fixed = f({**params, "norm.running_mean": given["norm.running_mean"] + 1}, array(X))
        assert not np.allclose(fixed, f(params, array(X)))


def test_a_buffer_assigned_anew_is_state_too():
    def run(self, x):
        self.total = self.total + x.sum()
        return self.total

    module = Made(run)
    module.register_buffer("total", torch.ones(()))
    params, f = tjt.as_jax(module)
    assert_same(f.with_state(params, array(X))[1]["total"], 1 + X.sum())
    assert module.total == 1


def test_random_numbers_need_a_key_under_a_trace():
    x = jnp.ones(200, jnp.float32)
    for module in (Made(lambda self, x: x + torch.rand(200)), nn.Dropout(0.5)):
        params, f = tjt.as_jax(module)
        with pytest.raises(tj.NoRuleError, match="random"):
            jax.jit(f)(params, x)
    run = jax.jit(lambda x, key: f(params, x, key=key))
    one, two = run(x, jax.random.key(0)), run(x, jax.random.key(1))
    assert not np.array_equal(one, two)
    assert np.array_equal(one, f(params, x, key=jax.random.key(0)))
    with tjt.random_key(jax.random.key(0)):
        assert_same(f(params, x), one)
    assert set(np.unique(one)) == {0.0, 2.0}
    attention = nn.MultiheadAttention(4, 2)  # `key` is an argument of its own; its dropout is 0
    params, f = tjt.as_jax(attention)
    q = torch.ones(2, 1, 4)
    ours = jax.jit(lambda params, x: f(params, query=x, key=x, value=x))(params, array(q))
    assert_same(ours[0], attention(q, q, q)[0])


@pytest.mark.parametrize("kind", ["attribute", "list", "buffer"])
def test_a_tensor_kept_in_the_module_raises_and_is_taken_out(kind):
    def keep(self, x):
        y = self.layer(x)
        if kind == "attribute":
            self.seen = y
        elif kind == "list":
            self.log.append(y)
        else:
            self.register_buffer("seen", y)
        return y

    module = Made(keep, log=[])
    params, f = tjt.as_jax(module)
    with pytest.raises(tj.errors.MutationError, match="keeps tensors of this call"):
        jax.jit(f)(params, array(X))
    assert not hasattr(module, "seen")
    assert module.log == []


def test_an_exception_leaves_the_module_as_it_was():
    def fail(self, x):
        self.seen = x
        self.layer.weight.mul_(2)
        raise KeyError("inside")

    module = Made(fail)
    weight, numbers = module.layer.weight, module.layer.weight.clone()
    params, f = tjt.as_jax(module)
    with pytest.raises(KeyError):
        jax.jit(f)(params, array(X))
    assert module.layer.weight is weight
    assert torch.equal(weight, numbers)
    assert not hasattr(module, "seen")


def test_writes_outside_of_the_state_raise():
    for run in (lambda self, x: self.layer(x.add_(1)), lambda self, x: x * self.held.add_(1)):
        module = Made(run, held=torch.zeros(3))
        params, f = tjt.as_jax(module)
        with pytest.raises((tj.errors.MutationError, RuntimeError), match="writes into"):
            f(params, array(X))
        assert not module.held.any()


@pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")  # torch's, of its own trees
def test_an_exported_program_that_writes_into_its_argument_raises():
    """Without operations in place: what would be written is one of its results."""
    program = torch.export.export(Made(lambda self, x: x.add_(1)), (X,)).run_decompositions()
    params, f = tjt.as_jax(program)
    with pytest.raises(tj.errors.MutationError, match="writes into its argument"):
        f(params, array(X))


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@pytest.mark.parametrize("function", [Reversed, Rounded])
def test_a_backward_of_torch_is_not_passed_over(function):
    """JAX would see the forward alone: its derivative is another one (of `round`, zero)."""
    params, f = tjt.as_jax(Made(lambda self, x: function.apply(self.layer(x)).sum()))
    jax.jit(jax.vmap(f, (None, 0)))(params, array(X))
    with pytest.raises(tj.NoRuleError, match=f"{function.__name__} has a backward of its own"):
        jax.jit(jax.grad(f))(params, array(X))


def doubled(*gradients):
    return tuple(2 * g for g in gradients[-1]) if isinstance(gradients[-1], tuple) else None


HOOKS = {
    "weight": lambda m: m[0].weight.register_hook(lambda g: 2 * g),
    "after accumulation": lambda m: m[0].weight.register_post_accumulate_grad_hook(print),
    "layer": lambda m: m[0].register_full_backward_hook(doubled),
    "before a layer": lambda m: m[0].register_full_backward_pre_hook(doubled),
    "whole": lambda m: m.register_full_backward_hook(doubled),
    "every module": lambda m: nn.modules.module.register_module_full_backward_hook(doubled),
}


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("name", HOOKS)
def test_a_backward_hook_is_not_passed_over(name, converted):
    """The value is right; so is a gradient that no hook is asked about."""
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    if converted:
        tjt.convert(module)
    params, f = tjt.as_jax(module)
    expected = f(params, array(X))
    handle = HOOKS[name](module)
    try:
        loss = lambda params, x: f(params, x).sum()
        assert_same(jax.jit(f)(params, array(X)), expected)
        with pytest.raises(tj.NoRuleError, match="has a backward of its own"):
            jax.jit(jax.grad(loss))(params, array(X))
        with pytest.raises(tj.NoRuleError, match="has a backward of its own"):
            jax.jvp(lambda p: loss(p, array(X)), (params,), (params,))
        if name not in ("whole", "every module"):
            last = lambda bias: loss({**params, "2.bias": bias}, array(X))
            assert_same(jax.grad(last)(params["2.bias"]), [4.0])
    finally:
        handle.remove()
    assert not module[0]._forward_hooks
    jax.grad(loss)(params, array(X))


def test_hooks_of_ours_on_structured_parameters_are_none():
    layer = tjt.nn.StructuredLinear(tj.Diagonal(jnp.ones(3, jnp.float32)))
    params, f = tjt.as_jax(layer)
    assert_same(jax.grad(lambda p: f(p, array(X)).sum())(params)["weight"].diag, X.sum(0))
    layer.weight.register_hook(lambda g: g)
    with pytest.raises(tj.NoRuleError, match="weight has a backward of its own"):
        jax.grad(lambda p: f(p, array(X)).sum())(params)


def written_without_gradient(self, x):
    y, z = self.layer(x), self.layer(x)
    with torch.no_grad():
        y.mul_(2)  # torch differentiates what follows as if it were written from outside
        first = z[0]
    y.data.add_(1)
    alias = y.detach()
    alias.mul_(self.layer.bias)
    return (y * y).sum() + (first * x).sum() + alias.sum()


def forces(self, x):
    x = x.detach().requires_grad_()
    energy = torch.tanh(self.layer(x)).pow(2).sum()
    (force,) = torch.autograd.grad(energy, x, create_graph=True)
    return (force**2).sum()


def by_functorch(self, x):
    each = torch.func.grad(lambda row: torch.tanh(self.layer(row)).sum())
    return torch.func.vmap(each)(x).pow(2).sum()


@pytest.mark.parametrize("run", [written_without_gradient, forces, by_functorch])
def test_gradients_within_and_around_a_module(run):
    module = Made(run)
    params, f = tjt.as_jax(module)
    value, gradients = jax.jit(jax.value_and_grad(f))(params, array(X))
    out = module(X)
    out.backward()
    assert_same(value, out)
    for name, p in module.named_parameters():
        assert_same(gradients[name], torch.zeros_like(p) if p.grad is None else p.grad)


def largest(self, x):
    return F.max_pool1d(torch.sin(x[None]), 2)[0]


def scaled_in_secret(self, x):
    y = torch.sin(x)
    with torch.no_grad():
        y.mul_(y)
    return y**2


@pytest.mark.parametrize("run", [largest, scaled_in_secret])
def test_second_derivatives_are_torchs_in_loops_too(run):
    """A rule must call its function again: in loops, JAX before 0.12 keeps the value alone."""
    module = Made(run)
    params, f = tjt.as_jax(module)
    twice = lambda x: (module(x) ** 2).sum() + (module(2 * x) ** 2).sum()
    theirs = torch.autograd.functional.hessian(twice, X)
    each = lambda x: jnp.sum(f(params, x) ** 2)
    assert_same(jax.hessian(lambda x: each(x) + each(2 * x))(array(X)), theirs)
    step = lambda total, x: (total + each(x), None)
    loop = lambda x: jax.lax.scan(step, jnp.float32(0), jnp.stack([x, 2 * x]))[0]
    assert_same(jax.hessian(loop)(array(X)), theirs)
    assert np.any(array(theirs))


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda m: (torch.linalg.inv(m) @ X[:, 0] + torch.logsumexp(X[:, 0], 0)).sum(), -X[:, 0]),
        (lambda m: torch.cumsum(m, 0).sum(), np.arange(4.0, 0.0, -1.0)),
    ],
    ids=["operation", "dense function"],
)
def test_a_cut_gradient_is_not_cut_in_later_calls(run, expected):
    """Compiled operations are kept: they must not remember the gradient mode of a program."""

    def cut_or_not(self):
        with torch.set_grad_enabled(not self.cut):
            return run(self.structured)

    module = Made(cut_or_not, cut=True)
    module.structured = nn.Parameter(tjt.from_jax(tj.Diagonal(jnp.ones(4, jnp.float32))))
    params, f = tjt.as_jax(module)
    with tj.densify("allow"):
        assert not np.any(jax.grad(f)(params)["structured"].diag)
        module.cut = False
        assert_same(jax.grad(f)(params)["structured"].diag, expected)


def test_transformations_of_jax():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    params, f = tjt.as_jax(net)
    x = array(X)
    pair = jax.tree.map(lambda p: jnp.stack([p, 2 * p]), params)
    both = jax.jit(jax.vmap(f, (0, None)))(pair, x)
    assert_same(both[1], f(jax.tree.map(lambda p: 2 * p, params), x))
    total = lambda x: f(params, x).sum()
    assert_same(jax.jacfwd(total)(x), jax.grad(total)(x))
    theirs = torch.autograd.functional.hessian(lambda x: net(x).sum(), X[0])
    assert_same(jax.hessian(total)(x[0]), theirs, 1e-4)
    program = tj.capture(f)(params, x)
    assert_same(program(params, x), net(X))


def test_the_program_of_a_module_is_the_one_written_in_jax():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    params, f = tjt.as_jax(net)
    ours = jax.jit(f).lower(params, array(X)).compile().as_text()

    def by_hand(params, x):
        return jnp.tanh(x @ params["0.weight"].T + params["0.bias"])

    theirs = jax.jit(by_hand).lower(params, array(X)).compile().as_text()
    count = lambda text: [text.count(f" {op}(") for op in ("dot", "tanh", "add", "fusion", "call")]
    assert count(ours) == count(theirs)


def test_a_structured_parameter_stays_one():
    module = Made(lambda self, x: torch.sin(self.structured @ x.t()).sum())
    d = tj.Diagonal(jnp.arange(1.0, 4.0, dtype=jnp.float32))
    module.structured = nn.Parameter(tjt.from_jax(d))
    params, f = tjt.as_jax(module)
    assert "matmul[Diagonal, Dense]" in str(tj.capture(f)(params, array(X)))
    got = jax.jit(jax.grad(f))(params, array(X))["structured"]
    assert_same(got.diag, (jnp.cos(d.diag[:, None] * array(X).T) * array(X).T).sum(1))


def test_functional_call_on_arrays_and_on_tensors():
    layer = nn.Linear(3, 2)
    params = {n: array(p) for n, p in layer.named_parameters()}
    loss = lambda params, x: tjt.functional_call(layer, params, (x,)).sum()
    got = jax.jit(jax.grad(loss))(params, array(X))
    layer(X).sum().backward()
    assert_same(got["weight"], layer.weight.grad)
    half = tjt.functional_call(layer, {"weight": params["weight"] * 2}, array(X))
    assert_same(half, X @ (2 * layer.weight).t() + layer.bias)
    tensors = {n: tjt.from_torch(p.detach()).requires_grad_() for n, p in layer.named_parameters()}
    tjt.functional_call(layer, tensors, (tjt.from_torch(X),)).sum().backward()
    assert_same(tensors["weight"].grad.payload, layer.weight.grad)


def test_module_that_is_no_program_is_refused():
    layer = nn.Linear(3, 2)
    params, f = tjt.as_jax(layer)
    with pytest.raises(tj.ShapeError, match=r"missing: \['bias'\]"):
        f({"weight": params["weight"]}, array(X))
    with pytest.raises(tj.NoRuleError, match="has no size yet"):
        tjt.as_jax(nn.LazyLinear(3))
    with pytest.raises(tj.ShapeError, match="got: int"):
        tjt.as_jax(3)
    with jax.enable_x64(False), pytest.raises(tjt.DtypeError, match="float64"):
        tjt.as_jax(nn.Linear(2, 2).double())


class Sized(Made):
    def forward(self, x, y, scale=2.0, *, flip=True):
        torch._check(x.shape[0] >= 2)
        return self.layer(x) * scale + y.sum() + x.shape[0] + torch.arange(3)


def test_an_exported_program_has_the_sizes_it_was_exported_for():
    module, n = Sized(None), torch.export.Dim("n", min=2, max=10)
    sizes = {"x": {0: n}, "y": {0: n}}
    params, f = tjt.as_jax(torch.export.export(module, (X, X), dynamic_shapes=sizes))
    for rows in (2, 5):
        x = torch.ones(rows, 3)
        assert_same(jax.jit(f)(params, array(x), array(x)), module(x, x))
    ones = lambda *size: jnp.ones(size, jnp.float32)
    for args, words in (
        ((ones(11, 3), ones(11, 3)), "exported for 2 to 10"),
        ((ones(4, 3), ones(5, 3)), "y: the program was exported for size"),
        ((ones(4, 2), ones(4, 2)), "dynamic_shapes"),
        ((ones(4, 3),), "other arguments"),
        ((ones(4, 3).astype(jnp.int32), ones(4, 3)), "exported for torch.float32"),
    ):
        with pytest.raises(tj.ShapeError, match=words):
            f(params, *args)


def test_an_exported_program_has_its_constants_and_its_files():
    module = Sized(None)
    program = torch.export.export(module, (X, X, 3.0), {"flip": False})
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for exported in (program, torch.export.load(file)):
        params, f = tjt.as_jax(exported)
        assert_same(f(params, array(X), array(X), 3.0, flip=False), module(X, X, 3.0))
        with pytest.raises(tj.ShapeError, match=r"exported for 3\.0"):
            f(params, array(X), array(X), 2.0, flip=False)
    params, f = tjt.as_jax(program.module())
    assert_same(f(params, array(X), array(X), 3.0, flip=False), module(X, X, 3.0))
    module = Made(lambda self, x: x * self.held + torch.tensor([5.0, 6.0, 7.0]), held=X[0])
    params, f = tjt.as_jax(torch.export.export(module, (X,)))
    assert params.keys() == {"layer.weight", "layer.bias"}
    assert_same(f(params, array(X)), module(X))


CONSTANTS = {
    "a mask": lambda y: y[torch.tensor([True, False, True, True])],
    "repeats": lambda y: y.repeat_interleave(torch.tensor([2, 0, 1, 2]), dim=0),
    "counts": lambda y: y * torch.bincount(torch.tensor([0, 1, 1]), minlength=3),
    "different": lambda y: y * torch.unique(torch.tensor([1, 1, 2])).sum(),
    "quotients": lambda y: y * (torch.arange(3) // 2 + torch.arange(3) % 2),
    "corner": lambda y: (
        y[tuple(torch.tril_indices(3, 3))] + y[tuple(torch.triu_indices(3, 3, -1))][:6]
    ),
    "places": lambda y: y * torch.bucketize(y, torch.tensor([0.0, 0.5])),
    "sequences": lambda y: F.ctc_loss(
        F.log_softmax(y, -1)[:, None],
        torch.tensor([[1, 2]]),
        torch.tensor([4]),
        torch.tensor([2]),
    ),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_have_values_under_a_trace(name):
    """What decides shapes, and what is checked, is known where it is no argument."""
    module = Made(lambda self, x: CONSTANTS[name](self.layer(x)))
    expected = module(X)
    expected.sum().backward()
    params, f = tjt.as_jax(module)
    assert_same(jax.jit(f)(params, array(X)), expected)
    got = jax.jit(jax.grad(lambda p: f(p, array(X)).sum()))(params)
    assert_same(got["layer.weight"], module.layer.weight.grad)


def test_dtypes_that_a_graph_asserts_are_those_of_jax():
    run = lambda self, x: torch.bucketize(x, torch.tensor([0.0, 0.5])).float()
    module = Made(run)  # with an operation in place, so that it runs on tensors
    params, f = tjt.as_jax(torch.export.export(module, (X,)))
    assert_same(jax.jit(f)(params, array(X)), module(X))


@pytest.mark.filterwarnings("default:Guards may run slower")  # torch's, with Python 3.13.0
def test_conditions_and_loops_of_an_exported_program():
    from torch._higher_order_ops.while_loop import while_loop

    def branching(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.layer(x) * 2, lambda x: x - 1, (x,))

    def looping(self, x):
        goes_on, body = lambda i, x: i < 3, lambda i, x: (i + 1, x * 2)
        return while_loop(goes_on, body, (torch.tensor(0), x))[1]

    for module in (Made(branching), Made(looping)):
        params, f = tjt.as_jax(torch.export.export(module, (X,)))
        for x in (X + 1, X - 1):
            assert_same(jax.jit(f)(params, array(x)), module(x))
    params, f = tjt.as_jax(torch.export.export(Made(branching), (X,)))
    got = jax.grad(lambda x: f(params, x).sum())(array(X - 1))
    assert_same(got, np.ones((4, 3)))


def test_two_threads_in_one_module_keep_their_tensors_apart():
    """Each reads from a buffer what it has written, though the other has had time to write."""
    both = threading.Barrier(2)

    def run(self, x):
        self.seen.copy_(x)
        with contextlib.suppress(threading.BrokenBarrierError):  # the other waits for its turn
            both.wait(0.5)
        return self.seen * 1

    module = Made(run)
    module.register_buffer("seen", torch.zeros(3))
    params, f = tjt.as_jax(module)
    found = {}
    call = lambda n: found.update({n: f.with_state(params, jnp.full(3, n))[0].tolist()})
    threads = [threading.Thread(target=call, args=(n,)) for n in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {1.0: [1.0] * 3, 2.0: [2.0] * 3}
