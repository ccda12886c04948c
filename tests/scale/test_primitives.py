"""Every primitive of JAX has an entry in the table of constraints, and every entry is right.

Right means: at any exponents whatever that satisfy the rows of an equation, replaying it gives its
results. The exponents are drawn from all integer solutions of the rows, by elimination over
fractions and so without the solver, for one small call per entry.
"""

import gc
import math
from fractions import Fraction

import jax
import jax.extend.core.primitives
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.custom_batching import custom_vmap
from jax.extend.core import Primitive
from jax.sharding import PartitionSpec as P

import tanjax as tj
from tanjax import _compat
from tanjax.scale import register_constraint
from tanjax.scale.graph._graph import Exponents, Magnitude, Use, build
from tanjax.scale.laws import _constraints
from tanjax.scale.magnitudes import _evaluate
from tanjax.scale.replay import _replay

# -- which there are ------------------------------------------------------------------------------

# What stands in no entry of the table, and so works on the numbers themselves: the report says so.
WITHOUT_ENTRY = {
    "mutable arrays, whose contents have no place in a graph": """
        get swap addupdate new_ref freeze empty_ref free_ref accum_grad_in_ref""",
    "functions of the number itself that only special libraries use": """
        one_minus_square erf_inv_grad""",
    "programs to the graph (`_expansions.py`), or equations with more results (`_lu.py`)": """
        polynomial symmetric_product lu""",
    "several matrices behind one primitive, at several exponents": "cholesky_update",
    "a reduction by any function": "select_and_scatter",
    "rows whose sizes are data": "ragged_all_to_all",
    "programs that are not open to JAX": "stage",
}
# Names of one of the supported versions of JAX only, or of this library (made when first used).
_OTHERS = """
    call closed_call checkpoint pjit remat pcast reduced_vary_cast reduced_vary_cast_p log2
    vary_unreduced_cast vary_unreduced_cast_p tanjax_linear tanjax_symmetric_outer eval_jaxpr
    tanjax_lu"""
OF_OTHER_VERSIONS = set(_OTHERS.split())


def primitives_of_jax():
    """The names of all primitives that are exported by `jax.lax` or `jax.extend`."""
    places = (jax.lax, jax.lax.linalg, jax.extend.core.primitives)
    found = [getattr(place, name) for place in places for name in dir(place)]
    return {p.name for p in found if isinstance(p, Primitive)}


def test_every_primitive_has_an_entry_or_a_reason():
    found = primitives_of_jax()
    assert len(found) > 150
    excused = set(" ".join(WITHOUT_ENTRY.values()).split())
    missing = {name for name in found if not _constraints.is_known(name)}
    assert missing <= excused
    assert not any(map(_constraints.is_known, excused)), "a primitive with an entry needs no excuse"


def test_no_entry_is_misspelt():
    """A name that no primitive has would leave the primitive that was meant at scale 0."""
    here = {p.name for p in gc.get_objects() if isinstance(p, Primitive)} | primitives_of_jax()
    ours = {getattr(p, "name", None) for p in (OWN,)}
    unknown = set(_constraints._table) - here - OF_OTHER_VERSIONS - ours
    assert not unknown


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
        for row in _constraints.rows_of(node, magnitudes):
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


# -- one small call per entry ---------------------------------------------------------------------

X = jnp.array([1.5, 2.0, -3.0])
Y = jnp.array([0.3, 0.7, 2.0])
M = jnp.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
Z = lax.complex(X, Y)
IMAGE = jnp.arange(1.0, 26).reshape(1, 1, 5, 5)
FILTER = jnp.arange(1.0, 5).reshape(1, 1, 2, 2)
AT = jnp.array([0, 2])


def window(function, start):
    return lambda x: lax.reduce_window(x, start, function, (2,), (1,), "SAME")


def on_mesh(f):
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False)


@custom_vmap
def mapped(x):
    return x * x


@mapped.def_vmap
def _(size, batched, x):
    return x * x, batched[0]


@jax.custom_vjp
def ruled(x):
    return x * x


ruled.defvjp(lambda x: (x * x, x), lambda x, g: (2 * x * g,))


def pick(s, x):
    return lax.cond(x[0] > 0, lambda s: s * x, lambda s: s + x, s)


