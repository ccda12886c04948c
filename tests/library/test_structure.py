"""Structure is kept: no n-by-n value appears where the matrix has fewer numbers.

The size is one that nothing else has, so that a shape `48, 48` in a jaxpr or in the compiled
program can only be the dense matrix. Two detectors look: one walks jaxprs, including the
maps inside the linear primitive that JAX only traces later; one reads the optimised program.
"""

import collections
import re

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj
from comparisons import wave

pytestmark = pytest.mark.core

N, K = 48, 2


def dense_in_jaxpr(function, *args):
    """The equations with an n-by-n output, in a function and in everything that it calls."""
    closed = jax.make_jaxpr(function)(*args)
    return [str(eqn.primitive) for eqn in equations(closed.jaxpr) if forms_dense(eqn)]


def equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in inner_jaxprs(eqn):
            yield from equations(inner)


def inner_jaxprs(eqn):
    if eqn.primitive.name == "tanjax_linear":
        inputs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
        forward = eqn.params["linear"].forward
        yield jax.make_jaxpr(lambda *a: list(forward(*a)))(*inputs).jaxpr
    for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
        closed = getattr(value, "jaxpr", value)
        if hasattr(closed, "eqns"):
            yield closed


def forms_dense(eqn):
    shapes = [getattr(v.aval, "shape", ()) for v in eqn.outvars]
    return any(shape.count(N) > 1 for shape in shapes)


def compiled(function, *args):
    return jax.jit(function).lower(*args).compile().as_text()


def dense_in_program(function, *args):
    """The n-by-n buffers of the optimised program."""
    return re.findall(rf"\w+\[(?:\d+,)*{N},{N}(?:,\d+)*\]\S* \S+", compiled(function, *args))


def thin(k, phase=0.3):
    return wave(jnp.zeros((N, k)), phase)


def square(n):
    return wave(jnp.zeros((n, n))) + n * jnp.eye(n)


TYPES = {
    "Diagonal": lambda: tj.Diagonal(jnp.arange(1.0, 1 + N)),
    "LowRank": lambda: tj.LowRank(thin(K), thin(K, 1.1)),
    "LowRankUpdate": lambda: tj.LowRankUpdate(tj.Diagonal(jnp.arange(1.0, 1 + N)), thin(K)),
    "Kronecker": lambda: tj.Kronecker(square(6), square(8)),
    "Tridiagonal": lambda: tj.Tridiagonal(*(3 * i + wave(jnp.zeros(N - i % 2)) for i in (1, 2, 1))),
    "SymTridiagonal": lambda: tj.SymTridiagonal(4 + thin(1)[:, 0], thin(1)[1:, 0]),
    "Banded": lambda: tj.Banded(thin(4).T, 1, 2),
    "Sparse": lambda: tj.Sparse(wave(jnp.zeros(N)), [[i, 7 * i % N] for i in range(N)], (N, N)),
}
CELLS = [
    (kind, name)
    for kind in TYPES
    for name in ("matmul", "solve", "logdet")
    # A matrix of low rank has no inverse, and that of a sparse one is full.
    if kind not in ("LowRank", "Sparse") or name == "matmul"
]


def loss_of(name):
    if name == "logdet":
        return lambda a, x: tj.logdet(a)
    operation = getattr(tj, name)
    return lambda a, x: jnp.sum(jnp.sin(operation(a, x)))


@pytest.mark.parametrize(("kind", "name"), CELLS)
def test_values_and_derivatives_form_no_dense_value(kind, name):
    """Gradients, structural and natural, and a second derivative forward over reverse."""
    a, loss, arguments = TYPES[kind](), loss_of(name), (0,) if name == "logdet" else (0, 1)
    second = lambda a, x: jax.jvp(lambda a: jax.grad(loss)(a, x), (a,), (a,))
    programs = [
        (both(loss, arguments), thin(3)) for both in (jax.value_and_grad, tj.value_and_grad)
    ]
    if kind != "LowRank":
        programs.append((second, thin(1)[:, 0]))
    for function, x in programs:
        assert dense_in_jaxpr(function, a, x) == []
        assert dense_in_program(function, a, x) == []


