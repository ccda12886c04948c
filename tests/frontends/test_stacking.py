"""`tj.linalg.stack`, `concatenate`: a batch where one type holds it, otherwise dense, visibly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import examples_of


def dense(x):
    return np.asarray(tj.destructure(x))


def test_one_of_each_type_twice_is_a_batch_of_the_type():
    """Types without numbers become one that counts, as everywhere in a batch."""
    types = [t for t in tj.rules.registered_array_types() if t.__module__.startswith("tanjax.")]
    samples = [x for t in types for x in examples_of(t) if x.ndim == 2]
    with tj.densify("error"):
        batches = jax.jit(lambda xs: [tj.linalg.stack([x, x]) for x in xs])(samples)
    for x, batch in zip(samples, batches, strict=True):
        assert batch.shape == (2, *x.shape)
        assert tj.rules.is_structured(batch)
        if type(x) not in (tj.Identity, tj.Zero):
            assert type(batch) is type(x)
        np.testing.assert_array_equal(dense(batch), np.stack([dense(x)] * 2))


@pytest.mark.parametrize("axis", [0, 1, -3])
def test_a_batch_has_several_places_for_a_new_axis(axis):
    x = tj.Toeplitz(np.arange(6.0).reshape(2, 3))
    with tj.densify("error"):
        out = tj.linalg.stack([x, x + x, x], axis)
    assert isinstance(out, tj.Toeplitz)
    np.testing.assert_array_equal(dense(out), np.stack([dense(x), 2 * dense(x), dense(x)], axis))


@pytest.mark.parametrize("module", [tj, tj.numpy, np], ids=lambda m: m.__name__)
def test_every_namespace_stacks_and_concatenates(module):
    x, y = tj.Diagonal(np.arange(6.0).reshape(2, 3)), tj.Diagonal(np.ones((1, 3)))
    with tj.densify("error"):
        stacked, joined = module.stack([y, y + y]), module.concatenate([x, y])
    assert isinstance(stacked, tj.Diagonal)
    assert isinstance(joined, tj.Diagonal)
    np.testing.assert_array_equal(dense(stacked), np.stack([dense(y), 2 * dense(y)]))
    np.testing.assert_array_equal(dense(joined), np.concatenate([dense(x), dense(y)]))


def test_gradients_reach_every_array():
    def loss(xs):
        return jnp.sum(tj.solve(tj.linalg.stack(xs), jnp.ones((2, 2, 1))))

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
@pytest.mark.parametrize("join", [tj.linalg.stack, tj.linalg.concatenate])
def test_stack_without_a_type_becomes_dense_visibly(join, case):
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
        assert tj.linalg.stack([definite, definite]).definite
        assert not tj.linalg.stack([definite, plain]).definite


def test_quantities_are_in_the_unit_of_the_first():
    x = tj.Diagonal([1.0, 2.0]) * tj.unit("km")
    y = tj.Diagonal([3.0, 4.0]) * tj.unit("m")
    with tj.densify("error"):
        out = tj.linalg.stack([x, y])
    assert isinstance(out.value, tj.Diagonal)
    np.testing.assert_allclose(out.to_value("m").diag, [[1000.0, 2000.0], [3.0, 4.0]])
    with pytest.raises(tj.UnitError):
        tj.linalg.stack([x, tj.Diagonal([3.0, 4.0]) * tj.unit("s")])
    with tj.densify("allow"), pytest.raises(tj.UnitError):
        tj.linalg.stack([x, tj.Diagonal([3.0, 4.0])])


@pytest.mark.parametrize("join", [tj.linalg.stack, tj.linalg.concatenate])
def test_arrays_that_do_not_fit_are_refused(join):
    eye = tj.Identity(2)
    for args, says in (
        (([],), "at least one array"),
        (([eye, tj.Diagonal([1.0])],), "shapes do not fit"),
        (([eye, np.ones(2)],), "shapes do not fit"),
        (([eye, eye], 5), "axis 5 is out of range"),
    ):
        with pytest.raises(tj.ShapeError, match=f"{join.__name__}: .*{says}"):
            join(*args)
    with pytest.raises(TypeError, match=f"{join.__name__}: needs a list or tuple"):
        join(eye)
