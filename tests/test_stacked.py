"""Equal blocks as one batch: what a process with one device does, which tests have not.

Tests run with several devices, where blocks stay apart. Here the rules are told that there is one.
"""

import pickle
from functools import partial

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import Samples, check_operation

S = Samples(1)


@pytest.fixture(scope="module")
def one_device():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "device_count", lambda: 1)
        jax.clear_caches()  # what was traced for several devices
        yield
    jax.clear_caches()


def blocks(m, n):
    return tj.BlockDiagonal(*(S.normal(m, n) + 3 * jnp.eye(m, n) for _ in range(3)))


def program(operation, *args):
    return str(jax.make_jaxpr(operation)(*args))


def is_batch(a):
    """True if the product is one of the batch of all blocks."""
    first = jnp.asarray(a.blocks[0])
    whole = f"f64[{len(a.blocks)},{','.join(map(str, first.shape))}]"
    return whole in program(tj.matmul, a, jnp.ones(a.shape[1]))


def test_with_several_devices_blocks_stay_apart():
    if jax.device_count() == 1:
        pytest.skip("this process has one device")
    assert not is_batch(blocks(3, 3))


@pytest.mark.parametrize(
    ("operation", "args"),
    [
        (tj.solve, (blocks(2, 2), S.normal(6, 2))),
        (tj.logdet, (blocks(2, 2),)),
        (tj.matmul, (blocks(1, 2), S.normal(6))),
        (tj.matmul, (blocks(2, 1), S.normal(3, 2))),
    ],
    ids=["solve", "logdet", "wide", "tall"],
)
def test_a_batch_passes_the_checks_of_the_kit(one_device, operation, args):
    assert is_batch(args[0])
    with jax.numpy_dtype_promotion("standard"):
        assert check_operation(operation, *args).scalars > 0


def test_the_program_is_a_batch(one_device):
    """One factorisation and one product, however many blocks there are."""
    a, b = blocks(3, 3), S.normal(9, 2)
    for text in (program(tj.solve, a, b), program(tj.logdet, a)):
        assert text.count("= lu ") == 1
        assert "f64[3,3,3]" in text
    assert program(tj.matmul, a, b).count("dot_general") == 1
    for operation in (tj.solve, tj.matmul):
        assert operation(a, jnp.zeros((9, 0))).shape == (9, 0)


@jax.numpy_dtype_promotion("standard")
def test_blocks_that_differ_stay_apart(one_device):
    """In shape, in dtype, in type, or too large to copy."""
    eye = jnp.eye(3)
    assert is_batch(tj.BlockDiagonal(eye, eye))
    for other in (jnp.eye(2), eye.astype(jnp.float32), tj.Diagonal(jnp.ones(3))):
        assert not is_batch(tj.BlockDiagonal(eye, other))
    assert not is_batch(tj.BlockDiagonal(eye))
    large = jnp.eye(129)
    assert not is_batch(tj.BlockDiagonal(large, large))


STACKS = {
    "dense": lambda x: x,
    "Symmetric": lambda x: tj.Symmetric(x, definite=True),
    "Scaled": lambda x: tj.Scaled(tj.Triangular(x), jnp.array([2.0, 1.0, 3.0])),
}
OPERATIONS = {
    "to_dense": lambda a, b: a.to_dense(),
    "mT": lambda a, b: a.mT,
    "matmul": lambda a, b: (
        a @ b,
        b.T @ a,
        a @ a,
        a @ tj.Diagonal(b[:, 0]),
        tj.Diagonal(b[:, 0]) @ a,
    ),
    "solve": lambda a, b: (tj.solve(a, b), tj.solve(a, a @ a)),
    "determinants": lambda a, b: (tj.logdet(a), tj.linalg.slogdet(a), tj.det(a)),
    "inverses": lambda a, b: (tj.inv(a), tj.linalg.pinv(a)),
    "sums": lambda a, b: (a + a, 2.0 * a, a + tj.Diagonal(b[:, 0]), a + tj.Identity(6)),
    "entrywise": lambda a, b: (
        tj.linalg.multiply(a, a),
        tj.linalg.multiply(a, b @ b.T),
        a[1:3, 2],
        a[0:2, 0:2],
    ),
    "reductions": lambda a, b: (
        tj.trace(a),
        tj.linalg.diagonal(a),
        tj.linalg.sum(a),
        tj.norm(a),
        tj.linalg.pairing(a, b @ b.T),
    ),
    "functions": lambda a, b: (tj.linalg.expm(a), tj.linalg.matrix_power(a, 2)),
    "factorize": lambda a, b: (tj.factorize(a).solve(b), tj.factorize(a).logdet()),
    "fields": lambda a, b: (a.canonical(), a.conj(), a.astype(jnp.complex128)),
}