CALLS = {
    "add sub neg abs": (lambda x, y: (x + y, x - y, -x, abs(x)), X, Y),
    "add_any": (jax.grad(lambda x: jnp.sum(x * x + x)), X),
    "max min rem clamp": (
        lambda x, y: (jnp.maximum(x, y), jnp.minimum(x, y), lax.rem(x, y), lax.clamp(0.5, x, y)),
        X,
        Y,
    ),
    "real imag complex conj": (
        lambda z: (z.real, z.imag, lax.complex(z.real, z.imag), z.conj()),
        Z,
    ),
    "shapes": (
        lambda x, y: (
            *(jnp.concatenate([x, y]), x.reshape(3, 1), jnp.broadcast_to(x, (2, 3)), x[::-1]),
            *(x[:, None].T, x[1:], jnp.squeeze(x[:1]), jnp.pad(x, 1, constant_values=y[0])),
            *(*jnp.split(x, [1]), jnp.tile(x, 2), jnp.stack([x, y]), *jnp.unstack(x)),
            *(lax.stop_gradient(x), jnp.copy(x)),
        ),
        X,
        Y,
    ),
    "indices": (
        lambda x, y: (
            *(lax.dynamic_slice(x, (1,), (2,)), lax.dynamic_update_slice(x, y[:1], (1,)), x[AT]),
            *(x.at[AT].set(y[:2]), x.at[AT].add(y[:2]), x.at[AT].min(y[:2]), x.at[AT].max(y[:2])),
            *(x.at[AT].multiply(y[:2]), x.at[AT].subtract(y[:2])),
        ),
        X,
        Y,
    ),
    "out of bounds": (
        lambda x: (
            x.at[jnp.array([0, 9])].get(mode="fill", fill_value=5.0),
            x.at[jnp.array([0, 9])].get(mode="fill", fill_value=0.0),
            x.at[jnp.array([0, 9])].get(mode="fill"),
        ),
        X,
    ),
    "reductions": (
        lambda x: (
            x.sum(),
            x.max(),
            x.min(),
            jnp.prod(x),
            jnp.cumsum(x),
            lax.cummax(x),
            lax.cummin(x),
        ),
        X,
    ),
    "fft": (
        lambda x, z: (jnp.fft.fft(x), jnp.fft.rfft(x), jnp.fft.irfft(z, 3), jnp.fft.ifft(z)),
        X,
        Z,
    ),
    "windows": (
        lambda x: (
            window(lax.add, 0.0)(x),
            window(lax.max, -np.inf)(x),
            window(lax.min, np.inf)(x),
        ),
        X,
    ),
    "gradient of a window": (
        lambda x, y: (
            jax.grad(lambda x: jnp.sum(window(lax.max, -np.inf)(x) * y))(x),
            jax.jvp(jax.grad(lambda x: jnp.sum(window(lax.max, -np.inf)(x) ** 3)), (x,), (y,)),
        ),
        X,
        Y,
    ),
    "sort": (
        lambda x, y: (*lax.sort((x, y, AT.sum() + jnp.arange(3)), num_keys=1), *lax.top_k(x, 2)),
        X,
        Y,
    ),
    "approximate top": (lambda x: lax.approx_max_k(x, 2), X),
    "barriers": (
        lambda x, y: (*lax.optimization_barrier((x, y)), checkpoint_name(x * y, "a")),
        X,
        Y,
    ),
    "device": (lambda x: jax.device_put(x, jax.devices()[0]), X),
    "products": (lambda x, y, m: (x * y, m @ x, jnp.outer(x, y), x / y, 3 / x, x / 3), X, Y, M),
    "convolution": (lambda i, f: lax.conv(i, f, (1, 1), "SAME"), IMAGE, FILTER),
    "ragged": (lambda m: lax.ragged_dot(m, jnp.stack([m, m]), jnp.array([1, 2], jnp.int32)), M),
    "own products": (lambda m: _compat.symmetric_outer(m[:, :1], m[:, 1:2]), M),
    "comparisons": (
        lambda x, y: (
            x < y,
            x <= y,
            x > y,
            x >= y,
            x == y,
            x != y,
            jnp.arctan2(x, y),
            jnp.sort(x * y),
        ),
        X,
        X * jnp.array([1.01, 0.99, 1.0]),  # so near that any wrong power of two would be seen
    ),
    "any": (lambda x: (jnp.sign(x), jnp.isfinite(x), jnp.argmax(x), jnp.argmin(x)), X),
    "roots": (
        lambda x, m: (jnp.sqrt(abs(x)), lax.rsqrt(abs(x)), lax.cbrt(x), lax.square(x)),
        X,
        M,
    ),
    "powers": (lambda x: (x**2, x**3, x**-2, x**5, abs(x) ** 2.5, abs(x) ** x, abs(x) ** 0.25), X),
    "decompositions": (
        lambda m: (
            jnp.linalg.cholesky(m),
            jnp.linalg.eigvalsh(m),
            abs(jnp.linalg.eigh(m)[1]),
            jnp.linalg.svd(m)[1],
            abs(jnp.linalg.svd(m)[0]),
        ),
        M,
    ),
    "linear solve": (lambda m, x: (jnp.linalg.solve(m, x), jnp.linalg.inv(m)), M, X),
    "general eigenvalues": (lambda m: (jnp.linalg.eig(m)[0], lax.linalg.schur(m)[0]), M),
    "solves": (
        lambda m, x: (
            lax.linalg.triangular_solve(m, x[:, None], left_side=True),
            lax.linalg.triangular_solve(m, x[:, None], left_side=True, unit_diagonal=True),
            lax.linalg.tridiagonal_solve(x, x * 9, x, x[:, None]),
        ),
        M,
        X,
    ),
    "selection": (
        lambda x, y: (jnp.where(x > 0, x, y), lax.select_n(AT.max() - 2 + x.astype(int) * 0, x, y)),
        X,
        Y,
    ),
    "precision": (
        lambda x: (lax.reduce_precision(x, 11, 20), lax.reduce_precision(x, 4, 20)),
        jnp.array([200.0, 0.02, -3.0]),  # next to the ends of a range of four bits
    ),
    "conversion": (lambda x: (x.astype(jnp.float32), x.astype(int), x.astype(complex), x > 0), X),
    "exponentials": (
        lambda x, y: (jnp.exp(x), jnp.exp2(x), jnp.log(y), jnp.log2(y), jnp.sin(x), jnp.tanh(y)),
        X,
        Y,
    ),
    "functions": (
        lambda x, y: (
            *(jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.asin(y / 2), jnp.acos(-y / 2), jnp.atan(x)),
            *(jnp.sinh(x), jnp.cosh(x), jnp.tanh(x), jnp.asinh(x), jnp.acosh(1 + y), lax.expm1(x)),
            *(jnp.atanh(y / 4), lax.log1p(y), lax.logistic(x), lax.erf(x), lax.erfc(x)),
            *(lax.erf_inv(y / 4), jnp.floor(x * y), jnp.ceil(x * y), jnp.round(x * y)),
            *(jnp.exp(x), jnp.exp2(x), jnp.log(y), jnp.log2(y), jnp.atan2(x, y), jnp.atan2(y, x)),
        ),
        X,
        Y,
    ),
    "complex functions": (lambda z: (jnp.exp(z), jnp.log(z), z**2, jnp.sqrt(z), z**0.25), Z),
    "powers of any kind": (
        lambda x, y: (abs(x) ** y, x**7, x**-5, y**1.5, y**0.7, y ** (1 / 3), y**30.5, x**30),
        X,
        Y,
    ),
    "products of many": (
        lambda x, m: (
            *(jnp.prod(x), jnp.prod(m, 0), jnp.prod(m, (0, 1)), jnp.prod(m[:0], 0)),
            *(lax.cumprod(x), lax.cumprod(m, 1, reverse=True)),
        ),
        X,
        M,
    ),
    "other types": (
        lambda x, y, n: (
            *((x * y).astype(bool), (x * y).astype(int), (x * y).astype(jnp.int8)),
            *(n.astype(float) * x, (x > y).astype(float) * x, (x * y).astype(complex)),
        ),
        X,
        Y,
        AT[:1],
    ),
    "custom solve": (
        lambda x, y: lax.custom_linear_solve(
            lambda v: x * v, y, lambda matvec, b: b / x, symmetric=True
        ),
        X,
        Y,
    ),
    "expanded": (
        lambda x, n: (jnp.polyval(x, Y), jnp.ldexp(x, n), *jnp.frexp(x), jnp.searchsorted(Y, x)),
        X,
        jnp.array([3, -2, 60]),
    ),
    "reductions by functions": (
        lambda x, y: (
            lax.reduce(x, y[0], lambda a, b: a + b, (0,)),
            lax.reduce(x, y[0], lambda a, b: a * b, (0,)),
            lax.reduce_window(x, y[0], lambda a, b: a + b, (2,), (1,), "SAME"),
        ),
        X,
        Y,
    ),
    "orthogonal factors": (lambda m: tuple(map(abs, jnp.linalg.qr(m))), M),
    "calls": (
        lambda x: (
            *(jax.jit(lambda x: x * x)(x), jax.checkpoint(lambda x: x * x)(x), jax.nn.relu(x) * x),
            *(ruled(x), mapped(x), lax.composite(lambda x: x * x, "a.square")(x)),
        ),
        X,
    ),
    "cond": (lambda s, x: pick(s, x), Y, X),
    "scan": (lambda s, x: lax.scan(lambda c, r: (c * r + 1, c / r), s, x), Y, X),
    "while": (
        lambda s, x: lax.while_loop(lambda c: c[0] < 9, lambda c: c * c * 2 + x, s + 1),
        Y,
        abs(X),
    ),
    "devices": (
        on_mesh(
            lambda x: (
                *(
                    lax.psum(x, "i"),
                    lax.pmax(x, "i"),
                    lax.pmin(x, "i"),
                    lax.ppermute(x, "i", [(0, 1)]),
                ),
                *(
                    lax.all_gather(x, "i"),
                    lax.all_to_all(x, "i", 0, 0),
                    lax.psum_scatter(x, "i", tiled=True),
                ),
            )
        ),
        jnp.arange(1.0, 5),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_any_solution_of_the_rows_gives_the_program(name):
    wrong, moved = differences(CALLS[name])
    assert not wrong
    assert moved > 2


OF_FREE = ("functions", "complex functions", "powers", "powers of any kind", "products of many")


@pytest.mark.parametrize("name", [*OF_FREE, "other types", "expanded", "indices", "out of bounds"])
def test_functions_at_exponents_that_no_magnitude_asks_for(name, monkeypatch):
    """Where numbers fit, rows pin them at 0; here none is said to fit."""
    monkeypatch.setattr(_constraints, "fits_at_zero", lambda value, _: not value.is_floating)
    wrong, moved = differences(CALLS[name])
    assert not wrong
    assert moved > 2


# Entries without a call above: they need hardware, a mesh of another kind, or a version of JAX.
_UNCALLED = """
    all_gather_invariant all_gather_reduced pbroadcast unreduced_psum unreduced_reduce_scatter
    sharding_constraint layout_constraint reshard eq_to lt_to le_to pvary select_and_gather_add
    remat2 custom_lin run_state preduced psum_invariant copy_p"""
NOT_CALLED = OF_OTHER_VERSIONS | set(_UNCALLED.split())


def primitives_of(call):
    f, *args = call
    with jax.numpy_rank_promotion("allow"):
        return {node.primitive for node in build(jax.make_jaxpr(f)(*args)).walk()}


def test_every_entry_is_called():
    seen = set().union(*map(primitives_of, CALLS.values()))
    entries = {name for name, entry in _constraints._table.items() if entry.name != "at_zero"}
    assert entries - seen <= NOT_CALLED


@pytest.mark.parametrize(
    ("primitive", "kind"),
    [
        *(("mul", "same"), ("div", "product"), ("add", "product"), ("sqrt", "same"), ("lt", "any")),
        *(("scatter-mul", "same"), ("dot_general", "same"), ("rem", "any"), ("sort", "any")),
        *(("triangular_solve", "product"), ("psum", "any"), ("cholesky", "same"), ("pow", "same")),
    ],
)
def test_a_wrong_entry_is_noticed(primitive, kind, monkeypatch):
    """What the test above is worth: with one entry replaced, some call goes wrong."""
    wrong = _constraints.Constraint(kind, _constraints.KINDS[kind])
    monkeypatch.setitem(_constraints._table, primitive, wrong)
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
def table(monkeypatch):
    """The tables, as they were afterwards."""
    monkeypatch.setattr(_constraints, "_table", dict(_constraints._table))
    for name in ("RULES",):
        rules = getattr(_evaluate, name)
        before = dict(rules)
        yield
        rules.clear()
        rules.update(before)


LARGE = jnp.full(3, 1e25, jnp.float32)


def square_over(x):
    return OWN.bind(x, x) / x


def test_a_primitive_without_entry_is_at_zero_and_said_so():
    view = tj.scale_graph(square_over)(LARGE)
    assert any("test_scale_own" in note for note in view.plan.notes)
    assert "test_scale_own" in str(view)
    with pytest.warns(tj.ScaleWarning, match="`test_scale_own` at .* could not be looked at"):
        assert np.isinf(tj.jit(square_over)(LARGE)).all()  # as in plain JAX


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "rule",
    ["product", lambda node: [((1, node.uses[0]), (1, node.uses[1]), (-1, node.outputs[0]))]],
)
def test_a_registered_primitive_is_planned(rule):
    from tanjax.scale.numbers import _wide

    times = lambda node, xs: [
        _wide.settle(_wide.Wide(xs[0].array * xs[1].array, xs[0].exponent + xs[1].exponent))
    ]
    register_constraint(OWN, rule, evaluate=times)
    view = tj.scale_graph(square_over)(LARGE)
    assert not view.plan.notes
    np.testing.assert_allclose(tj.jit(square_over)(LARGE), LARGE, rtol=1e-6)
    wrong, moved = differences((square_over, X))
    assert not wrong
    assert moved


@pytest.mark.usefixtures("table")
def test_registration_refuses_what_cannot_be_meant():
    with pytest.raises(tj.ScaleError, match=r"no kind 'multiply'.*\n.*product"):
        register_constraint(OWN, "multiply")
    with pytest.raises(tj.ScaleError, match=r"has an entry already .product"):
        register_constraint("mul", "same")
    register_constraint("mul", "product", override=True)
    register_constraint("test_scale_name_only", "same")
    assert _constraints.is_known("test_scale_name_only")
    with pytest.raises(tj.ScaleError, match="already"):
        register_constraint("test_scale_name_only", "same")


def test_magnitudes_decide_about_identities():
    """`exp` is pinned at 0 where its result fits, and free where it does not."""
    graph = build(jax.make_jaxpr(jnp.exp)(jnp.float32(1.0)))
    (node,) = graph.nodes
    small = Magnitude(-1.0, 1.0)
    assert len(_constraints.rows_of(node, [small, small])) == 2
    assert len(_constraints.rows_of(node, [small, Magnitude(200.0, 300.0)])) == 1


def test_a_logarithm_near_one_keeps_its_digits():
    """Its operand has an exponent, so that `log v + t·log 2` would cancel: there it is not used."""
    x = jnp.array([1 + 2.0**-10, 1.0, 1e25], jnp.float32)  # the first square is exact
    f = lambda x: jnp.log(x * x)
    assert not tj.scale_graph(f)(x).plan.identity
    want = 2 * np.log(np.asarray(x, np.float64))
    np.testing.assert_allclose(tj.jit(f)(x), want, rtol=1e-6)


BY_IDENTITY = {
    "exp": (lambda x: jnp.exp(x) / jnp.exp(x - 1), [150.0, 160.0, 140.0], [np.e] * 3),
    "exp2": (lambda x: jnp.exp2(x) / jnp.exp2(x - 1), [200.0, 201.5, 190.0], [2.0] * 3),
    "log": (lambda x: jnp.log(x * x * x), [1e25, 2e20, 3e24], np.log([1e75, 8e60, 2.7e73])),
    "log2": (lambda x: jnp.log2(x * x), [2.0**90, 2.0**80, 2.0**100], [180.0, 160.0, 200.0]),
    "integer_pow": (lambda x: x**40 / x**39, [30.0, 20.0, -25.0], [30.0, 20.0, -25.0]),
    "pow": (lambda x: x**x / x ** (x - 1), [40.0, 45.0, 50.0], [40.0, 45.0, 50.0]),
}


@pytest.mark.parametrize("name", BY_IDENTITY)
def test_results_that_only_an_identity_can_hold(name):
    """On the way they are far beyond float32; the errors are those of the function itself."""
    f, numbers, want = BY_IDENTITY[name]
    x = jnp.array(numbers, jnp.float32)
    assert not tj.scale_graph(f)(x).plan.identity
    np.testing.assert_allclose(tj.jit(f)(x), want, rtol=1e-4)
