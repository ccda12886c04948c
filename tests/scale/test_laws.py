"""Every primitive of JAX has a law, and its rows are right.

Right means: at any exponents whatever that satisfy the rows of an equation, replaying it gives its
results. The exponents are drawn from all integer solutions of the rows, by elimination over
fractions and so without the solver, for one small call per entry.
"""

import dataclasses
import gc
import math
from fractions import Fraction

import jax
import jax.extend.core.primitives
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import pytest
from jax.extend.core import Primitive

import tanjax as tj
from primitive_calls import CALLS, X, primitives_of_jax
from tanjax.scale import register_law
from tanjax.scale.graph._build import build
from tanjax.scale.graph._graph import Exponents, Magnitude, Use
from tanjax.scale.laws import _rows
from tanjax.scale.laws._law import LAWS
from tanjax.scale.magnitudes import _evaluate
from tanjax.scale.replay import _replay

pytestmark = pytest.mark.core

# -- which there are ------------------------------------------------------------------------------

# Names of one of the supported versions of JAX only, or of this library (made when first used).
_OTHERS = """
    call closed_call checkpoint pjit remat pcast reduced_vary_cast reduced_vary_cast_p log2
    vary_unreduced_cast vary_unreduced_cast_p tanjax_linear tanjax_symmetric_outer eval_jaxpr
    tanjax_lu Ldexp SearchSorted one_minus_square polynomial relayout reduced_vary_cast
    vary_unreduced_cast call_hi_primitive"""
OF_OTHER_VERSIONS = set(_OTHERS.split())


def test_no_law_is_misspelt():
    """A name that no primitive has would leave the primitive that was meant at scale 0."""
    alive = {p.name for p in gc.get_objects() if issubclass(type(p), Primitive)}
    here = alive | primitives_of_jax()
    assert not set(LAWS) - here - OF_OTHER_VERSIONS - {OWN.name}


# -- exponents that satisfy the rows --------------------------------------------------------------


def solution(rows, count, random):
    """A random integer vector that all rows (dicts from place to coefficient) map to zero."""
    matrix = [{x: Fraction(c) for x, c in row.items() if c} for row in rows]
    pivots = {}
    for row in matrix:
        for x, pivot in pivots.items():
            row = _without(row, x, pivot)
        if row:
            x = next(iter(row))
            row = {y: c / row[x] for y, c in row.items()}
            pivots = {y: _without(other, x, row) for y, other in pivots.items()} | {x: row}
    unit = math.lcm(*(c.denominator for row in pivots.values() for c in row.values()))
    found = {
        x: Fraction(int(random.integers(-4, 5)) * unit) for x in range(count) if x not in pivots
    }
    for x, row in pivots.items():
        found[x] = -sum((c * found[y] for y, c in row.items() if y != x), Fraction(0))
    return [int(found[x]) for x in range(count)]


def _without(row, x, pivot):
    factor = row.get(x, Fraction(0))
    if not factor:
        return row
    new = {
        y: row.get(y, Fraction(0)) - factor * pivot.get(y, Fraction(0)) for y in {**row, **pivot}
    }
    return {y: c for y, c in new.items() if c}


def draw_exponents(graph, magnitudes, random):
    """Exponents at random on every value and use, as far as the rows let them be."""
    count = len(graph.values)
    place = lambda thing: thing.index + count if type(thing) is Use else thing.index
    rows = []
    for node in graph.walk():
        for row in _rows.rows_of(node, magnitudes):
            total = {}
            for c, thing in row:
                total[place(thing)] = total.get(place(thing), 0) + c
            rows.append(total)
    fixed = [v for v in graph.values if v.kind == "input" or not v.is_floating]
    rows += [{place(thing): 1} for v in fixed for thing in (v, *(() if v.is_floating else v.uses))]
    found = solution(rows, count + len(graph.uses), random)
    return Exponents(tuple(found[:count]), tuple(found[count:]))


def as_wide(x):
    x = np.asarray(x)
    return (
        x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
        if x.dtype.kind in "fc"
        else x
    )