@pytest.mark.parametrize("kind", STACKS)
def test_a_stack_of_blocks_is_the_matrix_of_the_same_blocks(kind):
    """In every operation, with its gradient, mapped and compiled: against blocks of their own."""
    data = jax.vmap(lambda x: x @ x.T + jnp.eye(2))(S.normal(3, 2, 2))
    b, scales = S.normal(6, 2), jnp.array([1.0, 2.0])

    def loss(name, form, data):
        out = OPERATIONS[name](form(STACKS[kind](data)), b)
        leaves = jax.tree.leaves(out, is_leaf=tj.rules.is_structured)
        return sum(jnp.sum(jnp.sin(jnp.real(tj.destructure(leaf)))) for leaf in leaves)

    def all_of(form):
        each = {name: jax.value_and_grad(partial(loss, name, form)) for name in OPERATIONS}
        every = lambda c: {name: f(c * data) for name, f in each.items()}
        with tj.densify("allow"):
            return jax.jit(jax.vmap(every))(scales)

    def apart(batch):
        block = lambda i: jax.tree.map(lambda x: x[i], batch)
        return tj.BlockDiagonal(*map(block, range(3)))

    got, expected = all_of(tj.BlockDiagonal.from_stack), all_of(apart)
    for name in OPERATIONS:
        for g, e in zip(got[name], expected[name], strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-6, atol=1e-8, err_msg=name)


FACTORED = {
    "factorize": lambda a, b: (
        tj.factorize(a).solve(b),
        tj.factorize(a).solve(b[:, 0], transposed=True),
        tj.factorize(a).solve(jnp.stack([b, 2 * b])),
        tj.factorize(a).slogdet(),
        tj.factorize(a).diagonal_of_inverse(),
    ),
    "root": lambda a, b: (tj.factorize(a).root() @ b, tj.factorize(a).root().H @ b[:, 0]),
    "both": lambda a, b: tj.linalg.inv_quad_logdet(a, b),
    "eigh": lambda a, b: tj.linalg.eigh(a),
    "eigvalsh": lambda a, b: tj.linalg.eigvalsh(a),
    "svd": lambda a, b: (tj.linalg.svd(a), tj.linalg.svd(a, compute_uv=False)),
    "qr": lambda a, b: (tj.linalg.qr(a), tj.linalg.qr(a, "r")),
    "lu": lambda a, b: tj.linalg.lu(a),
    "norms": lambda a, b: (tj.norm(a, 2), tj.norm(a, -2), tj.norm(a, "nuc")),
    "funm_multiply": lambda a, b: (
        tj.linalg.funm_multiply(a, b, jnp.exp),
        tj.linalg.funm_multiply(a, b[:, 0], jnp.exp),
    ),
}


def definite_stack(count):
    data = jax.vmap(lambda x: x @ x.T + jnp.eye(2))(S.normal(count, 2, 2))
    return tj.BlockDiagonal.from_stack(tj.Symmetric(data, "mean", definite=True))


@pytest.mark.parametrize("name", FACTORED)
def test_factors_of_a_stack_are_those_of_its_blocks(name):
    """With their gradients, in a program that has as many equations for nine as for three."""

    def loss(a, b):
        leaves = jax.tree.leaves(FACTORED[name](a, b), is_leaf=tj.rules.is_structured)
        return sum(jnp.sum(jnp.sin(tj.destructure(leaf))) for leaf in leaves)

    def total(a, b):
        leaves = jax.tree.leaves(FACTORED[name](a, b))
        return sum(jnp.sum(x) for x in leaves if jnp.issubdtype(x.dtype, jnp.inexact))

    a, b = definite_stack(3), S.normal(6, 2)
    value, bar = jax.value_and_grad(loss)(a, b)
    want, bars = jax.value_and_grad(loss)(tj.BlockDiagonal(*a.blocks), b)
    np.testing.assert_allclose(value, want, rtol=1e-10)
    for block, expected in zip(bar.blocks, bars.blocks, strict=True):
        np.testing.assert_allclose(block.data, expected.data, rtol=1e-8, atol=1e-10)
    few, many = (
        program(jax.grad(total), definite_stack(n), S.normal(2 * n, 2)).count(" = ") for n in (3, 9)
    )
    assert few == many


