"""What a call is resolved to: never a silently wrong gradient of fields that a rule cannot see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import assert_close, wave

pytestmark = pytest.mark.core


def stretched(hidden, mark=1.0):
    """`s * a` for a Scaled matrix, the example of an over-parametrised output."""

    @tj.operation
    def stretch(a, s):
        return tj.Scaled(a.matrix, a.factor * s)

    @stretch.natural_rule(hidden=hidden)
    def stretch_rule(a, s):
        def stretch_pullback(out_bar):
            return tj.linalg.multiply(out_bar, s), mark * tj.linalg.pairing(out_bar, a)

        return stretch.primal(a, s), stretch_pullback

    return stretch


def reads_fields(x):
    return jnp.sum(jnp.sin(x.matrix)) + x.factor**3


def reads_array(x):
    return jnp.sum(jnp.sin(tj.destructure(x)))


def arguments():
    return tj.Scaled(wave(jnp.zeros((3, 3))), 1.7), jnp.asarray(0.6)


def gradient(loss, function):
    return jax.jit(jax.grad(lambda a, s: loss(function(a, s)), (0, 1)))(*arguments())


def plain(a, s):
    return tj.Scaled(a.matrix, a.factor * s)


@pytest.mark.parametrize(
    ("hidden", "uses_rule", "exact_for_fields"),
    [("ad", False, True), ("hybrid", True, True), ("natural", True, False)],
)
def test_hidden_cotangents(hidden, uses_rule, exact_for_fields):
    stretch = stretched(hidden)
    with tj.densify("allow"):
        visible = gradient(reads_array, stretch)
        fields = gradient(reads_fields, stretch)
        marked = gradient(reads_array, stretched(hidden, mark=10.0))
    want = gradient(reads_array, plain)
    assert_close(visible, want)
    assert_close(marked[1], 10 * want[1] if uses_rule else want[1])
    truth = gradient(reads_fields, plain)
    if exact_for_fields:
        assert_close(fields, truth)
    else:
        assert not np.allclose(fields[1], truth[1], rtol=1e-3)


@pytest.mark.parametrize("hidden", ["ad", "hybrid"])
def test_forward_mode_of_an_over_parametrised_output(hidden):
    args = arguments()
    tangents = tuple(wave(a, 0.4) for a in args)
    got, want = (
        jax.jit(lambda f=f: jax.jvp(lambda a, s: reads_fields(f(a, s)), args, tangents))()
        for f in (stretched(hidden), plain)
    )
    with tj.densify("allow"):
        assert_close(got, want)


def test_a_second_signature_of_one_plan_is_still_differentiated_by_ad():
    """What was learnt from the first output holds for all outputs of these types."""
    stretch = stretched("ad")
    gradient(reads_fields, stretch)
    a = tj.Scaled(wave(jnp.zeros((2, 2))), 1.1)
    truth = jax.grad(lambda a: reads_fields(plain(a, jnp.asarray(2.0))))(a)
    assert_close(jax.grad(lambda a: reads_fields(stretch(a, jnp.asarray(2.0))))(a), truth)


def test_no_rule_at_all_is_ad_of_the_implementation():
    stretch = tj.operation(plain)
    assert_close(gradient(reads_fields, stretch), gradient(reads_fields, plain))


def test_a_list_is_refused_by_name_where_arrays_are_taken():
    """JAX would trace its numbers one by one, and raise of that, somewhere inside."""
    with pytest.raises(TypeError, match="solve: `b` is a list"):
        tj.solve(tj.Diagonal(jnp.ones(2)), [1.0, 2.0])
    with pytest.raises(TypeError, match="logdet: `a` is a list"):
        jax.jit(lambda: tj.logdet([[1.0]]))()

    @tj.operation
    def first(pair):
        return pair[0] * 1.0

    assert first([jnp.ones(()), 2.0]) == 1.0
