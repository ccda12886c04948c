"""Functions that only make instances: what loops, branches, `adjoint` and `ctrl` keep of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj


class Gate(metaclass=tj.CaptureMeta):
    def __init__(self, angle, *, wires):
        self.angle, self.wires = angle, wires


class Same(tj.Interpreter):
    pass


def texts(f, *args):
    program = tj.capture(f)(*args)
    return str(program), str(Same().rewrite(program))


def in_loop(a):
    tj.for_loop(0, 2)(lambda i: Gate(a, wires=i) and None)()


def in_branches(a):
    tj.cond(a > 0, lambda: Gate(a, wires=0) and None, lambda: None)


def in_loop_of_jax(a):
    jax.lax.fori_loop(0, 2, lambda i, x: (Gate(x, wires=i), x)[1], a)


def in_adjoint_of_ctrl(a):
    tj.adjoint(tj.ctrl(lambda a, k: Gate(a, wires=k) and None, wires=(0,)))(a, 1)


@pytest.mark.parametrize(
    "f", [in_loop, in_branches, in_loop_of_jax, in_adjoint_of_ctrl], ids=lambda f: f.__name__
)
def test_a_rewrite_keeps_what_holds_instances(f):
    """Nobody uses the results of these loops: they were dropped with the instances in them."""
    before, after = texts(f, 0.5)
    assert before.count("= Gate") == after.count("= Gate") == 1
    assert after == before


def test_a_loop_without_a_state():
    program = tj.capture(in_loop)(0.5)
    assert [e.name for e in program] == ["for_loop"]
    assert in_loop(0.5) is None
    assert tj.for_loop(0, 2)(lambda i: None)() == ()
    with pytest.raises(TypeError):
        tj.for_loop(0, 2)(lambda i, x, y: None)(1.0, 2.0)


def test_adjoint_of_what_returns_nothing():
    """Its arguments are what they were: a static one is no array in the program."""
    program = tj.capture(in_adjoint_of_ctrl)(0.5)
    assert program[0].programs["f"][0].params["wires"] == (0,)
    assert "wires=1" in str(program)
    assert tj.adjoint(lambda: None)() is None


def test_adjoint_of_a_number_and_by_keyword():
    assert float(tj.adjoint(lambda x: 3 * x)(2.0)) == 6.0
    x = jnp.array([1.0, 2.0])
    f = lambda s, x, *, t: s * t * x
    expected = 3 * 5 * x
    assert jnp.array_equal(tj.adjoint(f)(3.0, x, t=5.0), expected)
    assert jnp.array_equal(jax.jit(tj.adjoint(f))(3.0, x, t=5.0), expected)
    assert jnp.array_equal(tj.capture(tj.adjoint(f))(3.0, x, t=5.0)(3.0, x, t=5.0), expected)


def test_adjoint_traces_once_however_deep():
    calls = []

    def f(x):
        calls.append(1)
        return 2 * x

    deep = f
    for _ in range(6):
        deep = tj.adjoint(deep)
    assert float(deep(jnp.ones(()))) == 2.0
    assert len(calls) == 1


def test_ctrl_with_wires_of_what_returns_something():
    with pytest.raises(tj.CaptureError, match="returns nothing"):
        tj.ctrl(lambda x: 2 * x, wires=(0,))(jnp.ones(2))
    with pytest.raises(ValueError, match="2 controls, and 1 wires"):
        tj.ctrl(lambda x: None, control=(1, 0), wires=(0,))


def test_literals_are_numbers_of_python_and_numpy():
    """JAX keeps them in classes of its own, which no handler should have to know."""
    f = lambda a: (2 * a, Gate(0.25, wires=0), a + np.float32(3))
    program = tj.capture(f)(jnp.ones((), jnp.float32))
    values = [x.value for e in program for x in e.inputs if hasattr(x, "value")]
    assert all(type(v) in (float, np.float32) for v in values)
    assert type(values[1]) is float
    assert [float(v) for v in values] == [2.0, 0.25, 3.0]
    assert str(Same().rewrite(program)) == str(program)
    assert [v.aval.weak_type for e in Same().rewrite(program) for v in e.eqn.invars[-1:]] == [
        v.aval.weak_type for e in program for v in e.eqn.invars[-1:]
    ]
