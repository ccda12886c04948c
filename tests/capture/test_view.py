"""What a captured program shows: typed values, units, fields, lost structure; and how it prints."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from tanjax.arrays import AbstractArray, array_field, register_array_type

pytestmark = pytest.mark.core

D, X, M = jnp.array([1.0, 2.0, 3.0]), jnp.array([3.0, 1.0, 2.0]), 3 * jnp.eye(3) + 0.5
M_, S_, KM = tj.unit("m"), tj.unit("s"), tj.unit("km")


def shown(f, *args, **kwargs):
    return "\n" + str(tj.capture(f)(*args, **kwargs)) + "\n"


def kinds(program):
    return [e.kind for e in program]


def test_a_construction_is_shown_at_its_first_use():
    def f(d, x):
        a = tj.Diagonal(d)
        y = tj.linalg.multiply(x, x)
        return tj.solve(a, y)

    expected = """
{ lambda ; a:f64[3] b:f64[3]. let
    c:f64[3] = multiply b b
    d:Diagonal<f64[3]> = Diagonal a
    e:f64[3] = solve[Diagonal, Dense] d c
  in (e,) }
"""
    assert shown(f, D, X) == expected


def test_a_construction_is_shown_once_for_two_uses_and_not_at_all_for_none():
    def f(d, x):
        tj.Kronecker(d[None], x[None])
        return tj.Diagonal(d) @ x, tj.logdet(tj.Diagonal(d))

    program = tj.capture(f)(D, X)
    assert [e.name for e in program if e.kind == "construct"] == ["Diagonal"]


def test_a_constructed_result_is_shown_at_the_end():
    expected = """
{ lambda ; a:f64[3]. let
    b:f64[3] = mul 2.0 a
    c:Diagonal<f64[3]> = Diagonal b
  in (c, 3, a) }
"""
    assert shown(lambda d: {"b": tj.Diagonal(2 * d), "a": None, "c": 3, "d": d}, D) == expected


def test_a_field_of_a_result_and_one_of_a_constructed_value():
    def f(m, d):
        factor = tj.linalg.cholesky(tj.Symmetric(m, definite=True))
        return jnp.sin(factor.data), jnp.cos(factor.data), jnp.sin(tj.Diagonal(d).diag)

    expected = """
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
    assert shown(f, M, D) == expected