def differences(call, seeds=3):
    """Places of the results that a replay at random exponents gets wrong; and what was moved."""
    f, args = call[0], call[1:]
    with jax.numpy_rank_promotion("allow"):
        closed = jax.make_jaxpr(f)(*args)
        expected = jax.tree.leaves(jax.jit(f)(*args))
    wrong, moved = set(), 0
    for seed in range(seeds):
        graph = build(closed)
        magnitudes = _evaluate.evaluate(graph, jax.tree.leaves(args)).magnitudes
        exponents = draw_exponents(graph, magnitudes, np.random.default_rng(seed))
        moved += sum(map(bool, exponents.values + exponents.uses))
        results = jax.jit(_replay.replay(graph, exponents))(jax.tree.leaves(args))
        for i, (got, use, want) in enumerate(zip(results, graph.outputs, expected, strict=True)):
            if jnp.issubdtype(want.dtype, jax.dtypes.prng_key):
                continue
            got, want = as_wide(got), as_wide(want)
            if got.dtype.kind in "fc":
                got = got * 2.0 ** exponents.of(use)
            size = np.max(np.abs(want[np.isfinite(want)]), initial=0)
            if not np.allclose(got, want, rtol=1e-12, atol=1e-13 * size, equal_nan=True):
                wrong.add(i)
    return wrong, moved


@pytest.mark.parametrize("name", CALLS)
def test_any_solution_of_the_rows_gives_the_program(name):
    wrong, moved = differences(CALLS[name])
    assert not wrong
    assert moved > 2


OF_FREE = ("functions", "complex functions", "powers", "powers of any kind", "products of many")


@pytest.mark.parametrize("name", [*OF_FREE, "other types", "expanded", "indices", "out of bounds"])
def test_functions_at_exponents_that_no_magnitude_asks_for(name, monkeypatch):
    """Where numbers fit, rows pin them at 0; here none is said to fit."""
    monkeypatch.setattr(_rows, "fits_at_zero", lambda value, _: not value.is_floating)
    wrong, moved = differences(CALLS[name])
    assert not wrong
    assert moved > 2


# Entries without a call above: they need hardware, a mesh of another kind, or a version of JAX.
_UNCALLED = """
    all_gather_invariant all_gather_reduced pbroadcast unreduced_psum unreduced_reduce_scatter
    sharding_constraint layout_constraint reshard eq_to lt_to le_to pvary select_and_gather_add
    remat2 custom_lin run_state preduced psum_invariant lu broadcast_to pin unpin tie
    ragged_all_to_all with_memory_space_constraint"""
NOT_CALLED = OF_OTHER_VERSIONS | set(_UNCALLED.split())


def primitives_of(call):
    f, *args = call
    with jax.numpy_rank_promotion("allow"):
        return {node.primitive for node in build(jax.make_jaxpr(f)(*args)).walk()}


NO_ROWS = (None, _rows.at_zero)


def may_move(law):
    """Whether an operand or result may have an exponent, by its signature."""
    text = law.signature
    return law.rows is None and (callable(text) or law.replay or bool(set("uU*") & set(text[2:])))


def test_every_law_is_called():
    seen = set().union(*map(primitives_of, CALLS.values()))
    moving = {name for name, law in LAWS.items() if law.rows not in NO_ROWS or may_move(law)}
    assert moving - seen <= NOT_CALLED


SAME, PRODUCT, ANY_OPERANDS = "*x: u -> u", "a: u, b: v, *x: w -> u*v", "*x: * -> -"


@pytest.mark.parametrize(
    ("primitive", "signature"),
    [
        *(("mul", SAME), ("div", PRODUCT), ("add", PRODUCT), ("sqrt", SAME), ("lt", ANY_OPERANDS)),
        *(("scatter-mul", SAME), ("dot_general", SAME), ("rem", ANY_OPERANDS)),
        *(("sort", ANY_OPERANDS), ("triangular_solve", PRODUCT), ("psum", ANY_OPERANDS)),
        *(("cholesky", SAME), ("pow", SAME)),
    ],
)
def test_a_wrong_law_is_noticed(primitive, signature, monkeypatch):
    """What the test above is worth: with one signature replaced, some call goes wrong."""
    wrong = dataclasses.replace(LAWS[primitive], signature=signature, rows=None, each=False)
    monkeypatch.setitem(LAWS, primitive, wrong)
    assert any(differences(call)[0] for call in CALLS.values() if primitive in primitives_of(call))


# -- a primitive of one's own ---------------------------------------------------------------------

OWN = Primitive("test_scale_own")
OWN.def_impl(lambda x, y: x * y)
OWN.def_abstract_eval(lambda x, y: x)


def lower_own():
    from jax.interpreters import mlir

    mlir.register_lowering(OWN, mlir.lower_fun(lambda x, y: x * y, multiple_results=False))


lower_own()


@pytest.fixture
def table():
    """The laws, as they were afterwards."""
    before = dict(LAWS)
    yield
    LAWS.clear()
    LAWS.update(before)


LARGE = jnp.full(3, 1e25, jnp.float32)


def square_over(x):
    return OWN.bind(x, x) / x


