"""Structured tensors in torch: values and gradients are those of JAX on the same arrays."""

import copy
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import tanjax as tj
from tanjax.bridges import torch as tjt
from torch_comparison import (
    MATRIX,
    TYPES,
    VECTOR,
    N,
    assert_agree,
    assert_gradients_agree,
    floats,
    normal,
)

pytestmark = pytest.mark.torch

with warnings.catch_warnings():  # torch compiles scripts when forward mode is used first
    warnings.simplefilter("ignore")
    import torch._decomp.decompositions_for_jvp

X, XS = tjt.from_jax(VECTOR), tjt.from_jax(MATRIX)
K, D, TOEPLITZ = TYPES["Kronecker"], TYPES["Diagonal"], TYPES["Toeplitz"]


@pytest.fixture
def allowed():
    """Structured arrays become dense without a word."""
    with tj.densify("allow"):
        yield


@pytest.fixture
def promoting():
    """Optax counts its steps in int32, and multiplies with them."""
    with jax.numpy_dtype_promotion("standard"):
        yield


# -- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TYPES)
def test_gradients_of_leaves_and_of_results_are_jaxs(name):
    """At a leaf, and in the middle of a graph, for the operations that a loss is made of."""

    def in_torch(m, x):
        y = torch.linalg.solve(m, x) + F.linear(x, m) + m.T @ x
        return y @ y + torch.linalg.slogdet(m)[1] + torch.trace(2 * m - m / 3) + (m @ (m @ x)).sum()

    def in_jax(m, x):
        y = tj.solve(m, x) + m @ x + tj.linalg.transpose(m) @ x
        return y @ y + tj.linalg.slogdet(m)[1] + tj.trace(2 * m - m / 3) + jnp.sum(m @ (m @ x))

    assert_gradients_agree(in_torch, in_jax, TYPES[name], VECTOR)


def test_gradients_of_factors_functions_and_products():
    s, t, d = TYPES["Symmetric"], TYPES["Triangular"], TYPES["Diagonal"]

    def in_torch(s, t, k, d, x, b):
        of_s = (torch.linalg.cholesky(s) @ x).sum() + torch.linalg.eigvalsh(s)[-1]
        of_s = of_s + torch.linalg.matrix_exp(s * 0.1).sum() + torch.linalg.matrix_power(s, 2).sum()
        of_t = torch.linalg.solve_triangular(t, b, upper=False).pow(2).sum()
        of_k = torch.addmm(b, k, b, beta=0.5, alpha=2).sum() + k.norm() + k.sum()
        of_d = x @ d @ x + torch.det(d) + torch.kron(d, d).logdet() + (d.inverse() @ x)[0]
        made = tjt.make(tj.Diagonal, x.exp()) @ tjt.make(tj.Diagonal, x * x)
        return of_s + of_t + of_k + of_d + made.logdet()

    def in_jax(s, t, k, d, x, b):
        of_s = jnp.sum(tj.linalg.cholesky(s) @ x) + tj.linalg.eigvalsh(s)[-1]
        of_s = (
            of_s
            + tj.linalg.sum(tj.linalg.expm(s * 0.1))
            + tj.linalg.sum(tj.linalg.matrix_power(s, 2))
        )
        of_t = jnp.sum(tj.linalg.solve_triangular(t, b, lower=True) ** 2)
        of_k = jnp.sum(0.5 * b + 2 * (k @ b)) + tj.norm(k) + tj.linalg.sum(k)
        of_d = x @ (d @ x) + tj.det(d) + tj.logdet(tj.linalg.kron(d, d)) + tj.solve(d, x)[0]
        return of_s + of_t + of_k + of_d + tj.logdet(tj.Diagonal(jnp.exp(x) * x * x))

    assert_gradients_agree(in_torch, in_jax, s, t, K, d, VECTOR, MATRIX, densify="allow")


