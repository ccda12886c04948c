"""Annotations with shape and dimension: `isinstance`, jaxtyping with beartype, and `checked`."""

# ruff: noqa: F821
# Texts in these annotations are units and sizes, not names.

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from jaxtyping import Array, Float, Int, PyTree, TypeCheckError, jaxtyped

import tanjax as tj
from tanjax.typing import Quantity, checked

speed = jnp.arange(3.0) * tj.unit("km/h")
length = tj.Diagonal([1.0, 2.0]) * tj.unit("cm")


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (speed, Quantity, True),
        (speed.value, Quantity, False),
        (3.0, Quantity["1"], False),
        (speed, Quantity["m/s"], True),
        (speed, Quantity["speed"], True),
        (speed, Quantity[tj.unit("cm/s")], True),
        (speed, Quantity["m"], False),
        (speed, Quantity["length"], False),
        (speed, Quantity["m/s", Float], True),
        (speed, Quantity["m/s", Int], False),
        (speed, Quantity["m/s", "n"], True),
        (speed, Quantity["m/s", Float, "3"], True),
        (speed, Quantity["m/s", Float, "2"], False),
        (speed, Quantity["m/s", Float, "n k"], False),
        (speed, Quantity["m/s", Float, "*batch n"], True),
        (speed, Quantity["m/s", Float[Array, "n"]], True),
        (speed, Quantity["m/s", Float[np.ndarray, "n"]], False),
        (np.ones(3) * tj.unit("m"), Quantity["m", Float[np.ndarray, "n"]], True),
        (2.0 * tj.unit("m"), Quantity["m", Float, ""], True),
        (2.0 * tj.unit("m"), Quantity["m", float], True),
        (length, Quantity["m", Float, "n n"], True),
        (length, Quantity["m", Float, "n n+1"], False),
        (length, Quantity["m", tj.Diagonal], True),
        (length, Quantity["m", tj.Symmetric], False),
        (length, Quantity["m", tj.Symmetric | tj.Diagonal], True),
        (length, Quantity["m", Float[tj.Diagonal, "n n"]], True),
        (length, Quantity["s", Float[tj.Diagonal, "n n"]], False),
        (length, Quantity["m", Float[Array | tj.Diagonal, "2 2"]], True),
        (length, Quantity["m", Float[Array, "n n"]], False),
        ({"a": [speed, speed]}, PyTree[Quantity["m/s"]], True),
        ({"a": [speed, length]}, PyTree[Quantity["m/s"]], False),
        (tj.Quantity(20.0, "degC"), Quantity["temperature"], True),
    ],
    ids=str,
)
def test_isinstance_checks_shape_dtype_and_unit(value, annotation, expected):
    assert isinstance(value, annotation) is expected


def test_named_dimensions():
    """A name of a dimension goes before a unit: `mass` would be read as milliarcseconds."""
    assert isinstance(tj.Quantity(1.0, "g"), Quantity["mass"])
    assert isinstance(tj.Quantity(1.0, "eV"), Quantity["energy"])
    assert isinstance(tj.Quantity(1.0, "deg"), Quantity["angle"])
    assert not isinstance(tj.Quantity(1.0, "mas"), Quantity["mass"])


def test_annotations_are_cached_and_spelled_as_in_the_source():
    assert Quantity["m", Float, "n"] is Quantity["m", Float, "n"]
    for item in [
        '"m", Float, "n"',
        '"m", Float[Array, "n"] | Diagonal',
        '"length"',
        '"m", Float[Array, "n k"]',
        '"m", Diagonal',
    ]:
        scope = {"Quantity": Quantity, "Float": Float, "Array": Array, "Diagonal": tj.Diagonal}
        assert repr(eval(f"Quantity[{item}]", scope)) == f"Quantity[{item}]"


def test_items_that_are_no_annotation_raise():
    for item, error in (
        ("parrot", tj.UnitError),
        (("m", 3), TypeError),
        (("m", Float, 3), TypeError),
    ):
        with pytest.raises(error):
            Quantity[item]
    with pytest.raises(TypeError, match="already"):
        Quantity["m"]["s"]


def weighted(
    v: Quantity["m/s", Float, "n"], w: Float[Array, "n"], t: Quantity["s"]
) -> Quantity["m", Float, "n"]:
    return v * w * t


GOOD = (speed, jnp.ones(3), 2.0 * tj.unit("min"))
BAD = {
    "unit": (GOOD[0] * GOOD[0], GOOD[1], GOOD[2]),
    "plain for a quantity": (GOOD[0].value, GOOD[1], GOOD[2]),
    "quantity for plain": (GOOD[0], GOOD[0], GOOD[2]),
    "size": (GOOD[0], jnp.ones(2), GOOD[2]),
    "rank": (GOOD[0], GOOD[1][0], GOOD[2]),
    "unit of a scalar": (GOOD[0], GOOD[1], GOOD[1] * tj.unit("m")),
}


