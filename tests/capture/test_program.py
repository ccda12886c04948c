"""Programs as values: iteration, examples, jaxprs without marks, trees."""

import inspect

import jax
import jax.extend
import jax.numpy as jnp
import pytest

import tanjax as tj
from captured_programs import check

pytestmark = pytest.mark.core

D, X = jnp.array([1.0, 2.0, 3.0]), jnp.array([3.0, 1.0, 2.0])


def f(d, x, *, power=2, name=None):
    q = x * tj.unit("m")
    return {"y": tj.solve(tj.Diagonal(d), x) ** power, "q": q}, name


def test_a_program_is_a_sequence_of_equations():
    program = tj.capture(f)(D, X, power=3)
    assert len(program) == len(list(program)) == len(program.equations)
    assert [e.name for e in program][-2:] == [program[-2].name, program[-1].name]
    solve = next(e for e in program if e.name == "solve")
    assert (solve.kind, solve.target, solve.types) == ("operation", tj.solve, ("Diagonal", "Dense"))
    assert [v.type for v in solve.inputs] == ["Diagonal<f64[3]>", "f64[3]"]
    assert "test_program.py" in solve.source


def test_equations_keep_their_lines_in_another_program():
    """Captured again, and without marks."""
    inner = tj.capture(f)(D, X)
    outer = tj.capture(lambda d, x: inner(d, x)[0]["y"])(D, X)
    assert [e.source for e in outer if e.name == "solve"] == [
        e.source for e in inner if e.name == "solve"
    ]
    again = tj.capture(jax.extend.core.jaxpr_as_fun(inner.jaxpr))(D, X)
    assert any(e.source.endswith("(f)") for e in again)


def test_it_knows_its_arguments_and_results():
    program = tj.capture(f)(D, X, name="n")
    args, kwargs = program.example()
    assert jax.tree.structure((args, kwargs)) == program.in_tree
    assert kwargs == {"name": "n"}
    assert [a.shape for a in args] == [(3,), (3,)]
    out = program(D, X, name="n")
    assert jax.tree.structure(out) == program.out_tree
    assert out[1] == "n"
    assert program.name == "f"
    with pytest.raises(tj.errors.CaptureError, match=r"(?s)keyword name.*'n'.*'m'"):
        program(D, X, name="m")


def test_its_jaxpr_has_no_marks():
    """To JAX the name of a mark is a text, of a class of its own."""
    program = tj.capture(lambda d, x: tj.scan(lambda c, r: (tj.Diagonal(d) @ c, r), x, x))(D, X)
    names = [e.params.get("name") for e in program.jaxpr.jaxpr.eqns]
    assert {type(name) for name in names} <= {str, type(None)}
    outs = jax.core.eval_jaxpr(program.jaxpr.jaxpr, program.jaxpr.consts, D, X)
    assert jnp.array_equal(outs[0], program(D, X)[0])


def test_capture_keeps_name_and_documentation():
    def documented(x):
        """What it does."""
        return x

    captured = tj.capture(documented)
    assert inspect.getdoc(captured) == "What it does."
    assert captured.__name__ == "documented"


def test_unused_equations_are_pruned():
    def g(d):
        tj.logdet(tj.Diagonal(d))
        return d * 2

    program = tj.capture(g)(D)
    assert "logdet" in str(program)
    assert "logdet" not in str(program.pruned())
    assert jnp.array_equal(program.pruned()(D), 2 * D)


@pytest.mark.parametrize("seed", range(24))
def test_random_program_has_the_bits_of_its_function(seed):
    """Values and a rewrite, which prints the same; of some also derivatives and maps."""
    with tj.densify("allow"):
        draw, found = check(seed, thorough=seed < 4)
    assert not found, "\n".join(draw.words)
