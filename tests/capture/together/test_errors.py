"""Bad programs are refused with the equation, the line, and what to do."""

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj

pytestmark = pytest.mark.core

X = jnp.asarray([0.5, -1.0, 2.0])
HERE = "test_errors.py"


def notes(error):
    return "\n".join([str(error.value), *getattr(error.value, "__notes__", [])])


@pytest.mark.parametrize(
    "what", [3.0, X, None, tj.Diagonal(X)], ids=["number", "array", "none", "matrix"]
)
def test_capture_of_what_is_no_function(what):
    with pytest.raises(TypeError, match="nothing to capture") as error:
        tj.capture(what)
    assert "tj.capture(f)(x)" in str(error.value)
    assert type(what).__name__ in str(error.value)


BRANCHES = "Hint: all branches return the same tree"
BODIES = {
    "shape": (lambda x: x[:2], BRANCHES),
    "dtype": (lambda x: x.astype(jnp.float32), BRANCHES),
    "type": (lambda x: tj.Diagonal(x), BRANCHES),
    "tree": (lambda x: (x, x), BRANCHES),
    "unit": (lambda x: tj.quantity(x, "m"), "Hint"),
    "carry": (lambda x: tj.scan(lambda c, _: (c[:2], None), x, length=2)[0], "a carry keeps its"),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_of_different_types_are_refused_with_equation_and_line(name):
    body, hint = BODIES[name]
    f = lambda x: tj.cond(x[0] > 0, lambda x: 2 * x, body, x)
    with pytest.raises(TypeError) as error:
        tj.capture(f)(X)
    said = notes(error)
    assert f"equation `{'scan' if name == 'carry' else 'cond'}`" in said, said
    assert name == "unit" or hint in said, said
    assert HERE in said, said
    with pytest.raises(TypeError):
        f(X)


def test_static_values_that_cannot_be_hashed():
    f = lambda x, n: x * len(n)
    program = tj.capture(tj.jit(f, static_argnums=1))
    with pytest.raises((TypeError, ValueError), match="hash") as error:
        program(X, Unhashable())
    assert HERE in notes(error)

    class Holder(metaclass=tj.programs.CaptureMeta):
        def __init__(self, wires):
            self.wires = wires

    with pytest.raises(TypeError, match="hash") as error:
        tj.capture(lambda x: Holder(Unhashable()))(X)
    assert "Holder" in notes(error)


class Unhashable:
    __hash__ = None

    def __len__(self):
        return 2


class Wrong(tj.programs.Interpreter):
    """Handlers that return what does not fit."""

    @tj.programs.handles("sin")
    def sin(self, equation, x):
        return x, x

    @tj.programs.handles("cos")
    def cos(self, equation, x):
        return x[:2]


@pytest.mark.parametrize("runs", ["call", "rewrite"])
def test_handler_with_the_wrong_number_of_results(runs):
    f = lambda x: jnp.sin(x) * 2
    with pytest.raises(TypeError, match="its handler returned 2 values") as error:
        Wrong()(f)(X) if runs == "call" else Wrong().rewrite(tj.capture(f)(X))
    for words in ("wanted: 1, f64[3]", HERE, "self.default"):
        assert words in notes(error)


OF_STATE = {
    "scan": lambda x: tj.scan(lambda c, _: (jnp.cos(c), None), x, length=2),
    "fori_loop": lambda x: tj.fori_loop(0, 2, lambda i, c: jnp.cos(c), x),
    "jax": lambda x: jax.lax.fori_loop(0, 2, lambda i, c: jnp.cos(c), x),
    "cond": lambda x: tj.cond(x[0] > 0, jnp.cos, lambda x: x, x),
}


@pytest.mark.parametrize("name", OF_STATE)
def test_an_interpreter_that_changes_the_type_of_a_carry(name):
    with pytest.raises(TypeError) as error:
        Wrong()(OF_STATE[name])(X)
    said = notes(error)
    assert "In the equation `" in said, said
    assert "Hint: " in said, said
    assert HERE in said, said


def test_an_error_in_a_body_names_the_innermost_equation_once():
    def fails(i, c):
        raise RuntimeError("of the user")

    f = lambda x: tj.cond(x[0] > 0, lambda x: tj.fori_loop(0, 2, fails, x), lambda x: x, x)
    with pytest.raises(RuntimeError, match="of the user") as error:
        tj.capture(f)(X)
    said = [n for n in error.value.__notes__ if n.startswith("In the equation")]
    assert len(said) == 1
    assert "`fori_loop`" in said[0]
    assert HERE in said[0]


NONSENSE = [
    (ValueError, "must not be 0", lambda: tj.programs.for_loop(0, 3, 0)),
    (TypeError, "takes a function", lambda: tj.programs.for_loop(0, 3)(X)),
    (ValueError, "zeros and ones", lambda: tj.programs.ctrl(X, (2,))),
    (ValueError, "zeros and ones", lambda: tj.programs.ctrl(X, ())),
    (ValueError, "square matrix", lambda: tj.programs.ctrl(jnp.ones((2, 3)))),
    (ValueError, "stacked states", lambda: tj.programs.ctrl(lambda x: x, (1, 1))(jnp.ones((2, 3)))),
    (
        TypeError,
        "pure number|dimension|unit",
        lambda: tj.programs.ctrl(tj.quantity(jnp.eye(2), "m")),
    ),
    (
        TypeError,
        "returns nothing",
        lambda: tj.programs.ctrl(lambda x: 2 * x, wires=(0,))(jnp.ones(2)),
    ),
    (
        ValueError,
        "2 controls, and 1",
        lambda: tj.programs.ctrl(lambda x: None, control=(1, 0), wires=(0,)),
    ),
    ((TypeError, ValueError), "takes a", lambda: tj.programs.ctrl("x")),
    (TypeError, "takes a function", lambda: tj.programs.adjoint(None)),
    (TypeError, "takes a function", lambda: tj.programs.adjoint(3.0)),
    (ValueError, "handles: name operations", lambda: tj.programs.handles()),
    (ValueError, "handles: name operations", lambda: tj.programs.handles(3)),
    (ValueError, "handles: name operations", lambda: tj.programs.handles(None)),
]


@pytest.mark.parametrize(("error", "words", "call"), NONSENSE)
def test_calls_that_make_no_sense_are_refused(error, words, call):
    with pytest.raises(error, match=words):
        call()