def test_functions_without_structure_become_dense_and_say_so():
    def in_torch(m):
        return torch.sin(m).sum() + m[1, 1] ** 2 + m.reshape(-1)[:3].sum() + torch.cat([m, m]).var()

    def in_jax(m):
        m = tj.destructure(m)
        both = jnp.concatenate([m, m])
        return jnp.sin(m).sum() + m[1, 1] ** 2 + m.ravel()[:3].sum() + jnp.var(both, ddof=1)

    m = tjt.from_jax(K, requires_grad=True)
    with tj.densify("allow"):
        in_torch(m).backward()
    assert_agree(m.grad.payload, jax.grad(in_jax)(K))
    with tj.densify("error"), pytest.raises(tj.NoRuleError, match="Kronecker"):
        torch.sin(m)  # compiled under another policy, and yet refused
    with tj.densify("warn"), pytest.warns(tj.DensifyWarning, match="cosh"):
        torch.cosh(m)


def test_torch_keeps_its_order_of_eigenvalues():
    with tj.densify("allow"):
        values, vectors = torch.linalg.eigh(tjt.from_jax(tj.Diagonal([3.0, 1.0, 2.0])))
        singular = torch.linalg.svd(tjt.from_jax(tj.Diagonal([1.0, 3.0, 2.0])))
    assert_agree(values.payload, jnp.array([1.0, 2.0, 3.0]))
    assert_agree(abs(vectors.payload), jnp.eye(3)[jnp.array([2, 0, 1])])
    assert_agree(singular.S.payload, jnp.array([3.0, 2.0, 1.0]))
    assert_agree(
        (singular.U * singular.S @ singular.Vh).payload, jnp.diag(jnp.array([1.0, 3.0, 2.0]))
    )


def test_a_natural_rule_runs_in_the_backward_pass():
    """One run of the rule for each backward pass, also within other operations."""
    runs = []

    @tj.operation
    def weighed(a, x):
        return x @ (a @ x)

    @weighed.natural_rule
    def weighed_rule(a, x):
        def weighed_pullback(y_bar):
            runs.append(type(a).__name__)
            return tj.Outer(y_bar * x, x), y_bar * (a @ x + tj.linalg.transpose(a) @ x)

        return weighed.primal(a, x), weighed_pullback

    in_torch = lambda m, x: tjt.wrap(weighed)(2 * m, x)
    assert_gradients_agree(in_torch, lambda m, x: x @ (2 * m @ x), K, VECTOR)
    assert "Kronecker" in runs