def test_a_primitive_without_entry_is_at_zero_and_said_so():
    view = tj.scale_graph(square_over)(LARGE)
    assert any("test_scale_own" in note for note in view.plan.notes)
    assert "test_scale_own" in str(view)
    with pytest.warns(
        tj.errors.ScaleWarning, match="`test_scale_own` at .* could not be looked at"
    ):
        assert np.isinf(tj.jit(square_over)(LARGE)).all()  # as in plain JAX


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("signature", "rows"),
    [
        ("a: u, b: v -> u*v", None),
        ("", lambda node, m: [((1, node.uses[0]), (1, node.uses[1]), (-1, node.outputs[0]))]),
    ],
)
def test_a_registered_primitive_is_planned(signature, rows):
    times = lambda node, xs: [
        tj.scale.Wide(xs[0].array * xs[1].array, xs[0].exponent + xs[1].exponent)
    ]
    register_law(OWN, signature or "*x: - -> -", rows=rows, evaluate=times)
    view = tj.scale_graph(square_over)(LARGE)
    assert not view.plan.notes
    np.testing.assert_allclose(tj.jit(square_over)(LARGE), LARGE, rtol=1e-6)
    wrong, moved = differences((square_over, X))
    assert not wrong
    assert moved


@pytest.mark.usefixtures("table")
def test_a_registered_primitive_has_units():
    register_law(OWN, "a: u, b: v -> u*v")
    assert tj.lift(lambda x: OWN.bind(x, x))(X * tj.unit("m")).unit == tj.unit("m^2")


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("signature", "more", "said"),
    [
        ("multiply", {}, r"'multiply' cannot be read.*no `->`.*\nHint: .*u\*v"),
        ("a: u, b: v -> u*w", {}, r"no operand is in `w`"),
        ("a: u, b: uv -> u", {}, r"cannot be read.*'uv' is no role"),
        ("a u -> u", {}, r"cannot be read.*'a u' is not `name: role`"),
        ("a: u -> u^", {}, r"cannot be read"),
        ("a: u -> u^1/0", {}, r"cannot be read"),
        ("a: u, b: v -> u v", {}, r"cannot be read"),
        (None, {}, r"None cannot be read"),
        ("a: u -> u", {"evaluates": len}, r"no 'evaluates'.*\nHint: .*`evaluate`"),
        ("a: u -> u", {"bound": 3}, r"`bound` is 3"),
        ("a: u -> u", {"work": "much"}, r"`work` is 'much'"),
    ],
)
def test_registration_refuses_what_cannot_be_meant(signature, more, said):
    with pytest.raises(tj.errors.ScaleError, match=rf"(?s)register_law: `test_scale_own`.*{said}"):
        register_law(OWN, signature, **more)
    assert OWN.name not in LAWS


@pytest.mark.usefixtures("table")
def test_a_law_is_written_once():
    with pytest.raises(
        tj.errors.ScaleError, match=r"(?s)`mul`: there is a law already.*override=True"
    ):
        register_law("mul", "*x: u -> u")
    register_law("mul", "a: u, b: v -> u*v", override=True)
    register_law("test_scale_name_only", "*x: u -> u")
    with pytest.raises(tj.errors.ScaleError, match="already"):
        register_law("test_scale_name_only", "*x: u -> u")
    with pytest.raises(tj.errors.ScaleError, match="is no primitive"):
        register_law(3, "*x: u -> u")


def test_the_power_zero_asks_nothing_of_its_base():
    """A row has no coefficient that is 0, by which somebody would divide."""
    f = tj.jit(lambda x: (x**3 / 1e60, x**0, 1 / (1 + x * x)))
    np.testing.assert_allclose(f(jnp.float32(1e30)), (1e30, 1.0, 0.0), rtol=1e-6)


def test_magnitudes_decide_about_identities():
    """`exp` is pinned at 0 where its result fits, and free where it does not."""
    graph = build(jax.make_jaxpr(jnp.exp)(jnp.float32(1.0)))
    (node,) = graph.nodes
    small = Magnitude(-1.0, 1.0)
    assert len(_rows.rows_of(node, [small, small])) == 2
    assert len(_rows.rows_of(node, [small, Magnitude(200.0, 300.0)])) == 1


def test_a_logarithm_near_one_keeps_its_digits():
    """Its operand has an exponent, so that `log v + t·log 2` would cancel: there it is not used."""
    x = jnp.array([1 + 2.0**-10, 1.0, 1e25], jnp.float32)  # the first square is exact
    f = lambda x: jnp.log(x * x)
    assert not tj.scale_graph(f)(x).plan.identity
    want = 2 * np.log(np.asarray(x, np.float64))
    np.testing.assert_allclose(tj.jit(f)(x), want, rtol=1e-6)
