"""What a captured program shows: typed values, units, fields, and where structure is lost."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from tanjax import _marks
from tanjax.arrays import AbstractArray, array_field, register_array_type

D, X, M = jnp.array([1.0, 2.0, 3.0]), jnp.array([3.0, 1.0, 2.0]), 3 * jnp.eye(3) + 0.5
M_, S_, KM = tj.unit("m"), tj.unit("s"), tj.unit("km")


def shown(f, *args, **kwargs):
    return "\n" + str(tj.capture(f)(*args, **kwargs)) + "\n"


def kinds(program):
    return [e.kind for e in program]


def test_a_construction_is_shown_at_its_first_use():
    def f(d, x):
        a = tj.Diagonal(d)
        y = tj.multiply(x, x)
        return tj.solve(a, y)

    assert (
        shown(f, D, X)
        == """
{ lambda ; a:f64[3] b:f64[3]. let
    c:f64[3] = multiply b b
    d:Diagonal<f64[3]> = Diagonal a
    e:f64[3] = solve[Diagonal, Dense] d c
  in (e,) }
"""
    )


def test_a_construction_is_shown_once_for_two_uses_and_not_at_all_for_none():
    def f(d, x):
        tj.Kronecker(d[None], x[None])
        return tj.Diagonal(d) @ x, tj.logdet(tj.Diagonal(d))

    program = tj.capture(f)(D, X)
    assert [e.name for e in program if e.kind == "construct"] == ["Diagonal"]


def test_a_constructed_result_is_shown_at_the_end():
    assert (
        shown(lambda d: {"b": tj.Diagonal(2 * d), "a": None, "c": 3, "d": d}, D)
        == """
{ lambda ; a:f64[3]. let
    b:f64[3] = mul 2.0 a
    c:Diagonal<f64[3]> = Diagonal b
  in (c, 3, a) }
"""
    )


def test_a_field_of_a_result_and_one_of_a_constructed_value():
    def f(m, d):
        factor = tj.cholesky(tj.Symmetric(m, definite=True))
        return jnp.sin(factor.data), jnp.cos(factor.data), jnp.sin(tj.Diagonal(d).diag)

    assert (
        shown(f, M, D)
        == """
{ lambda ; a:f64[3,3] b:f64[3]. let
    c:f64[3,3] = mirror[U] a
    d:Symmetric<f64[3,3], definite=True> = Symmetric c
    e:Triangular<f64[3,3]> = cholesky[Symmetric] d
    f:f64[3,3] = e.data
    g:f64[3,3] = sin f
    h:f64[3,3] = cos f
    i:f64[3] = sin b
  in (g, h, i) }
"""
    )


def test_types_in_types_are_shown_in_two_steps():
    assert (
        shown(lambda d, m, x: tj.Kronecker(tj.Diagonal(d), m) @ x, D, M, jnp.arange(9.0))
        == """
{ lambda ; a:f64[3] b:f64[3,3] c:f64[9]. let
    d:Diagonal<f64[3]> = Diagonal a
    e:Kronecker<Diagonal<f64[3]>, f64[3,3]> = Kronecker d b
    f:f64[9] = matmul[Kronecker, Dense] e c
  in (f,) }
"""
    )


def test_static_fields_are_part_of_a_type_unless_they_are_their_defaults():
    types = lambda *args: [v.type for v in tj.capture(lambda *a: a)(*args).inputs]
    lower, upper = tj.Triangular(M, lower=True), tj.Triangular(M, lower=False)
    assert types(lower, upper, tj.Symmetric(M, definite=True), tj.Identity(3)) == [
        "Triangular<f64[3,3]>",
        "Triangular<f64[3,3], lower=False>",
        "Symmetric<f64[3,3], definite=True>",
        "Identity<n=3, kind=f64>",
    ]


def test_units_stand_on_every_line():
    def f(q, r, t):
        far = q.to("km")
        return (q * r) / (2 * t), far + q, (q - far).to_value("cm"), q**2, abs(-q), q[1:], q.sum()

    assert (
        shown(f, D * M_, X * M_, X * S_)
        == """
{ lambda ; a:f64[3] m b:f64[3] m c:f64[3] s. let
    d:f64[3] km = to[unit=km] a
    e:f64[3] m2 = multiply a b
    f:f64[3] s = multiply 2 c
    g:f64[3] m2/s = divide e f
    h:f64[3] km = add d a
    i:f64[3] m = subtract a d
    j:f64[3] cm = to[unit=cm] i
    k:f64[3] m2 = power a 2
    l:f64[3] m = negative a
    m:f64[3] m = abs l
    n:f64[2] m = getitem[index=slice(1, None, None)] a
    o:f64[] m = sum a
    p:f64[3] = j.stored
  in (g, h, p, k, m, n, o) }
