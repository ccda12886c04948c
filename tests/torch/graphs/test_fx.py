"""Graphs of torch on arrays: `make_fx`, `symbolic_trace`, with writes, sizes and structure."""

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import numpy as np
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import tanjax as tj
from tanjax.bridges import torch as tjt

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 12).reshape(4, 3)


def array(t):
    return jnp.asarray(t.detach().numpy())


def assert_same(ours, theirs):
    np.testing.assert_allclose(np.asarray(ours), theirs.detach().numpy(), rtol=1e-5, atol=1e-6)


def writing(x):
    y = x.clone()
    y[:, 0] = 1
    y.add_(x.t()[0, 0])
    return torch.relu(y).view(-1).neg()


def test_a_functional_graph_runs_on_payloads_alone(monkeypatch):
    run = tjt.Interpreter(make_fx(lambda a, x: torch.tanh(a @ x).sum(0))(torch.eye(3), X.t()))
    assert run.is_direct
    monkeypatch.setattr(torch.Tensor, "_make_wrapper_subclass", None)  # no tensor made
    assert_same(jax.jit(run)(jnp.eye(3, dtype=jnp.float32), array(X.t())), torch.tanh(X.t()).sum(0))


@pytest.mark.parametrize("functional", [False, True])
def test_a_graph_that_writes_is_right(functional):
    program = torch.func.functionalize(writing) if functional else writing
    run = tjt.Interpreter(make_fx(program)(X))
    assert run.is_direct == functional
    assert_same(jax.jit(run)(array(X)), writing(X))
    got = jax.grad(lambda x: (run(x) ** 2).sum())(array(X))
    x = X.clone().requires_grad_()
    (writing(x) ** 2).sum().backward()
    assert_same(got, x.grad)


def test_a_write_into_an_argument_raises_by_its_place():
    with pytest.raises(tj.errors.MutationError, match=r"argument \[0\]\[0\]\['a'\]"):
        tjt.Interpreter(make_fx(lambda d: d["a"].add_(1))({"a": X.clone()}))({"a": array(X)})


def test_a_write_into_what_the_graph_holds_raises_by_its_name():
    with pytest.raises(tj.errors.MutationError, match=r"the graph writes into '0\.running_mean'"):
        tjt.Interpreter(torch.fx.symbolic_trace(nn.Sequential(nn.BatchNorm1d(3))))(array(X))


def test_a_structured_argument_keeps_its_structure():
    run = tjt.Interpreter(
        make_fx(lambda d, x: torch.tanh(torch.mm(d, x)).sum())(torch.eye(3), X.t())
    )
    d, x = tj.Diagonal(jnp.arange(1.0, 4.0, dtype=jnp.float32)), array(X.t())
    assert "matmul[Diagonal, Dense]" in str(tj.capture(run)(d, x))
    assert isinstance(jax.jit(jax.grad(run))(d, x), tj.Diagonal)


def test_keys_of_a_dict_have_the_order_of_the_graph():
    """JAX sorts the keys of dicts; the graph's placeholders are in the order of the example."""
    run = tjt.Interpreter(make_fx(lambda d: d["b"] - 2 * d["a"])({"b": X, "a": 2 * X}))
    b, a = array(X), array(X) * 5
    np.testing.assert_allclose(jax.jit(run)({"b": b, "a": a}), b - 2 * a, rtol=1e-6)
    with pytest.raises(tj.ShapeError, match="made for other arguments"):
        run({"b": b})


def test_symbolic_sizes_are_those_of_the_arrays():
    graph = make_fx(lambda x: x.reshape(-1, 2) * x.shape[0], tracing_mode="symbolic")(X)
    run = jax.jit(tjt.Interpreter(graph))
    for n in (4, 6):
        assert_same(run(jnp.ones((n, 3), jnp.float32)), torch.ones(n * 3 // 2, 2) * n)


def test_a_graph_of_modules_and_methods_runs_on_tensors():
    net = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Flatten(0))
    run = tjt.Interpreter(torch.fx.symbolic_trace(net))
    assert not run.is_direct
    assert_same(jax.jit(run)(array(X)), net(X))
    assert_same(jax.vmap(run)(array(X)[None])[0], net(X))


def test_state_by_name_replaces_what_the_module_holds():
    net = nn.Linear(3, 2)
    graph = torch.fx.symbolic_trace(net)
    assert_same(
        tjt.Interpreter(graph, {"bias": jnp.zeros(2, jnp.float32)})(array(X)), X @ net.weight.t()
    )


def test_detach_in_a_graph_cuts_the_gradient_as_in_torch():
    run = tjt.Interpreter(make_fx(lambda x: x * x.detach())(X))
    assert_same(jax.grad(lambda x: run(x).sum())(array(X)), X)


def test_an_unknown_operation_is_named():
    with torch.library._scoped_library("tanjax_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "Meta")
        graph = torch.fx.Graph()
        out = graph.call_function(torch.ops.tanjax_test.twice.default, (graph.placeholder("x"),))
        graph.output(out)
        run = tjt.Interpreter(torch.fx.GraphModule(nn.Module(), graph))
        with pytest.raises(tj.NoRuleError, match=r"tanjax_test\.twice"):
            run(array(X))
