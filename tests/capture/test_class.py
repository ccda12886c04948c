"""Classes whose construction is an equation: attributes, static ones, inheritance, refusals."""

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj


class Rotation(metaclass=tj.CaptureMeta):
    def __init__(self, angle, wires=(0,)):
        if isinstance(wires, tuple) and len(wires) > 2:
            raise ValueError("at most two wires")
        self.angle, self.wires = angle, wires

    @property
    def double(self):
        return 2 * self.angle


class Tilted(Rotation):
    def __init__(self, angle):
        super().__init__(angle, wires=(1, 2))
        self.axis = "tilted"


class Pair(metaclass=tj.CaptureMeta):
    def __init__(self, first, second):
        self.parts = {"first": first, "second": second}

    def type_text(self):
        return "Pair"


def test_a_subclass_is_a_class_of_its_own(float32):
    program = tj.capture(lambda x: Tilted(x))(0.5)
    assert "b:Tilted<f32[], axis='tilted', wires=(1, 2)> = Tilted a" in str(program)
    seen = []

    class Count(tj.Interpreter):
        @tj.handles(Rotation)
        def rotation(self, equation, *args, **kwargs):
            seen.append(equation.name)
            return self.default(equation, *args, **kwargs)

    out = Count()(lambda x: (Rotation(x), Tilted(x)))(0.5)
    assert seen == ["Rotation", "Tilted"]
    assert [type(x) for x in out] == [Rotation, Tilted]


def test_attributes_that_are_instances_are_typed(float32):
    program = tj.capture(lambda x: Pair(Rotation(x), tj.Diagonal(x[None])).parts)(jnp.float32(1))
    assert ":Pair = Pair " in str(program)
    out = program(jnp.float32(2))
    assert type(out["first"]) is Rotation
    assert type(out["second"]) is tj.Diagonal


def test_how_its_type_prints_is_its_own(float32):
    program = tj.capture(lambda x: Pair(x, x))(0.5)
    assert program[0].outputs[0].type == "Pair"


def test_integers_and_texts_are_static_and_floats_move(float32):
    program = tj.capture(lambda x: Rotation(x, wires=(0, 1)))(0.5)
    assert program[0].params == {"wires": (0, 1)}
    assert jax.tree.leaves(program(0.5)) == [0.5]
    with pytest.raises(TypeError, match="static"):
        tj.capture(lambda g: g)(Rotation(0.5, wires=(0, 1)))(Rotation(0.5, wires=(1, 0)))


def test_what_makes_no_sense_is_refused_while_tracing():
    with pytest.raises(ValueError, match="at most two wires"):
        tj.capture(lambda x: Rotation(x, wires=(0, 1, 2)))(0.5)
    with pytest.raises(ValueError, match="dictionary"):

        class Slotted(metaclass=tj.CaptureMeta):
            __slots__ = ("a",)


def test_an_instance_without_numbers_is_one(float32):
    class Barrier(metaclass=tj.CaptureMeta):
        def __init__(self, wires):
            self.wires = wires

    program = tj.capture(lambda x: (Barrier((0, 1)), x)[1])(0.5)
    assert "b:Barrier<wires=(0, 1)> = Barrier[wires=(0, 1)]" in str(program)
    assert program(0.5) == 0.5
    made = tj.capture(lambda x: Barrier((0, 1)))(0.5)(0.5)
    assert made.wires == (0, 1)


def test_instances_cross_transformations(float32):
    f = lambda x: Rotation(x).double ** 2
    program = tj.capture(f)(0.5)
    assert jax.grad(program)(0.5) == jax.grad(f)(0.5) == 4.0
    assert jnp.array_equal(jax.vmap(program)(jnp.arange(3.0)), jax.vmap(f)(jnp.arange(3.0)))


def test_gradients_of_an_instance_are_instances(float32):
    program = tj.capture(tj.grad(lambda g: g.double**2))(Rotation(0.5))
    out = program(Rotation(0.5))
    assert type(out) is Rotation
    assert out.angle == 4.0
