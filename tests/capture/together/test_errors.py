"""Bad programs are refused with the equation, the line, and what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

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


BRANCHES = {
    "shape": lambda x: x[:2],
    "dtype": lambda x: x.astype(jnp.float32),
    "type": lambda x: tj.Diagonal(x),
    "tree": lambda x: (x, x),
    "unit": lambda x: tj.quantity(x, "m"),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_of_different_types(name):
    f = lambda x: tj.cond(x[0] > 0, lambda x: 2 * x, BRANCHES[name], x)
    with pytest.raises(TypeError) as error:
        tj.capture(f)(X)
    said = notes(error)
    assert "equation `cond`" in said, said
    assert name == "unit" or "Hint: all branches return the same tree" in said, said
    assert HERE in said, said
    with pytest.raises(TypeError):
        f(X)


def test_carries_that_change_in_a_loop():
    f = lambda x: tj.scan(lambda c, _: (c[:2], None), x, length=2)
    with pytest.raises(TypeError) as error:
        tj.capture(f)(X)
    assert "equation `scan`" in notes(error)
    assert "Hint: a carry keeps its type" in notes(error)
    assert HERE in notes(error)


def test_static_values_that_cannot_be_hashed():
    f = lambda x, n: x * len(n)
    program = tj.capture(tj.jit(f, static_argnums=1))
    with pytest.raises((TypeError, ValueError), match="hash") as error:
        program(X, Unhashable())
    assert HERE in notes(error)

    class Holder(metaclass=tj.CaptureMeta):
        def __init__(self, wires):
            self.wires = wires

    with pytest.raises(TypeError, match="hash") as error:
        tj.capture(lambda x: Holder(Unhashable()))(X)
    assert "Holder" in notes(error)


class Unhashable:
    __hash__ = None

    def __len__(self):
        return 2


def test_replay_of_other_arguments():
    program = tj.capture(lambda d, s, n: tj.solve(tj.Diagonal(d["w"]), X) * n)({"w": X}, "mode", 2)
    with pytest.raises(TypeError, match=r"argument 0\['w'\].*not as captured") as error:
        program({"w": X[:2]}, "mode", 2)
    assert "f64[3]" in str(error.value)
    assert "f64[2]" in str(error.value)
    with pytest.raises(TypeError, match="argument 1"):
        program({"w": X}, "other", 2)
    with pytest.raises(TypeError, match="the arguments"):
        program({"v": X}, "mode", 2)
    with pytest.raises(TypeError, match="argument 0"):
        program({"w": X.astype(jnp.float32)}, "mode", 2)


class Wrong(tj.Interpreter):
    """Handlers that return what does not fit."""

    @tj.handles("sin")
    def sin(self, equation, x):
        return x, x

    @tj.handles("cos")
    def cos(self, equation, x):
        return x[:2]


@pytest.mark.parametrize("runs", ["call", "rewrite"])
def test_a_handler_with_the_wrong_number_of_results(runs):
    f = lambda x: jnp.sin(x) * 2
    with pytest.raises(TypeError, match="its handler returned 2 values") as error:
        Wrong()(f)(X) if runs == "call" else Wrong().rewrite(tj.capture(f)(X))
    assert "wanted: 1, f64[3]" in str(error.value)
    assert HERE in notes(error)
    assert "self.default" in str(error.value)


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


def test_handlers_of_nothing():
    for what in ((), (3,), (None,)):
        with pytest.raises(ValueError, match="handles: name operations"):
            tj.handles(*what)


def test_loops_and_controls_that_make_no_sense():
    with pytest.raises(ValueError, match="must not be 0"):
        tj.for_loop(0, 3, 0)
    with pytest.raises(TypeError, match="takes a function"):
        tj.for_loop(0, 3)(X)
    with pytest.raises(ValueError, match="zeros and ones"):
        tj.ctrl(X, (2,))
    with pytest.raises(ValueError, match="zeros and ones"):
        tj.ctrl(X, ())
    with pytest.raises(ValueError, match="square matrix"):
        tj.ctrl(jnp.ones((2, 3)))
    with pytest.raises(ValueError, match="stacked states"):
        tj.ctrl(lambda x: x, (1, 1))(jnp.ones((2, 3)))
    with pytest.raises(TypeError, match=r"pure number|dimension|unit"):
        tj.ctrl(tj.quantity(jnp.eye(2), "m"))


def test_functions_where_none_belong():
    for call in (lambda: tj.adjoint(None), lambda: tj.ctrl("x")):
        with pytest.raises((TypeError, ValueError), match="takes a"):
            call()


def test_iterating_needs_no_arguments_of_another_type():
    program = tj.capture(lambda x: jnp.sin(x))(X)
    with pytest.raises(TypeError, match="not as captured"):
        Wrong()(program)(np.float32(1))
