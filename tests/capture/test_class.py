"""Classes whose construction is an equation: types, parameters, order, loops, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

pytestmark = pytest.mark.core


class Gate(metaclass=tj.programs.CaptureMeta):
    def __init__(self, angle, wires=0):
        if isinstance(wires, tuple) and len(wires) > 2:
            raise ValueError("at most two wires")
        self.angle, self.wires = angle, wires

    def doubled(self):
        return Gate(2 * self.angle, wires=self.wires)


class Tilted(Gate):
    def __init__(self, angle):
        super().__init__(angle, wires=(1, 2))
        self.axis = "tilted"


class Other(metaclass=tj.programs.CaptureMeta):
    def __init__(self, angle):
        self.angle = angle


class Pair(metaclass=tj.programs.CaptureMeta):
    def __init__(self, first, second):
        self.parts = {"first": first, "second": second}

    def type_text(self):
        return "Pair"


def names(program):
    return [e.name for e in program if e.kind == "class"]


def test_construction_is_an_equation_with_its_own_type(float32):
    """Integers and texts are static, floats move; a method that makes an instance is seen, too."""
    program = tj.capture(lambda x: Gate(x, wires=1))(0.5)
    assert str(program) == (
        "{ lambda ; a:f32[]. let\n    b:Gate<f32[], wires=1> = Gate[wires=1] a\n  in (b,) }"
    )
    (equation,) = program
    assert (equation.kind, equation.params) == ("class", {"wires": 1})
    assert equation.outputs[0].kind is Gate
    made = program(0.25)
    assert type(made) is Gate
    assert (made.angle, made.wires) == (0.25, 1)
    assert jax.tree.leaves(made) == [0.25]
    program = tj.capture(lambda x: Gate(x, wires=3).doubled())(0.5)
    assert names(program) == ["Gate", "Gate"]
    assert (program(0.5).angle, program(0.5).wires) == (1.0, 3)


def test_instance_outside_of_capture_is_plain():
    gate, other = Gate(0.5), Other(0.5)
    assert isinstance(gate, Gate)
    assert type(gate.angle) is float
    assert not isinstance(gate, jax.Array)
    assert not tj.rules.is_structured(gate)
    assert "Gate" not in str(jax.make_jaxpr(lambda x: Gate(x).angle)(0.5))
    assert jax.tree.structure(gate) != jax.tree.structure(other)
    with pytest.raises((TypeError, ValueError)):
        jax.tree.map(np.add, gate, other)


def test_subclass_is_a_class_of_its_own(float32):
    """And a handler of its base sees it."""
    program = tj.capture(lambda x: Tilted(x))(0.5)
    assert "b:Tilted<f32[], axis='tilted', wires=(1, 2)> = Tilted a" in str(program)
    seen = []

    class Count(tj.programs.Interpreter):
        @tj.programs.handles(Gate)
        def gate(self, equation, *args, **kwargs):
            seen.append(equation.name)
            return self.default(equation, *args, **kwargs)

    out = Count()(lambda x: (Gate(x), Tilted(x)))(0.5)
    assert seen == ["Gate", "Tilted"]
    assert [type(x) for x in out] == [Gate, Tilted]


def test_attributes_that_are_instances_are_typed(float32):
    """A class may say how its type prints."""
    program = tj.capture(lambda x: Pair(Gate(x), tj.Diagonal(x[None])).parts)(jnp.float32(1))
    assert ":Pair = Pair " in str(program)
    out = program(jnp.float32(2))
    assert type(out["first"]) is Gate
    assert type(out["second"]) is tj.Diagonal


def test_instances_are_arguments_and_results(float32):
    program = tj.capture(lambda g: (g, g.angle + 1))(Gate(0.5))
    assert str(program).splitlines()[0] == "{ lambda ; a:Gate<f32[], wires=0>. let"
    gate, number = program(Gate(0.25))
    assert type(gate) is Gate
    assert (gate.angle, number) == (0.25, 1.25)
    for wrong in (Other(0.5), Gate(0.5, wires=1)):
        with pytest.raises(TypeError, match="not as captured"):
            program(wrong)
    with pytest.raises(TypeError, match="static"):
        tj.capture(lambda g: g)(Gate(0.5, wires=(0, 1)))(Gate(0.5, wires=(1, 0)))


def test_constructors_that_fail_raise_while_tracing():
    with pytest.raises(ValueError, match="at most two wires"):
        tj.capture(lambda x: Gate(x, wires=(0, 1, 2)))(0.5)
    with pytest.raises(ValueError, match="dictionary"):

        class Slotted(metaclass=tj.programs.CaptureMeta):
            __slots__ = ("a",)


def test_instance_without_numbers_is_an_equation(float32):
    class Barrier(metaclass=tj.programs.CaptureMeta):
        def __init__(self, wires):
            self.wires = wires

    program = tj.capture(lambda x: (x, Barrier((0, 1))))(0.5)
    assert "b:Barrier<wires=(0, 1)> = Barrier[wires=(0, 1)]" in str(program)
    x, made = program(0.5)
    assert (x, made.wires) == (0.5, (0, 1))


def test_instances_cross_transformations(float32):
    f = lambda x: Gate(x).doubled().angle ** 2
    program = tj.capture(f)(0.5)
    assert jax.grad(program)(0.5) == jax.grad(f)(0.5) == 4.0
    assert jnp.array_equal(jax.vmap(program)(jnp.arange(3.0)), jax.vmap(f)(jnp.arange(3.0)))
    gradient = tj.capture(tj.grad(lambda g: g.doubled().angle ** 2))(Gate(0.5))(Gate(0.5))
    assert type(gradient) is Gate
    assert gradient.angle == 4.0


def test_unused_instances_stay_in_order(float32):
    def circuit(x):
        Gate(x)
        Other(2.0)
        Gate(x, wires=2)

    program = tj.capture(circuit)(0.5)
    assert (
        names(program)
        == names(tj.programs.Interpreter().rewrite(program))
        == ["Gate", "Other", "Gate"]
    )
    assert program(0.5) is None


def in_adjoint_of_ctrl(a):
    tj.programs.adjoint(tj.programs.ctrl(lambda a, k: Gate(a, wires=k) and None, wires=(0,)))(a, 1)


WITHOUT_RESULTS = {
    "loop": lambda a: tj.programs.for_loop(0, 2)(lambda i: Gate(a, wires=i) and None)(),
    "branches": lambda a: tj.cond(a > 0, lambda: Gate(a) and None, lambda: None),
    "loop of JAX": lambda a: jax.lax.fori_loop(0, 2, lambda i, x: (Gate(x, wires=i), x)[1], a),
    "adjoint of ctrl": in_adjoint_of_ctrl,
}


@pytest.mark.parametrize("where", WITHOUT_RESULTS)
def test_rewrite_keeps_equations_without_results_that_hold_instances(where):
    before = tj.capture(lambda a: (WITHOUT_RESULTS[where](a), None)[1])(0.5)
    after = tj.programs.Interpreter().rewrite(before)
    assert str(before).count("= Gate") == 1
    assert str(after) == str(before)


def test_adjoint_of_a_function_without_a_result_keeps_static_arguments():
    program = tj.capture(in_adjoint_of_ctrl)(0.5)
    assert program[0].programs["f"][0].params["wires"] == (0,)
    assert "wires=1" in str(program)
    assert tj.programs.adjoint(lambda: None)() is None


def test_loop_without_a_state_returns_nothing():
    assert [e.name for e in tj.capture(WITHOUT_RESULTS["loop"])(0.5)] == ["for_loop"]
    assert tj.programs.for_loop(0, 2)(lambda i: None)() == ()
    with pytest.raises(TypeError):
        tj.programs.for_loop(0, 2)(lambda i, x, y: None)(1.0, 2.0)


def test_instances_are_results_of_loops_and_branches(float32):
    def f(x):
        made = tj.cond(x > 0, lambda x: Gate(x), lambda x: Gate(-x), x)

        def body(i, g):
            Other(x)
            return Gate(g.angle * 2)

        return tj.fori_loop(0, 3, body, made)

    program = tj.capture(f)(-0.5)
    bodies = [p for e in program for p in e.programs.values()]
    assert [names(p) for p in bodies] == [["Gate"], ["Gate"], ["Other", "Gate"]]
    assert program(-0.5).angle == f(-0.5).angle == 4.0


def test_handlers_of_classes_follow_adjoints(float32):
    def circuit(x):
        Gate(x)
        Other(x)

    class Reverse(tj.programs.Interpreter):
        seen, turned = (), False

        @tj.programs.handles(Gate, Other)
        def gate(self, equation, a, **kwargs):
            self.seen += ((equation.name, self.turned),)
            return self.default(equation, a, **kwargs)

        @tj.programs.handles(tj.programs.adjoint)
        def adjoint(self, equation, f, *args):
            self.turned = not self.turned
            f(*args)
            self.turned = not self.turned

    whole = lambda x: (
        circuit(x),
        tj.programs.adjoint(tj.programs.adjoint(circuit))(x),
        tj.programs.adjoint(circuit)(x),
    )[0]
    program = tj.capture(whole)(0.5)
    assert [e.name for e in program] == ["Gate", "Other", "adjoint", "adjoint"]
    assert [e.name for e in program[2].programs["f"]] == ["adjoint"]
    walker = Reverse()
    walker(whole)(0.5)
    assert [n for n, _ in walker.seen] == ["Gate", "Other"] * 3
    assert [t for _, t in walker.seen] == [False] * 4 + [True] * 2


def test_literals_are_numbers_of_python_and_numpy():
    """No handler sees the classes in which JAX keeps literals."""
    f = lambda a: (2 * a, Gate(0.25), a + np.float32(3))
    program = tj.capture(f)(jnp.ones((), jnp.float32))
    again = tj.programs.Interpreter().rewrite(program)
    values = [x.value for e in program for x in e.inputs if hasattr(x, "value")]
    assert all(type(v) in (float, np.float32) for v in values)
    assert type(values[1]) is float
    assert [float(v) for v in values] == [2.0, 0.25, 3.0]
    assert str(again) == str(program)
    weak = lambda p: [v.aval.weak_type for e in p for v in e.eqn.invars[-1:]]
    assert weak(again) == weak(program)
