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

M23 = np.ones((2, 3))

SHAPES = {
    "matmul": (lambda: tj.matmul(diagonal(3), jnp.ones(4)), r"matmul: .*Diagonal\[3, 3\].*\[4\]"),
    "matmul, dense left": (lambda: jnp.ones((2, 4)) @ diagonal(3), r"matmul: .*\[2, 4\].*\[3, 3\]"),
    "matmul, structured": (lambda: diagonal(3) @ diagonal(2), r"matmul: .*\[3, 3\].*\[2, 2\]"),
    "matmul, Kronecker": (
        lambda: tj.Kronecker(M23, M23) @ jnp.ones(4),
        r"matmul: .*Kronecker\[4, 9\].*\[4\]",
    ),
    "matmul, rank": (lambda: diagonal(3) @ jnp.ones((3, 1, 1)), r"matmul: .*\[1, 1\]"),
    "add": (lambda: diagonal(3) + diagonal(2), r"add: .*\(3, 3\).*\(2, 2\)"),
    "add, dense": (lambda: diagonal(3) + jnp.ones((2, 2)), r"add: .*\(3, 3\).*\(2, 2\)"),
    "subtract": (lambda: diagonal(3) - tj.Fill(1.0, (2, 2)), r"\(3, 3\).*\(2, 2\)"),
    "multiply": (lambda: diagonal(3) * diagonal(2), r"multiply: .*\(3, 3\).*\(2, 2\)"),
    "multiply, dense": (lambda: diagonal(3) * jnp.ones((2, 2)), r"multiply: .*\(3, 3\).*\(2, 2\)"),
    "multiply, Symmetric": (
        lambda: tj.Symmetric(np.eye(3)) * jnp.ones((2, 2)),
        r"multiply: .*\(3, 3\).*\(2, 2\)",
    ),
    "solve, not square": (
        lambda: tj.solve(tj.LowRank(np.ones((2, 1)), np.ones((3, 1))), jnp.ones(2)),
        r"solve: needs a square matrix, got LowRank\[2, 3\]",
    ),
    "solve, right-hand side": (
        lambda: tj.solve(diagonal(3), jnp.ones(2)),
        r"solve: the right-hand side \[2\] does not fit a matrix \[3, 3\]",
    ),
    "solve, Triangular": (
        lambda: tj.solve(tj.Triangular(np.eye(3)), jnp.ones((4, 1))),
        r"right-hand side \[4, 1\]",
    ),
    "solve, blocks": (
        lambda: tj.solve(tj.BlockDiagonal(M23, M23.T), jnp.ones(5)),
        "solve: .*BlockDiagonal.*not square",
    ),
    "solve, factors": (
        lambda: tj.solve(tj.Kronecker(M23, M23.T), jnp.ones(6)),
        r"solve \(Kronecker factor\): needs a square matrix",
    ),
    "inv": (lambda: tj.inv(tj.Kronecker(M23, M23)), "inv.*square"),
    "logdet": (lambda: tj.logdet(tj.BlockDiagonal(M23, np.eye(2))), "logdet: needs a square"),
    "det": (lambda: tj.det(tj.Scaled(M23, 2.0)), "det: needs a square"),
    "cholesky": (lambda: tj.cholesky(tj.Kronecker(M23, M23.T)), "cholesky.*square"),
    "dot": (lambda: tj.dot(diagonal(3), jnp.ones((2, 2))), r"dot: .*\(3, 3\).*\(2, 2\)"),
    "kron": (lambda: tj.kron(diagonal(3), jnp.ones(3)), r"kron: needs two matrices.*\(3,\)"),
    "quadratic_form": (
        lambda: tj.quadratic_form(diagonal(3), jnp.ones(4)),
        r"quadratic_form: .*\(3, 3\).*\(4,\)",
    ),
    "sum": (lambda: tj.sum(diagonal(3), axis=2), "sum: axis 2 is out of range"),
    "solve, dense batch": (
        lambda: tj.solve(jnp.ones((5, 3, 3)), jnp.ones((5, 3))),
        r"solve: the right-hand side \[5, 3\] does not fit a matrix \[3, 3\]",
    ),
    "matmul, dense batches": (
        lambda: tj.matmul(jnp.ones((5, 2, 2)), jnp.ones((4, 2, 2))),
        r"matmul: the batches do not broadcast.*\[5\], \[4\]",
    ),
    "dot, dense": (lambda: tj.dot(jnp.ones(3), jnp.ones((3, 1))), r"dot: .*\(3,\).*\(3, 1\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", SHAPES)
def test_wrong_shapes(case):
    call, words = SHAPES[case]
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


BATCH = jnp.ones((5, 3))
BATCH_MISTAKES = {
    "broadcast": (
        lambda: tj.Diagonal(BATCH) @ tj.Diagonal(BATCH[:4]),
        ("matmul: the batches do not broadcast", r"\[5\], \[4\]"),
    ),
    "right-hand sides": (
        lambda: tj.solve(tj.Diagonal(BATCH), BATCH),  # as jax.numpy: one matrix (5, 3)
        ("solve: the right-hand side", r"\[5, 3\]"),
    ),
    "columns": (
        lambda: tj.solve(tj.Diagonal(BATCH), jnp.ones((4, 3, 1))),
        ("solve: the batches do not broadcast",),
    ),
    "undeclared": (
        lambda: quadratic_of_mine(tj.Diagonal(BATCH), BATCH),
        (r"quadratic_of_mine: there is a batch", r"float64\[5,3\]", "core_ndims", "jax.vmap"),
    ),
    "axis": (lambda: tj.sum(tj.Diagonal(BATCH), axis=3), ("sum: axis 3 is out of range",)),
    "order": (lambda: tj.norm(tj.Diagonal(BATCH), ord=2), ("norm: of order 2", "axis=")),
    "transpose": (lambda: tj.Diagonal(BATCH).T, ("T: ", r"Diagonal\[5,3,3\]", "mT")),
    "np.trace": (lambda: np.trace(tj.Diagonal(BATCH)), ("trace: ", "first two", "linalg")),
    "np.kron": (lambda: np.kron(tj.Diagonal(BATCH), tj.Identity(2)), ("kron: ",)),
    "np.dot": (lambda: tj.numpy.dot(tj.Diagonal(BATCH), tj.Identity(3)), ("dot: ",)),
}


@pytest.mark.parametrize("mistake", BATCH_MISTAKES)
def test_a_mistake_with_a_batch_is_named(mistake):
    call, says = BATCH_MISTAKES[mistake]
    with pytest.raises(tj.ShapeError, match=lines(*says)):
        call()


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

PULLBACKS = {
    "count": (
        lambda y_bar: (GOOD_A,),
        ["weigh_pullback|lambda|weigh_rule", "one cotangent per argument", "expected: 2", "got: 1"],
    ),
    "bare array for a tree": (
        lambda y_bar: (GOOD_A, jnp.ones(())),
        ["weigh_rule: cotangent of p", "wrong tree", "expected: .*'u'", r"got: float64\[\]"],
    ),
    "tree": (
        lambda y_bar: (GOOD_A, {"u": jnp.ones(())}),
        ["weigh_rule: cotangent of p", "wrong tree"],
    ),
    "shape": (
        lambda y_bar: (GOOD_A, {"u": jnp.ones(()), "v": jnp.ones(3)}),
        ["weigh_rule: cotangent of p", "wrong shape", r"expected: \(2,\)", r"got: float64\[3\]"],
    ),
    "scalar for a vector": (
        lambda y_bar: (GOOD_A, {"u": jnp.ones(()), "v": jnp.ones(())}),
        ["weigh_rule: cotangent of p", "wrong shape"],
    ),
    "shape of a structured argument": (
        lambda y_bar: (jnp.ones(3), GOOD_P),
        ["weigh_rule: cotangent of a", "wrong shape", r"expected: \(3, 3\)", r"got: float64\[3\]"],
    ),
    "dtype": (
        lambda y_bar: (GOOD_A, {"u": jnp.ones((), jnp.float16), "v": jnp.ones(2)}),
        ["weigh_rule: cotangent of p", "wrong dtype", "expected: float64", "got: float16"],
    ),
    "dtype of a structured argument": (
        lambda y_bar: (GOOD_A.astype(jnp.float16), GOOD_P),
        ["weigh_rule: cotangent of a", "wrong dtype", "expected: float64", "float16"],
    ),
    "integers": (
        lambda y_bar: (GOOD_A, {"u": jnp.ones((), int), "v": jnp.ones(2)}),
        ["weigh_rule: cotangent of p", "wrong dtype", "int64"],
    ),
    "nothing like an array": (
        lambda y_bar: (GOOD_A, {"u": jnp.ones(()), "v": (1.0, 2.0)}),
        ["weigh_rule: cotangent of p"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PULLBACKS)
@pytest.mark.parametrize("lowering", ["linear", "public"])
def test_wrong_cotangents(case, lowering):
    pullback, words = PULLBACKS[case]
    with tj.rules.lowering(lowering), pytest.raises(tj.CotangentError, match=lines(*words)):
        jax.grad(broken(pullback), (0, 1))(diagonal(3), GOOD_P)


def test_a_half_precision_cotangent_of_a_single_precision_argument():
    weigh = broken(lambda y_bar: (GOOD_A.astype(jnp.float16), GOOD_P))
    narrow = jax.tree.map(lambda v: v.astype(jnp.float32), (diagonal(3), GOOD_P))
    with pytest.raises(tj.CotangentError, match=lines("expected: float32", "float16")):
        jax.grad(weigh)(*narrow)


def test_a_wider_cotangent_is_rounded():
    weigh = broken(lambda y_bar: (GOOD_A, GOOD_P))
    narrow = jax.tree.map(lambda v: v.astype(jnp.float32), (diagonal(3), GOOD_P))
    assert_close(jax.grad(weigh)(*narrow), tj.Diagonal(jnp.ones(3, jnp.float32)))


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
    with pytest.raises(tj.CotangentError, match=lines("weigh_rule", *words)):
        jax.grad(weigh)(diagonal(3), GOOD_P)


def test_a_rule_that_returns_no_pullback():
    total = tj.operation(lambda a: a.total())
    total.natural_rule(lambda a: a.total())
    with pytest.raises(tj.CotangentError, match=lines(r"must return `\(out, pullback\)`")):
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


def dense_only():
    @tj.operation(dense=True)
    def flip(a):
        return jnp.sum(a * a[::-1])

    return flip


def test_the_three_densify_policies():
    flip, a = dense_only(), diagonal(3)
    with (
        tj.densify("error"),
        pytest.raises(
            tj.NoRuleError,
            match=lines(r"flip: Diagonal\[3, 3\]", "9 entries", "flip.implementation", "allow"),
        ),
    ):
        flip(a)
    with pytest.warns(tj.DensifyWarning, match=lines("flip", "9 entries")):
        first = flip(a)
    flip(diagonal(4))  # compiled again, not warned of again (a warning would be an error)
    with tj.densify("allow"):
        assert_close(jax.grad(flip)(a), tj.Diagonal(jax.grad(lambda d: flip(jnp.diag(d)))(a.diag)))
    assert first == flip.__wrapped__(a.to_dense())
    with pytest.raises(ValueError, match="unknown densify policy 'loud'"):
        tj.densify("loud")


def test_the_policy_of_a_context_ends_with_it():
    with pytest.raises(RuntimeError), tj.densify("error"):
        raise RuntimeError
    flip = dense_only()
    with pytest.warns(tj.DensifyWarning):
        flip(tj.Identity(2))


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
            yield tj.solve_lyapunov(a, q)
            yield tj.solve_discrete_lyapunov(a, q)
            yield tj.solve_sylvester(a, d, q)
            yield tj.solve(a, q)
            yield tj.pinv(a)
            yield tj.sqrtm(a)
            yield tj.funm_hermitian(a, jnp.exp)
            yield tj.factorize(a).logdet()
            yield tj.matrix_rank(a)
        yield tj.matrix_power(d, -1)
        yield tj.slogdet(tj.Kronecker(s, d))

    compiled = jax.jit(lambda *args: list(results(*args)))
    of_integers, of_floats = compiled(matrix, q), compiled(matrix.astype(float), q.astype(float))
    for got, want in zip(of_integers, of_floats, strict=True):
        assert_close(got, want)


@pytest.mark.parametrize("n", [0])
def test_zero_sizes(n):
    """The empty product, sum and determinant, and empty gradients of the right shape."""
    makers = {
        "diagonal": tj.Diagonal(jnp.zeros(n)),
        "symmetric": tj.Symmetric(jnp.zeros((n, n))),
        "triangular": tj.Triangular(jnp.zeros((n, n))),
        "fill": tj.Fill(1.0, (n, n)),
        "low rank": tj.LowRank(jnp.zeros((n, 2)), jnp.zeros((n, 2))),
    }
    x = jnp.zeros(n)
    for name, a in makers.items():
        loss = lambda a: jnp.sum(tj.matmul(a, x)) + tj.sum(a) + tj.trace(a)
        value, bar = jax.value_and_grad(loss)(a)
        assert value == 0, name
        assert_close(bar, jax.tree.map(jnp.zeros_like, a))
        natural = tj.grad(loss)(a)
        assert natural.shape == (n, n)
        if name in ("diagonal", "symmetric", "triangular"):
            value, bar = jax.value_and_grad(lambda a: tj.logdet(a) + jnp.sum(tj.solve(a, x)))(a)
            assert value == 0, name
            assert_close(bar, jax.tree.map(jnp.zeros_like, a))


def test_numpy_sees_the_dense_array():
    a = diagonal(3)
    assert isinstance(np.asarray(a), np.ndarray)
    np.testing.assert_array_equal(np.asarray(a), np.diag([1.0, 2.0, 3.0]))
    assert np.asarray(a, np.float32).dtype == np.float32
    assert not hasattr(a, "__jax_array__")  # JAX would densify in silence, and drop structure
    with pytest.raises(TypeError, match="Diagonal"):
        jnp.sin(a)


# -- natural transforms ----------------------------------------------------------------------------


def test_a_gradient_with_a_hidden_part_is_announced():
    a = tj.Scaled(jnp.eye(2), 2.0)
    with pytest.warns(tj.HiddenCotangentWarning, match=lines(r"Scaled\[2,2\]", "jax.grad")):
        tj.grad(lambda a: a.factor**2)(a)


def test_tangents_must_be_tangent():
    square = lambda a: tj.destructure(a) ** 2
    a = diagonal(2)
    with pytest.raises(
        tj.CotangentError, match=lines("jvp: .*not tangent to Diagonal", "tj.project")
    ):
        tj.jvp(square, (a,), (jnp.ones((2, 2)),))
    fine = tj.jvp(square, (a,), (tj.project(a, jnp.ones((2, 2))),))[1]
    assert_close(fine, 2 * a.to_dense())
    unit = tj.Triangular(jnp.eye(2), unit_diagonal=True)
    with pytest.raises(tj.CotangentError, match="not tangent to Triangular"):
        tj.jvp(square, (unit,), (jnp.eye(2),))
    with pytest.raises(tj.CotangentError, match="wrong shape"):
        tj.jvp(square, (a,), (jnp.ones((3, 3)),))


def test_a_non_linear_type_is_no_tangent():
    a = tj.Kronecker(jnp.eye(2), jnp.eye(2))
    with pytest.raises(tj.CotangentError, match=lines("jvp", "another Kronecker", "jax.jvp")):
        tj.jvp(tj.destructure, (a,), (a,))
    _, push = tj.linearize(tj.destructure, a)
    with pytest.raises(tj.CotangentError, match=lines("linearize", "another Kronecker")):
        push(a)


def test_trees_of_tangents_and_cotangents_must_match():
    f = lambda p: {"y": p["a"] * 2.0}
    primal = {"a": jnp.ones(2)}
    with pytest.raises(tj.CotangentError, match="jvp: the tree does not match"):
        tj.jvp(f, (primal,), ({"b": jnp.ones(2)},))
    _, pull = tj.vjp(f, primal)
    with pytest.raises(tj.CotangentError, match="vjp: the tree does not match"):
        pull((jnp.ones(2),))