def planted(*, densify):
    """A rule for `a @ x` that forms the cotangent of the matrix, or does not."""

    @tj.operation
    def product(a, x):
        return a @ x

    @product.natural_rule
    def product_rule(a, x):
        def product_pullback(y_bar):
            natural = tj.Outer(y_bar, x)
            return natural.to_dense() * 2 / 2 if densify else natural, a.mT @ y_bar

        return product.primal(a, x), product_pullback

    return jax.grad(lambda a, x: jnp.sum(jnp.sin(product(a, x))))


def test_the_detectors_see_a_rule_that_densifies():
    a, x = tj.Kronecker(square(6), square(8)), thin(1)[:, 0]
    for detect in (dense_in_jaxpr, dense_in_program):
        assert detect(planted(densify=True), a, x)
        assert not detect(planted(densify=False), a, x)


def operation_counts(function, *args):
    names = re.findall(r"= \S+ ([\w-]+)\(", compiled(function, *args))
    return collections.Counter(n for n in names if n != "parameter")


def test_a_diagonal_gradient_compiles_to_what_one_would_write_by_hand():
    x = thin(3)

    def ours(diag, x):
        return jnp.sum(jnp.sin(tj.matmul(tj.Diagonal(diag), x)))

    def by_hand(diag, x):
        return jnp.sum(jnp.sin(diag[:, None] * x))

    def hand_gradient(diag, x):
        bar = jnp.cos(diag[:, None] * x)
        return by_hand(diag, x), (jnp.sum(bar * x, axis=1), diag[:, None] * bar)

    d = jnp.arange(1.0, 1 + N)
    counts = operation_counts(jax.value_and_grad(ours, (0, 1)), d, x)
    assert counts["cosine"] > 0
    assert counts["dot"] == 0
    assert counts == operation_counts(jax.value_and_grad(by_hand, (0, 1)), d, x)
    assert counts == operation_counts(hand_gradient, d, x)


# -- factorizations --------------------------------------------------------------------------------

SPECTRAL = {
    "eigvalsh": lambda a, x: jnp.sum(jnp.sin(tj.linalg.eigvalsh(a))),
    "singular values": lambda a, x: jnp.sum(jnp.sin(tj.linalg.svd(a, compute_uv=False))),
    "thin svd": lambda a, x: jnp.sum(
        jnp.sin(tj.matmul(tj.linalg.svd(a, False).U, x[: tj.linalg.svd(a, False).S.size]))
    ),
    "nuclear norm": lambda a, x: tj.norm(a, "nuc"),
    "pinv": lambda a, x: jnp.sum(jnp.sin(tj.matmul(tj.linalg.pinv(a), x))),
    "lstsq": lambda a, x: jnp.sum(jnp.sin(tj.linalg.lstsq(a, x))),
    "qr": lambda a, x: jnp.sum(jnp.sin(tj.matmul(tj.linalg.qr(a).R, x))),
    "factorize": lambda a, x: tj.factorize(a).inv_quad(x) + tj.factorize(a).logdet(),
}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("Diagonal", SPECTRAL),
        ("Kronecker", SPECTRAL),
        ("LowRank", SPECTRAL.keys() - {"eigvalsh", "qr", "factorize"}),
        ("LowRankUpdate", ["factorize"]),
    ],
)
def test_factorizations_form_no_dense_value(kind, names):
    a = TYPES[kind]()
    if kind == "Kronecker":
        a = tj.Kronecker(*(tj.Symmetric(f, "mean") for f in a.factors))
    for name in names:
        assert dense_in_jaxpr(jax.value_and_grad(SPECTRAL[name]), a, thin(3)) == [], name
