"""How programs are written: letters, parameters, literals, layouts of bodies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.capture._print import Names, equation_text
from tanjax.capture._types import value_text

D, X = jnp.array([1.0, 2.0, 3.0]), jnp.array([3.0, 1.0, 2.0])


def test_letters_go_on_into_inner_programs():
    def f(d, x):
        a = tj.Diagonal(d)
        step = lambda c, r: (a @ c + r, tj.cond(r > 1, jnp.sin, jnp.cos, r))
        return tj.scan(step, x, x)

    text = str(tj.capture(f)(D, X))
    assert (
        text
        == """{ lambda ; a:f64[3] b:f64[3]. let
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
    )


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
    assert str(tj.capture(lambda: tj.Identity(2))()).splitlines()[1:] == [
        "    a:Identity<n=2, kind=f64> = Identity",
        "  in (a,) }",
    ]


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
        (np.arange(20.0), "f64[20]"),
        ("x" * 100, "…"),
        (jnp.sin, "sin"),
    ],
)
def test_parameters(value, text):
    assert value_text(value) == text


def test_one_equation_alone():
    (equation,) = (e for e in tj.capture(lambda d: tj.Diagonal(d) @ d)(D) if e.name == "matmul")
    assert equation_text(equation, Names()) == "c:f64[3] = matmul[Diagonal, Dense] a b"
    assert repr(equation) == "<operation matmul: Diagonal<f64[3]>, f64[3] -> f64[3]>"
    assert repr(equation.inputs[0]) == "<variable of type Diagonal<f64[3]>>"


def test_in_a_notebook_a_program_shows_itself():
    shown = tj.capture(lambda q: q * q)(D * tj.unit("m"))._repr_html_()
    assert "multiply" in shown
    assert "<f64" not in shown


def test_nothing_of_the_version_in_the_text():
    """Parameters of JAX's loops, and what its helpers are made of."""

    def f(m, x):
        y = jax.lax.scan(lambda c, r: (jnp.tril(m) @ c, jnp.triu(m)[0] * r), x, m)
        return y, jax.lax.while_loop(lambda v: jnp.sum(v) < 3, lambda v: v + 1, x)

    text = str(tj.capture(f)(jnp.eye(3), X))
    for word in ("ft_in", "linear=", "unroll", "_split_transpose", "sharding", "pjit"):
        assert word not in text
    assert "tril" in text
