"""Programs that strangers write with sparse matrices, against the same lines on dense arrays.

Nothing may become dense on the way.
"""

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import optax
import pytest
import scipy.sparse.linalg
from jax import lax

import tanjax as tj
from tanjax.bridges.lineax import linear_solve
from tanjax.bridges.scipy import to_scipy

RNG = np.random.default_rng(11)
EDGES = np.array([[0, 1], [0, 4], [1, 2], [2, 3], [2, 5], [3, 4], [4, 5]])
N = 6


@pytest.fixture(autouse=True)
def nothing_becomes_dense():
    with tj.densify("error"):
        yield


def laplacian(weights, make=tj.Sparse):
    """Both directions of every edge, and the sums of them on the diagonal: added up in place."""
    (i, j), nodes = EDGES.T, np.arange(N)
    places = np.stack([np.r_[i, j, nodes], np.r_[j, i, nodes]], axis=1)
    degrees = jnp.zeros(N).at[EDGES[:, 0]].add(weights).at[EDGES[:, 1]].add(weights)
    return make(jnp.concatenate([-weights, -weights, degrees]), places, (N, N))


def of_dense(values, places, shape):
    """The same matrix in plain JAX."""
    return jnp.zeros(shape).at[places[:, 0], places[:, 1]].add(values)


def test_smoothing_on_a_graph_with_learned_weights():
    """Weights of edges are fitted by Adam through ten steps of diffusion."""
    signal = jnp.asarray(RNG.normal(size=(N, 2)))

    def smooth(weights, make=tj.Sparse):
        step = laplacian(weights, make)
        return lax.scan(lambda x, _: (x - 0.1 * (step @ x), None), signal, None, length=10)[0]

    observed = smooth(jnp.linspace(0.5, 1.5, len(EDGES)))
    loss = lambda w, make=tj.Sparse: jnp.sum((smooth(w, make) - observed) ** 2)
    start = jnp.ones(len(EDGES))
    got, want = jax.grad(loss)(start), jax.grad(lambda w: loss(w, of_dense))(start)
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    optimiser = optax.sgd(0.2)

    def descend(carry, _):
        w, state = carry
        updates, state = optimiser.update(jax.grad(loss)(w), state)
        return (optax.apply_updates(w, updates), state), loss(w)

    _, losses = jax.jit(lambda w: lax.scan(descend, (w, optimiser.init(w)), None, length=30))(start)
    assert losses[-1] < 0.3 * losses[0]


def test_page_rank_and_its_gradient_by_the_links():
    """The matrix of links is divided by its column sums, in the type; the loop is a scan."""
    places = np.concatenate([EDGES, EDGES[:4, ::-1]])
    links = tj.Sparse(jnp.linspace(1.0, 2.0, len(places)), places, (N, N))

    def rank(links, damping=0.85):
        out = tj.sum(links, axis=0) if tj.is_structured(links) else jnp.sum(links, 0)
        shares = jnp.where(out > 0, 1 / jnp.where(out > 0, out, 1), 0)
        move = links @ tj.Diagonal(shares) if tj.is_structured(links) else links * shares

        def step(p, _):
            lost = jnp.sum(jnp.where(out > 0, 0, p))
            return damping * (move @ p + lost / N) + (1 - damping) / N, None

        return lax.scan(step, jnp.full(N, 1 / N), None, length=80)[0]

    p = jax.jit(rank)(links)
    np.testing.assert_allclose(jnp.sum(p), 1, rtol=1e-12)
    np.testing.assert_allclose(p, rank(links.to_dense()), rtol=1e-12)
    value = lambda links: jnp.log(rank(links)[3])
    got = tj.grad(value)(links)
    want = jax.grad(value)(links.to_dense())
    assert got.pattern is links.pattern
    np.testing.assert_allclose(got.values, want[*links.indices.T], rtol=1e-9, atol=1e-12)


def test_finite_elements_with_gradients_to_the_material():
    """A bar of elements in N/m, assembled by the constructor; solved by SciPy and by CG.

    The compliance f·u has the gradient -(u_i - u_j)² by the stiffness of the element i j.
    """
    elements = np.stack([np.arange(8), np.arange(1, 9)], axis=1)
    places = elements[:, [0, 0, 1, 1, 0, 1, 0, 1]].reshape(-1, 2, 4).transpose(0, 2, 1)
    own = jnp.array([1.0, -1.0, -1.0, 1.0])
    free = slice(1, 9)
    force = jnp.linspace(0.0, 1.0, 8) * tj.units.newton

    def stiffness(k):
        whole = tj.Sparse((k.value[:, None] * own).ravel(), places.reshape(-1, 2), (9, 9))
        return tj.Unitful(whole.submatrix(free, free), k.unit)

    def compliance(k):
        solver = lineax.CG(rtol=1e-12, atol=1e-12, max_steps=50)
        tags = lineax.positive_semidefinite_tag
        a = stiffness(k)
        operator = lineax.FunctionLinearOperator(
            lambda u: a.value @ u, jax.ShapeDtypeStruct((8,), jnp.float64), tags
        )
        u = linear_solve(operator, force / a.unit, solver).value
        return tj.dot(force, u), u

    k = jnp.linspace(1.0, 3.0, 8) * tj.unit("N/m")
    (energy, u), gradient = tj.value_and_grad(compliance, has_aux=True)(k)
    lu = scipy.sparse.linalg.splu(to_scipy(stiffness(k).value).tocsc())
    np.testing.assert_allclose(u.to_value("m"), lu.solve(np.asarray(force.value)), rtol=1e-9)
    stretch = jnp.diff(u.to_value("m"), prepend=0.0)
    assert energy.unit.dimension is tj.unit("J").dimension
    np.testing.assert_allclose(gradient.to_value("m2"), -(stretch**2), rtol=1e-8)