"""
    )


def test_a_conversion_to_its_own_unit_is_no_equation():
    assert shown(lambda q: q.to("m"), D * M_) == "\n{ lambda ; a:f64[3] m. let in (a,) }\n"


def test_a_structured_quantity_an_exponent_and_a_python_number():
    def f(q, x):
        return tj.solve(tj.Diagonal(q), x), x * (2.0 * KM), q.reshape(3, 1)

    assert (
        shown(f, D * M_, X)
        == """
{ lambda ; a:f64[3] m b:f64[3]. let
    c:f64[3] = a.stored
    d:Diagonal<f64[3]> = Diagonal c
    e:Diagonal<f64[3]> m = Unitful d
    f:f64[3] 1/m = solve[Diagonal, Dense] e b
    g:float km = Unitful 2.0
    h:f64[3] km = multiply b g
    i:f64[3,1] m = reshape a 3 1
  in (f, h, i) }
"""
    )
    small = tj.Unitful(jnp.ones(2), "m", scale=40)
    assert tj.capture(lambda q: q)(small).inputs[0].type == f"f64[2] {small.label}"


def test_where_structure_is_lost_is_said_in_the_line():
    a = tj.BlockDiagonal(M, jnp.eye(2))
    with tj.densify("allow"):
        program = tj.capture(lambda a: (tj.expm(a @ a.mT), a[0], a.to_dense()))(a)
    lost = [e for e in program if e.lost]
    assert all(f"densify[{e.lost[0]}]" in str(program) for e in lost)
    assert [(e.kind, e.name, e.types) for e in program if e.kind == "helper"] == [
        ("helper", "densify", ("BlockDiagonal",)),
        ("helper", "to_dense", ("BlockDiagonal",)),
    ]


@register_array_type()
class Ruleless(AbstractArray):
    """Known by its dense form alone."""

    entries: jax.Array = array_field(ndim=1)

    @property
    def shape(self):
        return (*self.entries.shape, self.entries.shape[-1])

    @property
    def dtype(self):
        return self.entries.dtype

    def to_dense(self):
        return self.entries[:, None] * self.entries + jnp.eye(self.entries.shape[0])


def test_an_operation_without_a_rule_for_the_type():
    with tj.densify("allow"):
        assert (
            shown(lambda a, x: tj.solve(a, x), Ruleless(D), X)
            == """
{ lambda ; a:Ruleless<f64[3]> b:f64[3]. let
    c:f64[3] = solve[densify[Ruleless], Dense] a b
  in (c,) }