@pytest.mark.usefixtures("allowed")
def test_a_matrix_that_arrives_at_a_leaf_is_projected():
    """A function of the user with torch's formula: a dense gradient, alone and added to others."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, m, x):
            ctx.save_for_backward(m, x)
            return m.detach() @ x

        @staticmethod
        def backward(ctx, g):
            m, x = ctx.saved_tensors
            return torch.outer(g, x), m.detach().T @ g

    for array in (TOEPLITZ, K):
        expected = jax.grad(lambda m: jnp.sum((m @ VECTOR) ** 2) + jnp.sum(m @ VECTOR))(array)
        m = tjt.from_jax(array, requires_grad=True)
        (Product.apply(m, X).pow(2).sum() + (m @ X).sum()).backward()
        assert_agree(m.grad.payload, expected)
        alone = tjt.from_jax(array).requires_grad_()
        Product.apply(alone, X).pow(2).sum().backward()
        assert_agree(alone.grad.payload, jax.grad(lambda m: jnp.sum((m @ VECTOR) ** 2))(array))
        middle = tjt.from_jax(array, requires_grad=True)
        twice = middle @ middle
        (Product.apply(twice, X).sum() + torch.logdet(twice)).backward()
        in_jax = lambda m: jnp.sum(m @ m @ VECTOR) + tj.logdet(m @ m)
        assert_agree(middle.grad.payload, jax.grad(in_jax)(array))


def test_formulas_of_torch_inside_of_a_graph():
    """Where a C++ function of torch meets a structured tensor, gradients are matrices for it."""
    m = tjt.from_jax(K, requires_grad=True)
    other = tjt.from_jax(normal(N, N))
    y = m @ m
    with torch._C.DisableTorchFunctionSubclass(), tj.densify("allow"):
        z, w = y.mm(other).mm(y.t()), y * y
    with tj.densify("allow"):
        ((z * z).sum() + (w @ other).sum() + torch.logdet(y)).backward()

    def in_jax(m):
        y = tj.destructure(m @ m)
        z = y @ other.payload @ y.T
        return jnp.sum(z * z) + jnp.sum((y * y) @ other.payload) + tj.logdet(m @ m)

    assert_agree(m.grad.payload, jax.grad(in_jax)(K), 1e-8)


# -- orders and transformations ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Kronecker", "Toeplitz"])
def test_double_backward_and_checkpoints_are_jaxs(name):
    array = TYPES[name]
    loss = lambda m: tj.logdet(m) * jnp.sum(m @ VECTOR)
    m = tjt.from_jax(array, requires_grad=True)
    (g,) = torch.autograd.grad(torch.logdet(m) * (m @ X).sum(), m, create_graph=True)
    (g**2).sum().backward()
    square = lambda m: sum(jnp.sum(x**2) for x in floats(jax.grad(loss)(m)))
    assert_agree(m.grad.payload, jax.grad(square)(array), 1e-7)
    for reentrant in (False, True):
        m.grad = None
        checkpoint(lambda m: (m @ (m @ X)).pow(2).sum(), m, use_reentrant=reentrant).backward()
        assert_agree(m.grad.payload, jax.grad(lambda m: jnp.sum((m @ (m @ VECTOR)) ** 2))(array))


@pytest.mark.parametrize("name", ["Diagonal", "Kronecker", "Symmetric", "Toeplitz"])
def test_transformations_of_torch_func_and_of_jax(name):
    array = TYPES[name]
    in_torch = lambda m: torch.logdet(m) + (m @ X).pow(2).sum()
    in_jax = lambda m: tj.logdet(m) + jnp.sum((m @ VECTOR) ** 2)
    m = tjt.from_jax(array)
    leaves, tree = jax.tree.flatten(array)
    tangent = jax.tree.unflatten(tree, [0.3 * x for x in leaves])
    assert_agree(torch.func.grad(in_torch)(m).payload, jax.grad(in_jax)(array))
    pushed = torch.func.jvp(in_torch, (m,), (tjt.from_jax(tangent),))[1]
    assert_agree(pushed.payload, jax.jvp(in_jax, (array,), (tangent,))[1])
    under_jax = lambda m: in_torch(tjt.from_jax(m)).payload
    assert_agree(jax.jit(jax.grad(under_jax))(array), jax.grad(in_jax)(array))


def test_transformations_map_over_leading_axes():
    batch = tj.Diagonal(jnp.abs(normal(3, N)) + 1)
    squares = torch.func.vmap(lambda m: m @ m)(tjt.from_jax(batch))
    assert_agree(squares.payload, batch @ batch)
    each = torch.func.vmap(torch.func.grad(lambda m, x: (m @ x).pow(2).sum()), in_dims=(0, None))
    expected = jax.vmap(jax.grad(lambda m: jnp.sum((m @ VECTOR) ** 2)))(batch)
    assert_agree(each(tjt.from_jax(batch), X).payload, expected)
    m = tjt.from_jax(K)
    assert_agree(torch.func.jacrev(lambda x: m @ x)(X).payload, K.to_dense())
    assert_agree(
        torch.func.jacfwd(lambda x: torch.linalg.solve(m, x))(X).payload, tj.inv(K).to_dense()
    )
    assert_agree(
        torch.func.hessian(lambda x: x @ (m @ x))(X).payload, K.to_dense() + K.to_dense().T
    )


@pytest.mark.parametrize("name", ["Kronecker", "LowRankUpdate", "BlockDiagonal"])
def test_gradients_by_sample_of_several_fields_are_those_of_jax(name):
    """`in_dims=None`, of the array and of a dict that holds it, is for all fields."""
    array, rows = TYPES[name], tjt.from_jax(normal(3, N))
    loss = lambda held, x: (held["m"] @ x).tanh().sum()
    got = torch.func.vmap(torch.func.grad(loss), (None, 0))({"m": tjt.from_jax(array)}, rows)
    in_jax = jax.grad(lambda m, x: jnp.tanh(m @ x).sum())
    assert_agree(got["m"].payload, jax.vmap(in_jax, (None, 0))(array, rows.payload))
    out = torch.func.vmap(lambda m, x: m @ x, (None, 0))(tjt.from_jax(array), rows)
    assert_agree(out.payload, jax.vmap(lambda x: array @ x)(rows.payload))


def test_trees_of_torch_with_arrays_in_them_are_structured_arrays():
    again = torch.utils._pytree.tree_map(lambda t: t.payload, tjt.from_jax(TYPES["Kronecker"]))
    assert_agree(again, TYPES["Kronecker"])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("kind", ["Identity", "Permutation", "Zero"])
def test_layers_of_arrays_without_floating_numbers_step(kind, dtype):
    """Their gradients have a dtype, and no numbers; the bias learns."""
    order = jnp.array([1, 0, 3, 2])
    weight = {
        "Identity": lambda: tj.Identity(4, dtype),
        "Permutation": lambda: tj.Permutation(order, dtype=dtype),
        "Zero": lambda: tj.Zero((4, 4), dtype),
    }[kind]()
    layer = tjt.nn.StructuredLinear(weight, jnp.zeros(4, dtype))
    x = jnp.arange(12, dtype=dtype).reshape(3, 4)
    optimiser = torch.optim.Adam(layer.parameters(), 0.5)
    for _ in range(2):
        optimiser.zero_grad()
        layer(tjt.from_jax(x)).sum().backward()
        optimiser.step()
    assert layer.weight.grad.dtype is layer.weight.dtype
    assert_agree(layer.bias.grad.payload, jnp.full(4, 3.0, dtype))
    assert_agree(layer.bias.detach().payload, jnp.full(4, -1.0, dtype), rtol=1e-5)
    assert_agree(layer.weight.detach().payload, weight)


def test_autocast_lowers_products_of_structured_weights():
    for dtype, lowered in ((jnp.float32, torch.bfloat16), (jnp.float64, torch.float64)):
        weight = tj.Kronecker(*[jnp.arange(4, dtype=dtype).reshape(2, 2)] * 2)
        layer = tjt.nn.StructuredLinear(weight, bias=False)
        x = tjt.from_jax(jnp.ones((3, 4), dtype), requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(x)
        out.sum().backward()
        assert out.dtype is lowered
        assert layer.weight.grad.dtype is layer.weight.dtype
        expected = jax.grad(lambda w, x=x: jnp.sum(x.payload @ w.T))(weight)
        assert_agree(layer.weight.grad.payload, expected)


def test_graphs_hooks_and_modes():
    m = tjt.from_jax(K, requires_grad=True)
    seen = []
    m.register_hook(lambda g: seen.append(type(g.payload)))
    m.register_hook(lambda g: g * 2)
    y = m @ m
    y.retain_grad()
    torch.logdet(y).backward(retain_graph=True)
    expected = jax.grad(lambda m: tj.logdet(m @ m))(K)
    assert_agree(m.grad.payload, jax.tree.map(lambda x: 2 * x, expected))
    assert_agree(y.grad.payload, jax.grad(tj.logdet)(K @ K))
    assert seen == [tj.Kronecker]
    torch.logdet(y).backward()
    assert_agree(m.grad.payload, jax.tree.map(lambda x: 4 * x, expected))
    with torch.no_grad():
        assert (m @ m).grad_fn is None
    assert type(m.detach().payload) is tj.Kronecker
    assert not m.detach().requires_grad
    once = torch.linalg.solve(m, X).sum()
    once.backward()
    with pytest.raises(RuntimeError, match="second time"):
        once.backward()


# -- optimisers, modules, files ------------------------------------------------------------------

OPTIM, DECAYED = torch.optim, optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.01))
OPTIMISERS = {  # a type, an optimiser of torch with its options, and the same of optax
    "Kronecker": (OPTIM.SGD, {"momentum": 0.9}, optax.sgd(0.01, momentum=0.9)),
    "Diagonal": (OPTIM.SGD, {"weight_decay": 0.1, "foreach": True}, DECAYED),
    "Symmetric": (OPTIM.Adam, {}, optax.adam(0.01)),
    "BlockDiagonal": (OPTIM.Adam, {"foreach": True}, optax.adam(0.01)),
    "LowRankUpdate": (OPTIM.AdamW, {"weight_decay": 0.1}, optax.adamw(0.01, weight_decay=0.1)),
    "Toeplitz": (OPTIM.RMSprop, {"alpha": 0.9}, optax.rmsprop(0.01, 0.9, eps_in_sqrt=False)),
}


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.usefixtures("promoting")
def test_optimisers_step_in_stored_coordinates(name):
    """The same curve as optax on the same tree."""
    make, options, optimiser = OPTIMISERS[name]
    array = TYPES[name]
    p = torch.nn.Parameter(tjt.from_jax(array))
    step, state = make([p], 0.01, **options), optimiser.init(array)
    loss = lambda m: jnp.mean((m @ VECTOR - 1) ** 2)
    for _ in range(4):
        step.zero_grad()
        value = ((p @ X - 1) ** 2).mean()
        value.backward()
        expected, gradient = jax.value_and_grad(loss)(array)
        assert_agree(value.detach().payload, expected)
        step.step()
        updates, state = optimiser.update(gradient, state, array)
        array = optax.apply_updates(array, updates)
    assert_agree(p.detach().payload, array)
    step.load_state_dict(copy.deepcopy(step.state_dict()))


def test_an_optimiser_that_flattens_is_refused():
    p = torch.nn.Parameter(tjt.from_jax(K))
    optimiser = torch.optim.LBFGS([p], max_iter=3, line_search_fn="strong_wolfe")

    def closure():
        loss = (p @ X - 1).pow(2).mean()
        loss.backward()
        return loss

    with pytest.raises(tj.errors.CotangentError, match=r"by its fields.*tjt\.make"):
        optimiser.step(closure)


def test_gradients_are_coordinates():
    p = torch.nn.Parameter(tjt.from_jax(K))
    torch.logdet(p).backward()
    gradient = jax.grad(tj.logdet)(K)
    norm = torch.nn.utils.clip_grad_norm_([p], 0.1)
    assert_agree(norm.payload, jnp.sqrt(sum(jnp.sum(x**2) for x in floats(gradient))))
    assert_agree(p.grad.payload, jax.tree.map(lambda x: 0.1 * x / (norm.payload + 1e-6), gradient))
    with pytest.raises(tj.errors.CotangentError, match="stored coordinates"):
        p.grad @ X
    with pytest.raises(tj.errors.CotangentError, match="one structure"), torch.no_grad():
        p.add_(tjt.from_jax(normal(N, N)) + p.grad)
    p.grad.zero_()
    torch.logdet(p).backward()
    assert_agree(p.grad.payload, gradient)


def test_norm_of_a_gradient_has_the_unit_of_its_entries():
    q = tjt.from_jax(tj.Quantity(D, "m"), requires_grad=True)
    (q @ tjt.from_jax(VECTOR * tj.unit("s"))).sum().backward()
    norm = torch.linalg.vector_norm(q.grad)
    assert norm.payload.unit == tj.unit("s")
    assert_agree(norm.payload.value, jnp.linalg.norm(VECTOR))


def test_writes_mean_the_matrix_where_there_is_no_parameter():
    a = tjt.from_jax(K)
    a.mul_(2.0)
    assert_agree(a.payload.to_dense(), 2 * K.to_dense())
    with pytest.raises(tjt.TensorError, match="cannot hold"):
        a.add_(tjt.from_jax(D))
    dense = tjt.from_jax(normal(N, N))
    before = dense.payload
    with tj.densify("allow"):
        dense.add_(tjt.from_jax(D))
    assert_agree(dense.payload, before + D.to_dense())
    p = tjt.from_jax(K, requires_grad=True)
    with torch.no_grad():
        p.mul_(2.0)  # a parameter is a point: every factor
    assert_agree(p.detach().payload, jax.tree.map(lambda x: 2 * x, K))
    for write in (lambda: p.mul_(2), lambda: (p * 2).mul_(2)):
        with pytest.raises(RuntimeError, match=r"in.place"):
            write()


@pytest.mark.usefixtures("promoting")
def test_a_linear_layer_learns_by_torch_what_it_learns_by_optax():
    torch.manual_seed(0)
    layer = tjt.nn.StructuredLinear(K)
    assert "weight=Kronecker" in repr(layer)
    x = normal(5, N)
    net = tjt.convert(torch.nn.Sequential(layer, torch.nn.Tanh(), torch.nn.Linear(N, 2).double()))
    params, f = tjt.as_jax(net)
    loss = lambda params: jnp.mean(f(params, x) ** 2)
    apply = lambda p: torch.func.functional_call(net, p, (tjt.from_jax(x),)).pow(2).mean()
    got = torch.func.grad(apply)({n: p.detach() for n, p in net.named_parameters()})
    assert_agree(got["0.weight"].payload, jax.grad(loss)(params)["0.weight"], 1e-8)
    optimiser, step = optax.adam(0.05), torch.optim.Adam(net.parameters(), 0.05)
    state, curves = optimiser.init(params), []
    for _ in range(3):
        expected, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimiser.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        step.zero_grad()
        value = net(tjt.from_jax(x)).pow(2).mean()
        value.backward()
        step.step()
        curves.append((float(value.detach()), float(expected)))
    np.testing.assert_allclose(*zip(*curves, strict=True), rtol=1e-9)
    assert type(net.float()[0].weight.payload) is tj.Kronecker


def test_a_linear_layer_has_the_orientation_and_the_bias_of_torchs():
    layer = tjt.nn.StructuredLinear(tj.Kronecker(normal(2, 2), normal(2, 2)), VECTOR)
    theirs = jnp.asarray(layer.weight.payload.to_dense())
    assert_agree(layer(XS.t()).detach().payload, MATRIX.T @ theirs.T + VECTOR)
    wide = tjt.nn.StructuredLinear(tj.Diagonal(jnp.ones(400)))
    drawn = np.asarray(wide.bias.detach().payload)  # as `nn.Linear`: uniform up to 1 / 20
    assert 0.045 < drawn.max() <= 0.05
    assert -0.05 <= drawn.min() < -0.045
    for wrong in (VECTOR, tj.Quantity(K, "m")):
        with pytest.raises((tj.ShapeError, tj.UnitError), match="StructuredLinear"):
            tjt.nn.StructuredLinear(wrong)


@pytest.mark.parametrize("name", ["Kronecker", "LowRankUpdate"])
def test_a_module_in_another_dtype_keeps_its_types(name):
    """Under warnings as errors: nothing becomes dense. Torch views a parameter that it swaps."""
    layer = tjt.nn.StructuredLinear(TYPES[name], bias=False)
    weight = layer.weight
    layer(X).sum().backward()
    layer.float()
    assert layer.weight is weight
    for held, t in ((TYPES[name], weight.detach()), (TYPES[name], weight.grad)):
        assert type(t.payload) is type(held)
        assert {x.dtype for x in jax.tree.leaves(t.payload)} == {np.dtype(np.float32)}
    assert_agree(weight.detach().payload, TYPES[name], 1e-6)
    with torch.no_grad(), pytest.raises(tj.errors.AliasError):
        weight.view_as(weight).zero_()


VIEWS = {
    "t": lambda k: k.t(),
    "transpose": lambda k: k.transpose(0, 1),
    "detached": lambda k: k.detach().t(),
    "a part of a part": lambda k: k.diagonal()[1:],
    "row": lambda k: k[0],
    "reshape": lambda k: k.reshape(-1),
    "unbind": lambda k: k.unbind()[1],
}


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_follow_their_base_and_cannot_be_written(view):
    k = tjt.from_jax(tj.Kronecker(normal(2, 2), normal(2, 2)))
    dense = tjt.to_torch(k).clone()
    mine, theirs = view(k), view(dense)
    for _ in range(2):
        assert_agree(tjt.to_torch(mine).numpy(), theirs.numpy())
        k.mul_(2.0)
        dense.mul_(2.0)
    with pytest.raises(tj.errors.AliasError, match="clone first"):
        mine.mul_(3.0)
    mine.clone().mul_(3.0)
    assert_agree(tjt.to_torch(k).numpy(), dense.numpy())


def test_casts_to_the_same_dtype_give_the_tensor_itself():
    k = tjt.from_jax(K)
    assert k.to(k.dtype) is k
    assert k.to(k) is k
    assert k.cpu() is k
    assert k.to(k.dtype, copy=True) is not k
    k.to(k.dtype, False, True).mul_(2)
    assert_agree(k.payload, K)
    assert k.to(torch.float32).dtype == torch.float32


def test_states_and_copies_keep_the_type():
    layer = tjt.nn.StructuredLinear(K, bias=False)
    other = tjt.nn.StructuredLinear(tj.Kronecker(jnp.eye(2), jnp.eye(2)), bias=False)
    other.load_state_dict(layer.state_dict())
    assert_agree(other.weight.detach().payload, K)
    with pytest.raises(RuntimeError, match="one structure"):
        tjt.nn.StructuredLinear(D, bias=False).load_state_dict(layer.state_dict())
    for made in (copy.deepcopy(layer.weight), pickle.loads(pickle.dumps(layer.weight))):
        assert isinstance(made, torch.nn.Parameter)
        torch.logdet(made).backward()
        assert_agree(made.grad.payload, jax.grad(tj.logdet)(K))


# -- entries -------------------------------------------------------------------------------------


@tj.register_array_type
class Halved(tj.AbstractArray):
    """Half of a dense matrix, for entries of these tests."""

    data: jax.Array

    @property
    def shape(self):
        return self.data.shape

    def to_dense(self):
        return self.data / 2


def test_entries_for_types_come_first():
    aten, calls = torch.ops.aten, []

    @tjt.implements(aten.mm, Halved, tj.Dense)
    def exact(a, b):
        calls.append("exact")
        return a.data @ b / 2

    @tjt.implements(aten.mv, tj.AbstractArray, tj.Dense)
    def by_class(a, b):
        calls.append("class")
        return tj.matmul(a, b)

    half = tjt.from_jax(Halved(normal(N, N)), requires_grad=True)
    with tj.densify("allow"):
        (half @ XS).pow(2).sum().backward()
    assert_agree(
        half.grad.payload, jax.grad(lambda h: jnp.sum((h.data @ MATRIX / 2) ** 2))(half.payload)
    )
    with tj.densify("allow"):
        torch.mv(half, X)
        assert_agree((np.ones((N, N)) + half.detach()).payload, 1 + half.payload.data / 2)
    assert {"exact", "class"} == set(calls)
    with pytest.raises(Exception, match="already"):
        tjt.implements(aten.mm, Halved, tj.Dense)(exact)

    tjt.implements(aten.dist, Halved, tj.AbstractArray)(lambda a, b, p=2: None)
    tjt.implements(aten.dist, tj.AbstractArray, Halved)(lambda a, b, p=2: None)
    with pytest.raises(tj.NoRuleError, match="equally near"):
        torch.dist(half.detach(), half.detach())
