"""Wrong input is refused where it is given, with a message that says what, where and what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import FLOAT0, assert_close


def diagonal(n=3, dtype=float):
    return tj.Diagonal(jnp.arange(1, n + 1).astype(dtype))


def lines(*words):
    """A pattern for words that follow each other, on whatever lines."""
    return r"(?s)" + r".*".join(words)


# -- shapes of the arguments of operations ---------------------------------------------------------

M23, BATCH = np.ones((2, 3)), jnp.ones((5, 3))
LOW_RANK = tj.LowRank(np.ones((2, 1)), np.ones((3, 1)))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tj.matmul(diagonal(3), jnp.ones(4)), r"matmul: .*Diagonal\[3, 3\].*\[4\]"),
        (lambda: jnp.ones((2, 4)) @ diagonal(3), r"matmul: .*\[2, 4\].*\[3, 3\]"),
        (lambda: diagonal(3) @ diagonal(2), r"matmul: .*\[3, 3\].*\[2, 2\]"),
        (lambda: tj.Kronecker(M23, M23) @ jnp.ones(4), r"matmul: .*Kronecker\[4, 9\].*\[4\]"),
        (lambda: diagonal(3) @ jnp.ones((3, 1, 1)), r"matmul: .*\[1, 1\]"),
        (lambda: tj.matmul(BATCH[:, None], BATCH[:4, :, None]), r"batches do not .*\[5\], \[4\]"),
        (lambda: diagonal(3) + diagonal(2), r"add: .*\(3, 3\).*\(2, 2\)"),
        (lambda: diagonal(3) + jnp.ones((2, 2)), r"add: .*\(3, 3\).*\(2, 2\)"),
        (lambda: diagonal(3) - tj.Fill(1.0, (2, 2)), r"\(3, 3\).*\(2, 2\)"),
        (lambda: diagonal(3) * diagonal(2), r"multiply: .*\(3, 3\).*\(2, 2\)"),
        (lambda: diagonal(3) * jnp.ones((2, 2)), r"multiply: .*\(3, 3\).*\(2, 2\)"),
        (lambda: tj.Symmetric(np.eye(3)) * jnp.ones((2, 2)), r"multiply: .*\(3, 3\).*\(2, 2\)"),
        (lambda: tj.solve(LOW_RANK, jnp.ones(2)), r"solve: needs a square .*LowRank\[2, 3\]"),
        (lambda: tj.solve(diagonal(3), jnp.ones(2)), r"right-hand side \[2\] .* \[3, 3\]"),
        (lambda: tj.solve(tj.Triangular(np.eye(3)), jnp.ones((4, 1))), r"right-hand side \[4, 1\]"),
        (lambda: tj.solve(jnp.ones((5, 3, 3)), BATCH), r"right-hand side \[5, 3\] .* \[3, 3\]"),
        (lambda: tj.solve(tj.BlockDiagonal(M23, M23.T), jnp.ones(5)), "BlockDiagonal.*not square"),
        (lambda: tj.solve(tj.Kronecker(M23, M23.T), jnp.ones(6)), "Kronecker factor.* a square"),
        (lambda: tj.inv(tj.Kronecker(M23, M23)), "inv.*square"),
        (lambda: tj.logdet(tj.BlockDiagonal(M23, np.eye(2))), "logdet: needs a square"),
        (lambda: tj.det(tj.Scaled(M23, 2.0)), "det: needs a square"),
        (lambda: tj.linalg.cholesky(tj.Kronecker(M23, M23.T)), "cholesky.*square"),
        (
            lambda: tj.linalg.pairing(diagonal(3), jnp.ones((2, 2))),
            r"pairing: .*\(3, 3\).*\(2, 2\)",
        ),
        (lambda: tj.linalg.pairing(jnp.ones(3), jnp.ones((3, 1))), r"pairing: .*\(3,\).*\(3, 1\)"),
        (lambda: tj.linalg.kron(diagonal(3), jnp.ones(3)), r"kron: needs two matrices.*\(3,\)"),
        (lambda: tj.linalg.quadratic_form(diagonal(3), jnp.ones(4)), r"form: .*\(3, 3\).*\(4,\)"),
        (lambda: tj.linalg.sum(diagonal(3), axis=2), "sum: axis 2 is out of range"),
    ],
)
def test_shapes_that_do_not_fit_are_named(call, words):
    with tj.densify("allow"), pytest.raises(tj.ShapeError, match=lines(words)):
        call()


def test_shapes_are_checked_under_jit_and_in_gradients_too():
    f = lambda d, x: jnp.sum(tj.matmul(tj.Diagonal(d), x))
    with pytest.raises(tj.ShapeError, match="matmul"):
        jax.jit(jax.grad(f))(jnp.ones(3), jnp.ones(4))


@tj.operation
def quadratic_of_mine(a, x):
    """An operation that declares nothing of batches."""
    return x @ (a @ x)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda d: d @ tj.Diagonal(BATCH[:4]), ["matmul: the batches do not", r"\[5\], \[4\]"]),
        # as jax.numpy: one matrix (5, 3)
        (lambda d: tj.solve(d, BATCH), ["solve: the right-hand side", r"\[5, 3\]"]),
        (lambda d: tj.solve(d, jnp.ones((4, 3, 1))), ["solve: the batches do not broadcast"]),
        (
            lambda d: quadratic_of_mine(d, BATCH),
            ["quadratic_of_mine: there is a batch", r"float64\[5,3\]", "core_ndims", "jax.vmap"],
        ),
        (lambda d: tj.linalg.sum(d, axis=3), ["sum: axis 3 is out of range"]),
        (lambda d: tj.norm(d, ord=2), ["norm: of order 2", "axis="]),
        (lambda d: d.T, ["T: ", r"Diagonal\[5,3,3\]", "mT"]),
        (lambda d: np.trace(d), ["trace: ", "first two", "linalg"]),
        (lambda d: np.kron(d, tj.Identity(2)), ["kron: "]),
        (lambda d: tj.numpy.dot(d, tj.Identity(3)), ["dot: "]),
    ],
)
def test_a_mistake_with_a_batch_is_named(call, words):
    with pytest.raises(tj.ShapeError, match=lines(*words)):
        call(tj.Diagonal(BATCH))


# -- what a rule returns ---------------------------------------------------------------------------


def broken(pullback, *, output=None):
    @tj.operation
    def weigh(a, p):
        return jnp.sum(tj.destructure(a)) * p["u"] * jnp.sum(p["v"])

    @weigh.natural_rule
    def weigh_rule(a, p):
        y = weigh.primal(a, p)
        return (y if output is None else output(y)), pullback

    return weigh


GOOD_A, GOOD_P = jnp.ones((3, 3)), {"u": jnp.ones(()), "v": jnp.ones(2)}


def tree(u=GOOD_P["u"], v=GOOD_P["v"]):
    """The cotangents of both arguments, parts of the second in other words."""
    return GOOD_A, {"u": u, "v": v}


@pytest.mark.parametrize("lowering", ["linear", "public"])
@pytest.mark.parametrize(
    ("bars", "words"),
    [
        ((GOOD_A,), ["weigh_rule", "one cotangent per argument", "expected: 2", "got: 1"]),
        ((GOOD_A, jnp.ones(())), ["p", "wrong tree", "expected: .*'u'", r"got: float64\[\]"]),
        ((GOOD_A, {"u": jnp.ones(())}), ["p", "wrong tree"]),
        (tree(v=jnp.ones(3)), ["p", "wrong shape", r"expected: \(2,\)", r"got: float64\[3\]"]),
        (tree(v=jnp.ones(())), ["p", "wrong shape"]),
        (tree(u=jnp.ones((), jnp.float16)), ["p", "wrong dtype", "float64", "got: float16"]),
        (tree(u=jnp.ones((), int)), ["p", "wrong dtype", "int64"]),
        (tree(v=(1.0, 2.0)), ["p"]),
        ((jnp.ones(3), GOOD_P), ["a", "wrong shape", r"expected: \(3, 3\)", r"float64\[3\]"]),
        ((GOOD_A.astype(jnp.float16), GOOD_P), ["a", "wrong dtype", "float64", "float16"]),
    ],
)
def test_wrong_cotangents_are_named(bars, words, lowering):
    if words[0] in ("a", "p"):
        words = [f"weigh_rule: cotangent of {words[0]}", *words[1:]]
    with tj.rules.lowering(lowering), pytest.raises(tj.errors.CotangentError, match=lines(*words)):
        jax.grad(broken(lambda _: bars), (0, 1))(diagonal(3), GOOD_P)


def test_a_cotangent_may_be_wider_than_its_argument_and_not_narrower():
    single = jax.tree.map(lambda v: v.astype(jnp.float32), (diagonal(3), GOOD_P))
    gradient = jax.grad(broken(lambda _: (GOOD_A, GOOD_P)))(*single)
    assert_close(gradient, tj.Diagonal(jnp.ones(3, jnp.float32)))
    half = GOOD_A.astype(jnp.float16)
    with pytest.raises(tj.errors.CotangentError, match=lines("expected: float32", "float16")):
        jax.grad(broken(lambda _: (half, GOOD_P)))(*single)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (lambda y: y[None], ["rule's output differs", r"shape=\(\)", "op.primal"]),
        (lambda y: (y, y), ["rule's output differs", "op.primal"]),
        (lambda y: y.astype(jnp.float32), ["rule's output differs", "float64", "float32"]),
    ],
)
def test_a_rule_whose_output_is_not_that_of_the_implementation(output, words):
    weigh = broken(lambda y_bar: (GOOD_A, GOOD_P), output=output)
    with pytest.raises(tj.errors.CotangentError, match=lines("weigh_rule", *words)):
        jax.grad(weigh)(diagonal(3), GOOD_P)


def test_a_rule_that_returns_no_pullback():
    total = tj.operation(lambda a: a.total())
    total.natural_rule(lambda a: a.total())
    with pytest.raises(tj.errors.CotangentError, match=lines(r"must return `\(out, pullback\)`")):
        jax.grad(total)(diagonal(3))


# -- no rule, densifying ---------------------------------------------------------------------------


def test_no_implementation_lists_the_nearest_with_their_origin():
    @tj.operation(generic=False)
    def mystery(a, b): ...

    mystery.implementation(tj.Diagonal, tj.Diagonal)(lambda a, b: a)
    mystery.implementation(tj.Fill, tj.Fill)(lambda a, b: a)
    words = [
        r"mystery: no implementation for \(Diagonal, Dense\)",
        r"\(Diagonal, !Diagonal\)  from .*test_bad_input",
        r"\(!Fill, !Fill\)  from .*test_bad_input",
        "Hint: .*mystery.implementation",
    ]
    with pytest.raises(tj.NoRuleError, match=lines(*words)):
        mystery(diagonal(3), jnp.ones(3))
    empty = tj.operation(lambda a: a, generic=False)
    with pytest.raises(tj.NoRuleError, match="nothing is registered"):
        empty(diagonal(3))


def test_the_three_densify_policies():
    @tj.operation(dense=True)
    def flip(a):
        return jnp.sum(a * a[::-1])

    a = diagonal(3)
    says = lines(r"flip: Diagonal\[3, 3\]", "9 entries", "flip.implementation", "allow")
    with pytest.raises(tj.NoRuleError, match=says), tj.densify("error"):
        flip(a)  # the policy ends with its context, also by an error
    with pytest.warns(tj.DensifyWarning, match=lines("flip", "9 entries")):
        first = flip(a)
    flip(diagonal(4))  # compiled again, not warned of again (a warning would be an error)
    with tj.densify("allow"):
        assert_close(jax.grad(flip)(a), tj.Diagonal(jax.grad(lambda d: flip(jnp.diag(d)))(a.diag)))
    assert first == flip.__wrapped__(a.to_dense())
    with pytest.raises(ValueError, match="unknown densify policy 'loud'"):
        tj.densify("loud")


# -- integers, zero sizes, NumPy -------------------------------------------------------------------


def test_integers_have_float0_gradients_and_no_natural_ones():
    x = jnp.arange(3.0)
    a = diagonal(3, int)
    with tj.densify("allow"):
        loss = lambda a, x: jnp.sum(tj.destructure(a).astype(float) @ x)
        bar = jax.grad(loss, allow_int=True)(a, x)
        assert bar.diag.dtype == FLOAT0
        assert_close(jax.grad(loss, 1)(a, x), a.diag.astype(float))
    assert_close(tj.matmul(a, jnp.arange(3)), jnp.asarray([0, 2, 6]))
    with pytest.raises(
        TypeError, match=lines("argument 0", "nothing to differentiate", "int64", "Hint")
    ):
        tj.grad(loss)(a, x)


def test_systems_and_functions_of_integers_are_those_of_floats():
    """Lyapunov equations rounded their solution to integers; others raised errors of JAX."""
    matrix, q = np.array([[4, 1], [1, 3]]), np.array([[1, 2], [2, 5]])

    def results(matrix, q):
        s, d = tj.Symmetric(matrix), tj.Diagonal(jnp.diagonal(matrix))
        for a in (s, d):
            yield tj.linalg.solve_lyapunov(a, q)
            yield tj.linalg.solve_discrete_lyapunov(a, q)
            yield tj.linalg.solve_sylvester(a, d, q)
            yield tj.solve(a, q)
            yield tj.linalg.pinv(a)
            yield tj.linalg.sqrtm(a)
            yield tj.linalg.funm_hermitian(a, jnp.exp)
            yield tj.factorize(a).logdet()
            yield tj.linalg.matrix_rank(a)
        yield tj.linalg.matrix_power(d, -1)
        yield tj.linalg.slogdet(tj.Kronecker(s, d))

    compiled = jax.jit(lambda *args: list(results(*args)))
    of_integers, of_floats = compiled(matrix, q), compiled(matrix.astype(float), q.astype(float))
    for got, want in zip(of_integers, of_floats, strict=True):
        assert_close(got, want)


@pytest.mark.parametrize(
    "a",
    [
        tj.Diagonal(jnp.zeros(0)),
        tj.Symmetric(jnp.zeros((0, 0))),
        tj.Triangular(jnp.zeros((0, 0))),
        tj.Fill(1.0, (0, 0)),
        tj.LowRank(jnp.zeros((0, 2)), jnp.zeros((0, 2))),
    ],
    ids=lambda a: type(a).__name__,
)
def test_empty_matrices_have_empty_gradients(a):
    """The empty product, sum and determinant, and empty gradients of the right shape."""
    losses = [lambda a: jnp.sum(tj.matmul(a, jnp.zeros(0))) + tj.linalg.sum(a) + tj.trace(a)]
    if not isinstance(a, tj.Fill | tj.LowRank):
        losses.append(lambda a: tj.logdet(a) + jnp.sum(tj.solve(a, jnp.zeros(0))))
    for loss in losses:
        value, bar = jax.value_and_grad(loss)(a)
        assert value == 0
        assert_close(bar, jax.tree.map(jnp.zeros_like, a))
        assert tj.grad(loss)(a).shape == (0, 0)


def test_jax_does_not_make_a_structured_array_dense():
    """It would in silence, and drop the structure."""
    with pytest.raises(TypeError, match="Diagonal"):
        jnp.sin(diagonal(3))
    assert np.asarray(diagonal(3), np.float32).dtype == np.float32  # NumPy is asked to


# -- natural transforms ----------------------------------------------------------------------------


def test_a_gradient_with_a_hidden_part_is_announced():
    a = tj.Scaled(jnp.eye(2), 2.0)
    with pytest.warns(tj.errors.HiddenCotangentWarning, match=lines(r"Scaled\[2,2\]", "jax.grad")):
        tj.grad(lambda a: a.factor**2)(a)


DOUBLE = lambda p: {"y": p["a"] * 2.0}
PRIMAL = {"a": jnp.ones(2)}
UNIT = tj.Triangular(jnp.eye(2), unit_diagonal=True)
KRONECKER = tj.Kronecker(jnp.eye(2), jnp.eye(2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: tj.jvp(tj.destructure, (diagonal(2),), (jnp.ones((2, 2)),)),
            "jvp: .*not tangent to Diagonal.*tj.tangents.project",
        ),
        (lambda: tj.jvp(tj.destructure, (UNIT,), (jnp.eye(2),)), "not tangent to Triangular"),
        (lambda: tj.jvp(tj.destructure, (diagonal(2),), (jnp.ones((3, 3)),)), "wrong shape"),
        (
            lambda: tj.jvp(tj.destructure, (KRONECKER,), (KRONECKER,)),
            "jvp.*another Kronecker.*jax.jvp",
        ),
        (
            lambda: tj.linearize(tj.destructure, KRONECKER)[1](KRONECKER),
            "linearize.*another Kronecker",
        ),
        (lambda: tj.jvp(DOUBLE, (PRIMAL,), ({"b": jnp.ones(2)},)), "jvp: the tree does not match"),
        (lambda: tj.vjp(DOUBLE, PRIMAL)[1]((jnp.ones(2),)), "vjp: the tree does not match"),
    ],
)
def test_tangents_and_cotangents_that_do_not_fit(call, words):
    with pytest.raises(tj.errors.CotangentError, match=lines(words)):
        call()
