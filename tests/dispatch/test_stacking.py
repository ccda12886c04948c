"""`tj.stack` and `tj.concatenate`: a batch where one type holds it, otherwise dense, visibly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing._algebra import algebra_samples

SAMPLES = algebra_samples()


def dense(x):
    return np.asarray(tj.destructure(x))


def test_one_of_each_type_twice_is_a_batch_of_the_type():
    """Types without numbers become one that counts, as everywhere in a batch."""
    with tj.densify("error"):
        stacked = jax.jit(lambda xs: {k: tj.stack([x, x]) for k, x in xs.items()})(SAMPLES)
    for name, x in SAMPLES.items():
        assert stacked[name].shape == (2, 4, 4), name
        assert tj.is_structured(stacked[name])
        if name not in ("Identity", "Zero"):
            assert type(stacked[name]) is type(x)
        np.testing.assert_array_equal(dense(stacked[name]), np.stack([dense(x)] * 2))


@pytest.mark.parametrize("join", [tj.numpy.stack, np.stack, tj.stack])
def test_every_door_stacks(join):
    x, y = tj.Diagonal([1.0, 2.0]), tj.Diagonal([3.0, 4.0])
    with tj.densify("error"):
        out = join([x, y])
    assert isinstance(out, tj.Diagonal)
    np.testing.assert_array_equal(dense(out), np.stack([dense(x), dense(y)]))


@pytest.mark.parametrize("axis", [0, 1, -3])
def test_a_batch_has_several_places_for_a_new_axis(axis):
    x = tj.Toeplitz(np.arange(6.0).reshape(2, 3))
    with tj.densify("error"):
        out = tj.stack([x, x + x, x], axis)
    assert isinstance(out, tj.Toeplitz)
    np.testing.assert_array_equal(dense(out), np.stack([dense(x), 2 * dense(x), dense(x)], axis))


def test_batches_are_concatenated():
    x, y = tj.Diagonal(np.arange(6.0).reshape(2, 3)), tj.Diagonal(np.ones((1, 3)))
    for join in (tj.concatenate, tj.numpy.concatenate, np.concatenate):
        with tj.densify("error"):
            out = join([x, y])
        assert isinstance(out, tj.Diagonal)
        np.testing.assert_array_equal(dense(out), np.concatenate([dense(x), dense(y)]))


def test_gradients_reach_every_array():
    def loss(xs):
        return jnp.sum(tj.solve(tj.stack(xs), jnp.ones((2, 2, 1))))

    xs = [tj.Diagonal([1.0, 2.0]), tj.Diagonal([4.0, 5.0])]
    for x, g in zip(xs, jax.grad(loss)(xs), strict=True):
        np.testing.assert_allclose(g.diag, -1 / x.diag**2)


UNLIKE = {
    "types": ([tj.Diagonal([1.0, 2.0]), tj.Symmetric(np.eye(2))], 0),
    "dense": ([tj.Diagonal([1.0, 2.0]), np.eye(2)], 0),
    "patterns": ([tj.Triangular(np.eye(2)), tj.Triangular(np.eye(2), lower=False)], 0),
    "widths": ([tj.LowRank(np.eye(2), np.eye(2)), tj.LowRank(np.eye(2)[:1].T, np.ones((2, 1)))], 0),
    "axis": ([tj.Diagonal([1.0, 2.0]), tj.Diagonal([3.0, 4.0])], 1),
}  # fmt: skip


@pytest.mark.parametrize("case", UNLIKE)
@pytest.mark.parametrize("join", [tj.stack, tj.concatenate])
def test_what_no_type_holds_becomes_dense_visibly(join, case):
    arrays, axis = UNLIKE[case]
    with tj.densify("error"), pytest.raises(tj.NoRuleError, match=join.__name__):
        join(arrays, axis)
    with tj.densify("allow"):
        out = join(arrays, axis)
    expected = getattr(np, join.__name__)([dense(x) for x in arrays], axis)
    np.testing.assert_array_equal(out, expected)


def test_a_promise_stays_only_where_all_make_it():
    plain, definite = tj.Symmetric(np.eye(2)), tj.Symmetric(np.eye(2), definite=True)
    with tj.densify("error"):
        assert tj.stack([definite, definite]).definite
        assert not tj.stack([definite, plain]).definite


def test_quantities_are_in_the_unit_of_the_first():
    x = tj.Diagonal([1.0, 2.0]) * tj.unit("km")
    y = tj.Diagonal([3.0, 4.0]) * tj.unit("m")
    with tj.densify("error"):
        out = tj.stack([x, y])
    assert isinstance(out.value, tj.Diagonal)
    np.testing.assert_allclose(out.to_value("m").diag, [[1000.0, 2000.0], [3.0, 4.0]])
    with pytest.raises(tj.UnitError):
        tj.stack([x, tj.Diagonal([3.0, 4.0]) * tj.unit("s")])
    with tj.densify("allow"), pytest.raises(tj.UnitError):
        tj.stack([x, tj.Diagonal([3.0, 4.0])])


MISTAKES = {
    "nothing": (lambda f: f([]), "at least one array"),
    "shapes": (lambda f: f([tj.Identity(2), tj.Diagonal([1.0])]), "shapes do not fit"),
    "ranks": (lambda f: f([tj.Identity(2), np.ones(2)]), "shapes do not fit"),
    "axis": (lambda f: f([tj.Identity(2), tj.Identity(2)], 5), "axis 5 is out of range"),
}


@pytest.mark.parametrize("join", [tj.stack, tj.concatenate])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(join, mistake):
    call, says = MISTAKES[mistake]
    with pytest.raises(tj.ShapeError, match=f"{join.__name__}: .*{says}"):
        call(join)


@pytest.mark.parametrize("join", [tj.stack, tj.concatenate])
def test_one_array_is_no_list(join):
    with pytest.raises(TypeError, match=f"{join.__name__}: needs a list or tuple"):
        join(tj.Identity(2))