def test_types_in_types_are_shown_in_two_steps():
    expected = """
{ lambda ; a:f64[3] b:f64[3,3] c:f64[9]. let
    d:Diagonal<f64[3]> = Diagonal a
    e:Kronecker<Diagonal<f64[3]>, f64[3,3]> = Kronecker d b
    f:f64[9] = matmul[Kronecker, Dense] e c
  in (f,) }
"""
    assert (
        shown(lambda d, m, x: tj.Kronecker(tj.Diagonal(d), m) @ x, D, M, jnp.arange(9.0))
        == expected
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

    expected = """
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
    assert shown(f, D * M_, X * M_, X * S_) == expected


def test_a_structured_quantity_an_exponent_and_a_python_number():
    def f(q, x):
        return tj.solve(tj.Diagonal(q), x), x * (2.0 * KM), q.reshape(3, 1)

    expected = """
{ lambda ; a:f64[3] m b:f64[3]. let
    c:f64[3] = a.stored
    d:Diagonal<f64[3]> = Diagonal c
    e:Diagonal<f64[3]> m = Quantity d
    f:f64[3] 1/m = solve[Diagonal, Dense] e b
    g:float km = Quantity 2.0
    h:f64[3] km = multiply b g
    i:f64[3,1] m = reshape a 3 1
  in (f, h, i) }
"""
    assert shown(f, D * M_, X) == expected
    small = tj.Quantity(jnp.ones(2), "m", scale=40)
    assert tj.capture(lambda q: q)(small).inputs[0].type == f"f64[2] {small.label}"


def test_where_structure_is_lost_is_said_in_the_line():
    a = tj.BlockDiagonal(M, jnp.eye(2))
    with tj.densify("allow"):
        program = tj.capture(lambda a: (tj.linalg.expm(a @ a.mT), a[0], a.to_dense()))(a)
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
        expected = """
{ lambda ; a:Ruleless<f64[3]> b:f64[3]. let
    c:f64[3] = solve[densify[Ruleless], Dense] a b
  in (c,) }
"""
        assert shown(lambda a, x: tj.solve(a, x), Ruleless(D), X) == expected


Point = collections.namedtuple("Point", "x y")


def test_several_results_dicts_and_registered_nodes():
    def f(p, m):
        values, vectors = tj.linalg.eigh(tj.Symmetric(m))
        return {"v": Point(values, p.y), "none": None}, vectors

    program = tj.capture(f)(Point(D, X), M)
    (first, _) = program(Point(D, X), M)
    assert (type(first["v"]), first["none"]) == (Point, None)
    assert "f:f64[3] g:f64[3,3] = eigh[Symmetric invariant=False] e" in str(program)


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


def test_every_equation_says_its_line():
    program = tj.capture(lambda m, q: (tj.logdet(tj.Symmetric(m)), q * q))(M, D * M_)
    found = {e.name: e.source for e in program}
    for name in ("logdet", "mirror[U]", "multiply"):
        assert "test_view.py" in found[name]
        assert found[name].endswith("<lambda>)")


def test_a_name_alone_makes_no_mark():
    """Another function that has the name of a marked call is no operation."""
    labels = []

    def f(d):
        closed = jax.make_jaxpr(lambda d: tj.Diagonal(d) @ d)(d)
        labels.extend(e.params["name"] for e in closed.eqns if "name" in e.params)
        return d

    def body(x):
        return x + 1

    tj.capture(f)(D)
    (label,) = labels
    assert type(label) is not str
    body.__name__ = body.__qualname__ = label
    assert kinds(tj.capture(lambda x: jax.jit(body)(x))(X)) == ["primitive"]


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


# -- how it is written ----------------------------------------------------------------------------


def test_letters_go_on_into_inner_programs():
    def f(d, x):
        a = tj.Diagonal(d)
        step = lambda c, r: (a @ c + r, tj.cond(r > 1, jnp.sin, jnp.cos, r))
        return tj.scan(step, x, x)

    text = str(tj.capture(f)(D, X))
    expected = """{ lambda ; a:f64[3] b:f64[3]. let
    c:Diagonal<f64[3]> = Diagonal a
    d:f64[3] e:f64[3] = scan[
      f={ lambda f:Diagonal<f64[3]>; g:f64[3] h:f64[]. let
          i:f64[3] = matmul[Diagonal, Dense] f g
          j:f64[3] = add i h
          k:bool[] = gt h 1.0
          l:f64[] = cond[
            true_fun={ lambda ; m:f64[]. let
                n:f64[] = sin m
              in (n,) }
            false_fun={ lambda ; o:f64[]. let
                p:f64[] = cos o
              in (p,) }
          ] k h
        in (j, l) }
    ] c b b
  in (d, e) }"""
    assert text == expected


def test_many_letters():
    def f(x):
        for _ in range(30):
            x = jnp.sin(x)
        return x

    text = str(tj.capture(f)(X))
    assert "z:f64[3] = sin y" in text
    assert "ae:f64[3] = sin ad" in text
    assert text.endswith("in (ae,) }")


def test_an_empty_program_and_one_without_arguments():
    assert str(tj.capture(lambda x: x)(X)) == "{ lambda ; a:f64[3]. let in (a,) }"
    to_metres = tj.capture(lambda q: q.to("m"))(D * M_)
    assert str(to_metres) == "{ lambda ; a:f64[3] m. let in (a,) }"  # the unit that it had
    assert str(tj.capture(lambda: tj.Identity(2))()).splitlines()[1:] == [
        "    a:Identity<n=2, kind=f64> = Identity",
        "  in (a,) }",
    ]


class Noted(metaclass=tj.programs.CaptureMeta):
    def __init__(self, x, note):
        self.x, self.note = x, note


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.int64(1), "1"),
        ((np.int64(1), 2), "(1, 2)"),
        (np.dtype("float32"), "f32"),
        (jnp.bfloat16, "bf16"),
        (np.dtype("complex64"), "c64"),
        (tj.unit("kg m / s2"), "kg m/s2"),
        (tj.unit("1"), "1"),
        ("x" * 100, "…"),
        (jnp.sin, "sin"),
    ],
)
def test_parameters_print_short(value, text):
    program = tj.capture(lambda x: Noted(x, note=value))(1.0)
    assert f"= Noted[note={text}] a" in str(program)


def test_equation_and_variable_have_a_repr():
    (equation,) = (e for e in tj.capture(lambda d: tj.Diagonal(d) @ d)(D) if e.name == "matmul")
    assert repr(equation) == "<operation matmul: Diagonal<f64[3]>, f64[3] -> f64[3]>"
    assert repr(equation.inputs[0]) == "<variable of type Diagonal<f64[3]>>"


def test_nothing_of_the_version_in_the_text():
    """Parameters of JAX's loops, and what its helpers are made of."""

    def f(m, x):
        y = jax.lax.scan(lambda c, r: (jnp.tril(m) @ c, jnp.triu(m)[0] * r), x, m)
        return y, jax.lax.while_loop(lambda v: jnp.sum(v) < 3, lambda v: v + 1, x)

    text = str(tj.capture(f)(jnp.eye(3), X))
    for word in ("ft_in", "linear=", "unroll", "_split_transpose", "sharding", "pjit"):
        assert word not in text
    assert "tril" in text


def test_an_equation_is_read_only():
    (equation,) = tj.capture(lambda x: 2 * x)(jnp.ones(2)).equations
    with pytest.raises(AttributeError, match=r"read only; got a value for `name`"):
        equation.name = "add"
    assert equation.name == "mul"
