"""Between natural and structural: `wrap_natural_pullback`, kinds of cotangents, conjugation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import FLOAT0, assert_close, assert_same_derivatives, wave

pytestmark = pytest.mark.core


def arrays():
    """One of each type, 3 by 3."""
    m = jnp.asarray([[2.0, 0.3, -1.0], [0.7, 3.0, 0.2], [0.1, -0.4, 1.5]])
    return {
        "dense": m,
        "diagonal": tj.Diagonal(jnp.asarray([1.0, 2.0, 3.0])),
        "symmetric": tj.Symmetric(m),
        "triangular": tj.Triangular(m),
        "scaled": tj.Scaled(m, 1.7),
        "fill": tj.Fill(0.5, (3, 3)),
        "low rank": tj.LowRank(m[:, :1], m[:, 1:2]),
    }


def my_product_rrule(a, b):
    """The rule of the document: primal, natural pullback, one call of the utility."""
    c = tj.destructure(a) @ tj.destructure(b)

    def natural_pullback_for_product(c_bar):
        return c_bar @ tj.destructure(b).T, tj.destructure(a).T @ c_bar

    return c, tj.wrap_natural_pullback(natural_pullback_for_product, c, a, b)


def test_wrapped_by_hand_it_is_the_pullback_of_ad_for_every_pair_of_types():
    seed = wave(jnp.zeros((3, 3)))

    def both(pairs):
        return [
            (
                my_product_rrule(a, b)[1](seed),
                jax.vjp(lambda a, b: tj.destructure(a) @ tj.destructure(b), a, b)[1](seed),
            )
            for a, b in pairs
        ]

    of = arrays().values()
    for ours, reference in jax.jit(both)([(a, b) for a in of for b in of]):
        assert_close(ours, reference)


def test_structured_output_keyword_arguments_and_arguments_without_a_cotangent():
    a, scale = arrays()["symmetric"], jnp.asarray(2.0)
    out = tj.Symmetric(scale * a.to_dense(), "mean")

    def pullback(out_bar):
        assert isinstance(out_bar, tj.Symmetric)
        bar = out_bar.to_dense()
        return scale * bar, None, {"scale": jnp.sum(bar * a.to_dense())}

    wrapped = tj.wrap_natural_pullback(pullback, out, a, jnp.asarray(3), scale=scale, unused=a)
    seed = wave(out)
    a_bar, n_bar, keywords = wrapped(seed)
    symmetric = (seed.data + seed.data.T) / 2
    assert_close(a_bar, a.replace(data=2 * symmetric))
    assert n_bar.dtype == FLOAT0
    assert_close(keywords["scale"], jnp.sum(symmetric * a.data))
    assert_close(keywords["unused"], tj.tangents.zero_tangent(a))


def test_a_single_argument_may_return_the_bare_cotangent():
    a = arrays()["diagonal"]
    wrapped = tj.wrap_natural_pullback(lambda y_bar: y_bar * jnp.ones((3, 3)), jnp.zeros(()), a)
    assert_close(wrapped(jnp.asarray(2.0)), (tj.Diagonal(jnp.full(3, 2.0)),))


def test_several_outputs_callables_strings_and_scalars():
    a = arrays()["diagonal"]
    out = {"d": a, "s": jnp.asarray(1.0)}
    pullback = lambda bar: (None, None, bar["d"] * 2.0, bar["s"])
    wrapped = tj.wrap_natural_pullback(pullback, out, jnp.sin, "name", a, 1.5)
    bars = wrapped({"d": a, "s": jnp.asarray(4.0)})
    assert bars[:2] == (None, None)
    assert_close(bars[2:], (tj.Diagonal(2 * a.diag), jnp.asarray(4.0)))


def mixed_rule(cotangents):
    @tj.operation
    def scale_twice(a, s):
        return tj.Scaled(a.matrix * s, a.factor)

    @scale_twice.natural_rule(cotangents=cotangents, output="structural", hidden="natural")
    def scale_twice_rule(a, s):
        def scale_twice_pullback(out_bar):
            assert isinstance(out_bar, tj.Scaled)
            bar = tj.Scaled(out_bar.matrix * s, out_bar.factor)
            if cotangents is None:
                bar = tj.tangents.natural(a, bar)
            return bar, jnp.sum(out_bar.matrix * a.matrix)

        return scale_twice.primal(a, s), scale_twice_pullback

    return scale_twice


@jax.custom_vjp
def amplify(a, c):
    return tj.Scaled(a, c)


def amplify_backwards(args, bar):
    natural = lambda n: (
        tj.linalg.multiply(tj.destructure(n), args[1]),
        tj.linalg.pairing(n, args[0]),
    )
    return tj.wrap_natural_pullback(natural, tj.Scaled(*args), *args)(bar)


amplify.defvjp(lambda a, c: (tj.Scaled(a, c), (a, c)), amplify_backwards)


def test_a_part_that_is_dropped_is_warned_of():
    a = jnp.asarray([[0.3, 1.2], [0.5, -0.7]])
    assert_close(jax.grad(lambda c: tj.linalg.sum(amplify(a, c)))(0.7), jnp.sum(a))
    with pytest.warns(tj.errors.HiddenCotangentWarning, match=r"the cotangent of Scaled\[2,2\]"):
        jax.grad(lambda c: amplify(a, c).factor ** 2)(0.7)


def test_structural_cotangents_reach_fields_that_natural_ones_cannot_express():
    """With structural cotangents on both sides a rule is exact although fields are read."""
    a, s = arrays()["scaled"], jnp.asarray(0.6)
    reads = lambda x: jnp.sum(jnp.sin(x.matrix)) + x.factor**3
    truth = jax.grad(lambda a, s: reads(tj.Scaled(a.matrix * s, a.factor)), (0, 1))(a, s)
    exact = mixed_rule(("structural", "natural"))
    assert_close(jax.grad(lambda a, s: reads(exact(a, s)), (0, 1))(a, s), truth)
    natural = mixed_rule(None)
    bars = jax.grad(lambda a, s: reads(natural(a, s)), (0, 1))(a, s)
    assert not np.allclose(bars[0].factor, truth[0].factor, rtol=1e-3)


def complex_rule(convention):
    @tj.operation
    def product(a, b):
        return tj.destructure(a) @ b

    @product.natural_rule(convention=convention)
    def product_rule(a, b):
        def product_pullback(c_bar):  # as in ChainRules: Ā = C̄ Bᴴ, B̄ = Aᴴ C̄
            return c_bar @ b.conj().T, tj.destructure(a).conj().T @ c_bar

        return product.primal(a, b), product_pullback

    return product


@pytest.mark.parametrize("kind", [tj.Symmetric, tj.Hermitian, tj.Triangular])
def test_a_complex_rule_of_chainrules_is_conjugated_in_one_place(kind):
    m = wave(jnp.zeros((2, 2), complex), 0.2)
    a, b = kind(m), wave(m, 1.4)
    product = complex_rule("chainrules")
    assert_same_derivatives(product, jnp.matmul, a, b)
    seed = wave(m, 2.0)
    plain = jax.vjp(complex_rule("jax"), a, b)[1](seed)
    truth = jax.vjp(lambda a, b: tj.destructure(a) @ b, a, b)[1](seed)
    assert not np.allclose(plain[1], truth[1], rtol=1e-3)