def test_decompositions_of_a_stack_are_stacks():
    a = definite_stack(3)
    found = (tj.linalg.eigh(a).eigenvectors, tj.linalg.svd(a).U, *tj.linalg.qr(a), *tj.linalg.lu(a))
    assert all(type(x.blocks) is type(a.blocks) for x in found)
    diagonal = tj.BlockDiagonal.from_stack(tj.Diagonal(S.normal(3, 2)))
    w, v = tj.linalg.eigh(diagonal)  # identities, which are no batch
    np.testing.assert_allclose(tj.destructure(v @ tj.Diagonal(w) @ v.mT), tj.destructure(diagonal))
    wide = tj.BlockDiagonal.from_stack(S.normal(3, 1, 2))
    for operation in (tj.linalg.lu, tj.factorize):
        with pytest.raises(tj.ShapeError, match="square"):
            operation(wide)
    empty = tj.factorize(tj.BlockDiagonal.from_stack(jnp.zeros((3, 0, 0))))
    assert empty.solve(jnp.zeros((0, 2))).shape == (0, 2)


def test_a_stack_stays_one_array_in_results_and_gradients():
    stack = tj.Symmetric(jax.vmap(lambda x: x @ x.T + jnp.eye(2))(S.normal(3, 2, 2)), definite=True)
    a, b = tj.BlockDiagonal.from_stack(stack), S.normal(6)
    gradient = jax.grad(lambda a: jnp.sum(jnp.sin(tj.solve(a, b))))(a)
    for x in (
        a,
        gradient,
        tj.inv(a),
        tj.linalg.cholesky(a),
        a.mT,
        a @ a,
        2.0 * a,
        a + a,
        tj.linalg.assert_definite(a),
    ):
        assert [leaf.shape for leaf in jax.tree.leaves(x)] == [(3, 2, 2)]
    text = program(tj.solve, a, b)
    assert text.count("= cholesky") == 1
    assert "concatenate" not in text
    assert (a + tj.Identity(6)).shape == (6, 6)
    length = tj.BlockDiagonal.from_stack(tj.quantity(S.normal(3, 2, 2), "m"))
    assert isinstance(length.value, tj.BlockDiagonal)
    assert length.unit == tj.units.unit("m")
    batch = tj.BlockDiagonal.from_stack(S.normal(4, 3, 2, 1))
    assert (batch.shape, batch.batch_shape) == ((4, 6, 3), (4,))
    assert (batch @ jnp.ones(3)).shape == (4, 6)
    same = pickle.loads(pickle.dumps(a))
    np.testing.assert_array_equal(same.to_dense(), a.to_dense())
    for blocks in (jnp.eye(2), tj.Diagonal(jnp.ones(2)), jnp.zeros((0, 2, 2))):
        with pytest.raises(tj.ShapeError, match="from_stack"):
            tj.BlockDiagonal.from_stack(blocks)


def test_a_stack_exports_with_any_number_of_blocks():
    (count,) = jax.export.symbolic_shape("count")
    stack = jax.ShapeDtypeStruct((count, 2, 2), jnp.float64)
    solve = jax.jit(lambda x: tj.solve(tj.BlockDiagonal.from_stack(x), jnp.ones(2 * x.shape[0])))
    x = S.normal(3, 2, 2) + 3 * jnp.eye(2)
    dense = jax.jit(lambda x: tj.BlockDiagonal.from_stack(x).to_dense())
    for f in (solve, dense):
        exported = jax.export.deserialize(jax.export.export(f)(stack).serialize())
        np.testing.assert_allclose(exported.call(x), f(x), rtol=1e-12)
    taken = jax.export.export(jax.jit(tj.logdet))(tj.BlockDiagonal.from_stack(x))
    again = jax.export.deserialize(taken.serialize())
    np.testing.assert_allclose(
        again.call(tj.BlockDiagonal.from_stack(x)), jnp.linalg.slogdet(x)[1].sum()
    )


def test_equal_structured_blocks_of_their_own_are_one_batch(one_device):
    data = [S.normal(2, 2) for _ in range(3)]
    a = tj.BlockDiagonal(*(tj.Symmetric(x @ x.T + jnp.eye(2), definite=True) for x in data))
    assert program(tj.solve, a, jnp.ones(6)).count("= cholesky") == 1
    assert check_operation(tj.solve, a, S.normal(6)).scalars > 0
