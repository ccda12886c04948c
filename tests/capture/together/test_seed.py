"""What the document that capture comes from does with primitives and metaclasses, done here."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from program_checks import is_same


@tj.higher_order(curried=True)
def repeat(func, n):
    def new_func(*args, **kwargs):
        return jax.lax.fori_loop(0, n, lambda _, a: func(*a, **kwargs), args)

    return new_func


def func(x, y, y_coeff=1.0):
    return (x + 1, y_coeff * y)


class Gate(metaclass=tj.CaptureMeta):
    def __init__(self, a, wires=0):
        self.a, self.wires = a, wires

    def doubled(self):
        return Gate(2 * self.a, wires=self.wires)


class Other(metaclass=tj.CaptureMeta):
    def __init__(self, a):
        self.a = a


@tj.operation(dense=True)
def my_func(x):
    return x**2


def test_an_operation_of_ones_own_is_one_equation(float32):
    program = tj.capture(my_func)(jnp.float32(3))
    assert str(program) == "{ lambda ; a:f32[]. let\n    b:f32[] = my_func a\n  in (b,) }"
    assert program(jnp.float32(3)) == 9


def test_repeat_is_an_equation_whose_number_moves(float32):
    workflow = lambda x, n: repeat(func, n)(x, 2.0, y_coeff=2.0)
    assert workflow(0.5, 2) == (2.5, 8.0)
    program = tj.capture(workflow)(0.5, 2)
    assert is_same(program(0.5, 2), workflow(0.5, 2))
    (equation,) = program
    assert (equation.kind, equation.name, list(equation.programs)) == (
        "higher_order", "repeat", ["func"],
    )  # fmt: skip
    assert "repeat[\n" in str(program)
    assert "mul" in str(equation.programs["func"])


def test_another_number_of_repetitions_is_no_new_trace(float32):
    traced, calls = [], []

    def counted(x):
        traced.append(x)
        return (2 * x,)

    program = tj.capture(lambda x, n: repeat(counted, n)(x))(0.5, 2)
    before = len(traced)

    @jax.jit
    def times(x, n):
        calls.append(n)
        return program(x, n)

    assert [times(0.5, n)[0] for n in range(4)] == [0.5, 1, 2, 4]
    assert len(traced) == before
    assert len(calls) == 1


def test_keyword_arguments_reach_the_function(float32):
    program = tj.capture(lambda x, c: repeat(func, 3)(x, 1.0, y_coeff=c))(0.5, 2.0)
    assert program(0.5, 3.0) == (3.5, 27.0)


def test_a_construction_is_an_equation_with_its_own_type(float32):
    program = tj.capture(lambda x: Gate(x, wires=1))(0.5)
    assert str(program) == (
        "{ lambda ; a:f32[]. let\n    b:Gate<f32[], wires=1> = Gate[wires=1] a\n  in (b,) }"
    )
    (equation,) = program
    assert equation.kind == "class"
    assert equation.outputs[0].kind is Gate
    made = program(0.25)
    assert type(made) is Gate
    assert made.a == 0.25
    assert made.wires == 1


def test_outside_it_is_a_plain_instance():
    gate = Gate(0.5)
    assert isinstance(gate, Gate)
    assert gate.a == 0.5
    assert type(gate.a) is float
    assert not isinstance(gate, jax.Array)
    assert not tj.is_structured(gate)
    assert "Gate" not in str(jax.make_jaxpr(lambda x: Gate(x).a)(0.5))


def test_unused_instances_stay_in_order(float32):
    def circuit(x):
        Gate(x)
        Other(2.0)
        Gate(x, wires=2)

    program = tj.capture(circuit)(0.5)
    expected = ["Gate", "Other", "Gate"]
    assert [e.name for e in program] == expected
    assert [e.name for e in tj.Interpreter().rewrite(program)] == expected
    assert program(0.5) is None


def test_classes_are_arguments_and_results(float32):
    program = tj.capture(lambda g: (g, g.a + 1))(Gate(0.5))
    assert str(program).splitlines()[0] == "{ lambda ; a:Gate<f32[], wires=0>. let"
    gate, number = program(Gate(0.25))
    assert type(gate) is Gate
    assert (gate.a, number) == (0.25, 1.25)
    with pytest.raises(TypeError, match="not as captured"):
        program(Other(0.5))
    with pytest.raises(TypeError, match="not as captured"):
        program(Gate(0.5, wires=1))


def test_classes_in_loops_and_branches(float32):
    def f(x):
        made = tj.cond(x > 0, lambda x: Gate(x), lambda x: Gate(-x), x)

        def body(i, g):
            Other(x)
            return Gate(g.a * 2)

        return tj.fori_loop(0, 3, body, made)

    program = tj.capture(f)(-0.5)
    cond = next(e for e in program if e.name == "cond")
    assert [[e.name for e in p][-1] for p in cond.programs.values()] == ["Gate", "Gate"]
    loop = next(e for e in program if e.name == "fori_loop")
    (body,) = loop.programs.values()
    assert [e.name for e in body if e.kind == "class"] == ["Other", "Gate"]
    assert program(-0.5).a == f(-0.5).a == 4.0


def test_a_method_that_makes_an_instance_is_an_equation(float32):
    program = tj.capture(lambda x: Gate(x, wires=3).doubled())(0.5)
    assert [e.name for e in program if e.kind == "class"] == ["Gate", "Gate"]
    assert program(0.5).a == 1.0
    assert program(0.5).wires == 3


def test_programs_of_classes_have_adjoints_and_controls(float32):
    def circuit(x):
        Gate(x)
        Other(x)

    class Reverse(tj.Interpreter):
        def __init__(self, seen):
            self.seen, self.turned = seen, False

        @tj.handles(Gate, Other)
        def gate(self, equation, a, **kwargs):
            self.seen.append((equation.name, self.turned))
            return self.default(equation, a, **kwargs)

        @tj.handles(tj.adjoint)
        def adjoint(self, equation, f, *args):
            self.turned = not self.turned
            f(*args)
            self.turned = not self.turned

    whole = lambda x: (circuit(x), tj.adjoint(tj.adjoint(circuit))(x), tj.adjoint(circuit)(x))[0]
    program = tj.capture(whole)(0.5)
    assert [e.name for e in program] == ["Gate", "Other", "adjoint", "adjoint"]
    inner = program[2].programs["f"]
    assert [e.name for e in inner] == ["adjoint"]
    seen = []
    Reverse(seen)(whole)(0.5)
    assert [n for n, _ in seen] == ["Gate", "Other"] * 3
    assert [t for _, t in seen] == [False] * 4 + [True] * 2


def test_equal_leaves_do_not_make_equal_types():
    a, b = Gate(0.5), Other(0.5)
    assert jax.tree.structure(a) != jax.tree.structure(b)
    assert jax.tree.leaves(a) == jax.tree.leaves(b)
    with pytest.raises((TypeError, ValueError)):
        jax.tree.map(np.add, a, b)