def test_ridge_regression_by_conjugate_gradients():
    """`(XᵀX + λ) w = Xᵀ y` by products with a sparse X of lineax; gradients by X, y and λ."""
    places = np.argwhere(RNG.random((12, 5)) < 0.4)
    x = tj.Sparse(jnp.asarray(RNG.normal(size=len(places))), places, (12, 5))
    y = jnp.asarray(RNG.normal(size=12))

    def loss(x, y, ridge):
        gram = lambda w: x.mT @ (x @ w) + ridge * w
        structure = jax.ShapeDtypeStruct((5,), jnp.float64)
        tags = lineax.positive_semidefinite_tag
        operator = lineax.FunctionLinearOperator(gram, structure, tags)
        solver = lineax.CG(rtol=1e-13, atol=1e-13, max_steps=100)
        w = lineax.linear_solve(operator, x.mT @ y, solver).value
        return jnp.sum((x @ w - y) ** 2) + jnp.sum(jnp.sin(w))

    def by_dense(x, y, ridge):
        w = jnp.linalg.solve(x.T @ x + ridge * jnp.eye(5), x.T @ y)
        return jnp.sum((x @ w - y) ** 2) + jnp.sum(jnp.sin(w))

    got = jax.jit(jax.grad(loss, (0, 1, 2)))(x, y, 0.3)
    want = jax.jit(jax.grad(by_dense, (0, 1, 2)))(x.to_dense(), y, 0.3)
    np.testing.assert_allclose(got[0].values, want[0][*x.indices.T], rtol=1e-7, atol=1e-9)
    for g, w in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-7, atol=1e-9)
    gram = x.mT @ x + 0.3 * tj.Identity(5)  # the same matrix, made once, stays sparse
    assert type(gram) is tj.Sparse
    np.testing.assert_allclose(gram.to_dense(), x.to_dense().T @ x.to_dense() + 0.3 * np.eye(5))


def test_message_passing_under_vmap():
    """Attention over the edges of one graph, for a batch of features; gradients by all weights."""
    features = jnp.asarray(RNG.normal(size=(3, N, 2)))
    weights = {"attend": jnp.asarray(RNG.normal(size=(4,))), "mix": jnp.eye(2) + 0.1}
    source, target = np.concatenate([EDGES, EDGES[:, ::-1]]).T

    def layer(weights, h, make):
        pairs = jnp.concatenate([h[target], h[source]], axis=1)
        scores = jnp.exp(jnp.tanh(pairs @ weights["attend"]))
        a = make(scores, np.stack([target, source], 1), (N, N))
        rows = tj.sum(a, axis=1) if make is tj.Sparse else jnp.sum(a, 1)
        return jnp.tanh((a @ h / rows[:, None]) @ weights["mix"])

    def loss(weights, make):
        apply = lambda h: layer(weights, layer(weights, h, make), make)
        return jnp.sum(jax.vmap(apply)(features) ** 2)

    got, want = (
        jax.jit(jax.grad(loss), static_argnums=1)(weights, f) for f in (tj.Sparse, of_dense)
    )
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-10, atol=1e-12)


def test_power_iteration():
    """The largest eigenvalue of a Laplacian; its gradient is the outer product at the places."""
    a = laplacian(jnp.linspace(1.0, 2.0, len(EDGES)))

    def largest(a):
        def step(v, _):
            w = a @ v
            return w / jnp.linalg.norm(w), None

        v = lax.scan(step, jnp.cos(jnp.arange(float(N))), None, length=400)[0]
        return tj.quadratic_form(a, v)

    value, gradient = jax.value_and_grad(largest)(a)
    values, vectors = np.linalg.eigh(a.to_dense())
    np.testing.assert_allclose(value, values[-1], rtol=1e-10)
    outer = np.outer(vectors[:, -1], vectors[:, -1])
    np.testing.assert_allclose(gradient.values, outer[*a.indices.T], rtol=1e-6, atol=1e-8)