def wrong_result(x: Quantity["m", Float, "n"]) -> Quantity["m", Float, "n"]:
    return x[:1] if x.shape[0] > 2 else x * x


@pytest.mark.parametrize("compile", [lambda f: f, jax.jit, tj.jit])
@pytest.mark.parametrize("check", [jaxtyped(typechecker=beartype), checked])
def test_good_calls_pass(check, compile):
    expected = np.arange(3.0) * 2 / 60
    found = compile(check(weighted))(*GOOD)
    np.testing.assert_allclose(found.to_value("km"), expected, rtol=1e-15)


def test_jaxtyped_checks_arguments_and_the_result():
    function = jaxtyped(typechecker=beartype)(weighted)
    for call in (function, jax.jit(function)):
        for bad in BAD.values():
            with pytest.raises(TypeCheckError):
                call(*bad)
    function = jaxtyped(typechecker=beartype)(wrong_result)
    for n in (2, 3):
        with pytest.raises(TypeCheckError, match="return"):
            function(jnp.ones(n) * tj.unit("m"))


@pytest.mark.parametrize(
    ("bad", "error", "told"),
    [
        ("unit", tj.UnitError, ("`v`", "km2")),
        ("plain for a quantity", tj.UnitError, ("`v`", "got: float64[3]")),
        ("quantity for plain", tj.UnitError, ("`w`", 'Float[Array, "n"]', "km")),
        ("size", tj.ShapeError, ("`w`", "float64[2]", "`v`: float64[3] in km")),
        ("rank", tj.ShapeError, ("`w`", "got: float64[]")),
        ("unit of a scalar", tj.UnitError, ("`t`", 'expected: Quantity["s"]', "in m")),
    ],
)
@pytest.mark.parametrize("compile", [lambda f: f, jax.jit, tj.jit])
def test_checked_names_function_and_argument(bad, error, told, compile):
    function = compile(checked(weighted))
    with pytest.raises(error) as caught:
        function(*BAD[bad])
    for text in ("weighted", *told):
        assert text in str(caught.value)


def test_checked_has_true_gradients_and_checks_the_result():
    gradient = tj.grad(lambda t: checked(weighted)(*GOOD[:2], t).sum())(GOOD[2])
    assert isinstance(gradient, Quantity["m/s", Float, ""])
    for n, error in ((2, tj.UnitError), (3, tj.ShapeError)):
        with pytest.raises(error, match="wrong_result: the result"):
            checked(wrong_result)(jnp.ones(n) * tj.unit("m"))


def test_sizes_of_one_call_do_not_bind_the_next():
    same = checked(lambda x: x)
    same.__wrapped__.__annotations__["x"] = Quantity["m", Float, "n"]
    assert [same(jnp.ones(n) * tj.unit("m")).shape for n in (2, 3)] == [(2,), (3,)]


def test_checked_follows_containers_and_unions():
    metre, second = tj.unit("m"), tj.unit("s")

    @checked
    def function(
        pair: tuple[Quantity["m"], Quantity["s"]],
        *rest: Quantity["m"],
        table: dict[str, list[Quantity["s"]]] | None = None,
        rate: Quantity["1/s"] | float = 0.0,
        note: str = "",
        **named: Quantity["kg"],
    ) -> tuple[Quantity["m"], ...]:
        return (pair[0], *rest)

    x, t = 1.0 * metre, 1.0 * second
    assert len(function((x, t), x, x, table={"a": [t]}, rate=1, mass=tj.Quantity(1.0, "g"))) == 3
    for call, told in [
        (lambda: function((x, x)), r"`pair`\[1\]"),
        (lambda: function((x, t), x, t), r"`rest\[1\]`"),
        (lambda: function((x, t), rate=t), "`rate`"),
        (lambda: function((x, t), mass=x), "`mass`"),
        (lambda: function((x, t), note=x), "`note`"),
    ]:
        with pytest.raises(tj.UnitError, match=told):
            call()


def test_fields_of_equinox_modules():
    @jaxtyped(typechecker=beartype)
    class Body(eqx.Module):
        mass: Quantity["kg", Float, ""]
        position: Quantity["m", Float, "3"]

    body = Body(1.0 * tj.unit("g"), jnp.ones(3) * tj.unit("km"))
    assert isinstance(jax.jit(lambda b: b)(body).position, Quantity["length"])
    with pytest.raises(TypeCheckError):
        Body(1.0 * tj.unit("g"), jnp.ones(2) * tj.unit("km"))
    with pytest.raises(TypeCheckError):
        Body(1.0 * tj.unit("m"), jnp.ones(3) * tj.unit("km"))