"""
        )


Point = collections.namedtuple("Point", "x y")


def test_several_results_dicts_and_registered_nodes():
    def f(p, m):
        values, vectors = tj.eigh(tj.Symmetric(m))
        return {"v": Point(values, p.y), "none": None}, vectors

    program = tj.capture(f)(Point(D, X), M)
    out = program(Point(D, X), M)
    assert type(out[0]["v"]) is Point
    assert out[0]["none"] is None
    assert "f:f64[3] g:f64[3,3] = eigh[Symmetric invariant=False] e" in str(program)


def test_numbers_are_literals():
    program = tj.capture(lambda x: tj.add(tj.multiply(x, 2), 0.5))(X)
    assert [[getattr(v, "value", None) for v in e.inputs][1] for e in program] == [2.0, 0.5]


def test_the_structured_result_of_a_loop_is_put_together_again():
    def f(d):
        step = lambda a, x: (tj.Diagonal(a.diag * x), None)
        return jax.lax.scan(step, tj.Diagonal(d), jnp.arange(2.0))[0] @ d

    program = tj.capture(f)(D)
    assert "matmul[Diagonal, Dense]" in str(program)
    assert jnp.array_equal(jax.jit(program)(D), jax.jit(f)(D))


def test_a_batch_is_no_typed_operation():
    f = lambda d, x: tj.solve(tj.Diagonal(d), x)
    program = tj.capture(jax.vmap(f))(jnp.stack([D, X]), jnp.stack([X, D]))
    assert kinds(program) == ["primitive"]
    assert program[0].params == {"name": "solve"}


def test_the_tangent_map_of_an_operation_is_not_taken_for_it():
    """Its avals are those of the operation: what was derived has another jaxpr."""
    gradient = jax.grad(lambda d, x: jnp.sum(tj.Diagonal(d) @ x), argnums=1)
    program = tj.capture(gradient)(D, X)
    assert "operation" not in kinds(program)
    assert jnp.array_equal(program(D, X), D)
    tangent = tj.capture(lambda d, x, t: jax.jvp(lambda x: tj.Diagonal(d) @ x, (x,), (t,)))(D, X, D)
    assert kinds(tangent).count("operation") <= 1
    assert jnp.array_equal(tangent(D, X, D)[1], D * D)


def test_leaves_of_two_owners_are_told_apart():
    """Two values that hold one array: each is read by its own name, and neither for the other."""

    def f(d, x):
        a, b = tj.Diagonal(d), tj.Diagonal(x)
        return tj.Kronecker(a, b) @ jnp.ones(9), a @ x, b @ d

    program = tj.capture(f)(D, X)
    constructs = [e for e in program if e.kind == "construct"]
    assert [e.name for e in constructs] == ["Diagonal", "Diagonal", "Kronecker"]
    first, second, both = constructs
    assert both.inputs == (first.outputs[0], second.outputs[0])
    products = [e for e in program if e.name == "matmul"][1:]
    assert [e.inputs for e in products] == [
        (first.outputs[0], program.inputs[1]),
        (second.outputs[0], program.inputs[0]),
    ]


def test_an_argument_taken_apart_and_put_together_is_itself():
    f = lambda a, x: tj.Diagonal(a.diag) @ x
    assert kinds(tj.capture(f)(tj.Diagonal(D), X)) == ["operation"]


def test_a_closure_arrives_as_one_typed_value():
    a = tj.Symmetric(M)
    program = tj.capture(lambda x: tj.solve(a, x))(X)
    assert [v.type for v in program.consts] == ["Symmetric<f64[3,3]>"]


def test_mirrors_are_one_line_of_the_same_text_everywhere():
    c = M.astype(complex) + 0.5j
    for make, line in (
        (lambda m: tj.Symmetric(m), "mirror[U]"),
        (lambda m: tj.Symmetric(m, "L"), "mirror[L]"),
        (lambda m: tj.Symmetric(m, "mean"), "mirror[mean]"),
        (lambda m: tj.Hermitian(m), "mirror[U conj]"),
    ):
        program = tj.capture(lambda x, make=make: tj.logdet(make(x)))(M)
        assert [e.name for e in program if e.kind == "helper"] == [line]
    hermitian = tj.capture(lambda m: tj.Hermitian(m).to_dense())(c)
    assert jnp.array_equal(hermitian(c), tj.Hermitian(c).to_dense())


@pytest.mark.parametrize("where", ["operation", "helper", "quantity"])
def test_every_equation_says_its_line(where):
    def f(m, q):
        return tj.logdet(tj.Symmetric(m)), q * q

    name = {"operation": "logdet", "helper": "mirror[U]", "quantity": "multiply"}[where]
    (equation,) = [e for e in tj.capture(f)(M, D * M_) if e.name == name]
    assert "test_view.py" in equation.source
    assert equation.source.endswith("f)")


def test_a_name_alone_makes_no_mark():
    label = _marks.Label("solve")
    label.mark = _marks.Mark("operation", "solve", tj.solve, None, ())

    def body(x):
        return x + 1

    body.__name__ = body.__qualname__ = label
    program = tj.capture(lambda x: jax.jit(body)(x))(X)
    assert kinds(program) == ["primitive"]


def test_numpy_constants_are_constants():
    table = np.arange(3.0)
    program = tj.capture(lambda x: tj.Diagonal(table) @ x)(X)
    assert jnp.array_equal(program(X), table * X)


def test_known_numbers_of_quantities_stay_known():
    """Planck's law in float32: products of constants leave the range if nobody may look at them."""

    def planck(wavelength, temperature):
        h, c = tj.quantity(6.626e-34, "J s"), tj.quantity(2.998e8, "m/s")
        k = tj.quantity(1.381e-23, "J/K")
        x = (h * c / (wavelength * k * temperature)).to("1")
        return 2 * h * c**2 / wavelength**5 / tnp.expm1(x)

    args = tj.quantity(jnp.float32(5e-7), "m"), tj.quantity(jnp.float32(5800.0), "K")
    program = tj.capture(planck)(*args)
    expected, found = jax.jit(planck)(*args), jax.jit(program)(*args)
    assert found.stored == expected.stored
    assert found.label is expected.label
    assert [e.name for e in program].count("power") == 1  # that of the wavelength
