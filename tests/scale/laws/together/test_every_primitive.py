"""Every primitive that JAX's public functions come down to is right at extreme numbers, or warns.

Public functions are traced on standard arguments; what they come down to has to have a law. Then
one function for each primitive is run by `tj.jit` in float32 on numbers near 1e30, near 1e-30, and
on both at once, and compared with a run in float64. Results are brought back to ordinary numbers in
the program, so that they can be right although what is between has no place in float32.

Many functions are one program. Where something in it is wrong and it warned, each function that is
wrong has to warn by itself.
"""

from __future__ import annotations

import functools
import inspect
import warnings

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np
import pytest
from jax import lax

import tanjax as tj
from primitive_calls import CALLS, primitives_of_jax
from tanjax.scale.laws._law import LAWS

pytestmark = pytest.mark.core

PLACES = (
    *(lax, lax.linalg, jnp, jnp.linalg, jnp.fft, jax.nn, jax.random, jax.scipy.special),
    *(jax.scipy.linalg, jax.scipy.stats, jax.scipy.signal, jax.scipy.stats.norm),
)
X = jnp.array([1.5, 2.0, -3.0], jnp.float32)
Y = jnp.array([0.3, 0.7, 2.0], jnp.float32)
M = jnp.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]], jnp.float32)
AT = jnp.array([2, 0, 1], jnp.int32)
ARGUMENTS = (
    *((X,), (X, Y), (X, Y, Y), (M,), (M, X), (M, M), (X, AT), (AT,), (AT, AT), (X, 1), (X, (3, 1))),
    *((X, (0,)), (M, (1, 0)), ([X, Y], 0), (X > 0, X, Y), (jax.random.key(0),), (X, Y, X, Y)),
    *(
        (jax.random.key(0), X),
        (jax.random.key(0), (3,)),
        (jax.random.key(0), AT),
        (lax.complex(X, Y),),
    ),
)


@pytest.fixture(autouse=True)
def as_users_have_it():
    """Functions are called as they come, with what JAX allows by itself."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def names_of(closed):
    """The primitives of a jaxpr and of those nested in it."""
    found = set()
    for equation in closed.jaxpr.eqns if hasattr(closed, "jaxpr") else closed.eqns:
        found.add(equation.primitive.name)
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
            if is_jaxpr(inner):
                found |= names_of(inner)
    return found


def is_jaxpr(x):
    return hasattr(x, "eqns") or hasattr(getattr(x, "jaxpr", None), "eqns")


def split(args):
    """Arrays, which are traced, and the rest."""
    leaves, tree = jax.tree.flatten(args)
    arrays = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array)]

    def join(values):
        new = dict(zip(arrays, values, strict=True))
        return jax.tree.unflatten(tree, [new.get(i, x) for i, x in enumerate(leaves)])

    return [leaves[i] for i in arrays], join


def as_case(f, args):
    """A function of arrays that gives a list of arrays, and these arrays."""
    arrays, join = split(args)
    return lambda *values: list(map(numbers, results_of(f(*join(values))))), arrays


def results_of(out):
    return [x for x in jax.tree.leaves(out) if hasattr(x, "dtype")]


def numbers(x):
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.extended)
    return jax.random.key_data(x) if is_key else x


def public_functions():
    seen = set()
    for place in PLACES:
        for name in sorted(vars(place)):
            f = getattr(place, name)
            if name.startswith("_") or not callable(f) or inspect.isclass(f) or id(f) in seen:
                continue
            seen.add(id(f))
            yield f"{place.__name__}.{name}", f


def mutated(x):
    ref = jax.new_ref(x)
    ref[...] += x
    return ref[...] * x


KEY = jnp.array([0, 7], jnp.uint32)
MORE = {
    "lax": (
        lambda x, i: (
            lax.rng_uniform(x[1], x[0], (3,)),
            lax.linalg.lu_pivots_to_permutation(i[:2], 3),
            lax.reduce_xor(i, (0,)),
            lax.rng_bit_generator(jnp.arange(4, dtype=jnp.uint32), (3,))[1],
            jax.random.uniform(jax.random.fold_in(jax.random.wrap_key_data(KEY), 3), (2,)) * x[0],
        ),
        Y,
        jnp.array([0, 2, 1]),
    ),
    "mutable": (mutated, X),
}


@functools.cache
def reached():
    """Cases by name, each with the primitives that it comes down to."""
    found = {}
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (f, *args) in (CALLS | MORE).items():
            args = jax.tree.map(in_float32, args)
            case = as_case(f, args)
            found[name] = (*case, names_of(jax.make_jaxpr(case[0])(*case[1])))
        for name, f in public_functions():
            for args in ARGUMENTS:
                case = as_case(f, args)
                try:
                    found[name] = (*case, names_of(jax.make_jaxpr(case[0])(*case[1])))
                    break
                except Exception:  # not its arguments
                    continue
    return found


def in_float32(x):
    x = jnp.asarray(x)
    return x.astype({"f": "f4", "c": "c8", "i": "i4"}.get(x.dtype.kind, x.dtype))


@pytest.mark.slow
def test_every_primitive_has_a_law():
    found = set().union(primitives_of_jax(), *(names for *_, names in reached().values()))
    assert len(primitives_of_jax()) > 150
    assert len(found) > 200
    assert found <= set(LAWS)


# -- at extreme numbers ---------------------------------------------------------------------------

# What the numbers of an argument are multiplied by: entry by entry, in turn.
FACTORS = {"ordinary": (1.0,), "huge": (1e30,), "tiny": (1e-30,), "mixed": (1e30, 1.0, 1e-30)}
BATCH = 24
BEYOND = 2.0**126


def chosen():
    """For each primitive the case with the fewest others, as few cases as that takes."""
    left, cases = set(), []
    found = reached()
    left = set().union(*(names for *_, names in found.values()))
    for name in [*CALLS, *MORE]:
        left -= found[name][2]
        cases.append(name)
    for name in sorted(found, key=lambda n: len(found[n][2])):
        if found[name][2] & left:
            left -= found[name][2]
            cases.append(name)
    return cases


def is_float(x):
    return jnp.issubdtype(x.dtype, jnp.inexact)


def scaled(x, factors):
    if not is_float(x):
        return x
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        return (x * np.resize(np.asarray(factors, np.float64), x.shape)).astype(x.dtype)


def brought(x, power):
    """A result multiplied by a power of two, by products that every dtype holds."""
    while power:
        part = int(np.clip(power, -120, 120))
        x, power = x * np.asarray(2.0**part, x.dtype), power - part
    return x


class Batch:
    """Some cases as one program: its runs in float64, as plain JAX has it, and by `tj.jit`."""

    def __init__(self, names):
        cases = [reached()[name][:2] for name in names]
        self.functions = [f for f, _ in cases]
        self.arguments = [arrays for _, arrays in cases]
        self.exact = jax.jit(lambda args: self.results(args))
        with jax.enable_x64(False):
            counts = [len(jax.eval_shape(f, *a)) for f, a in cases]
            plain = jax.jit(lambda args: self.results(args))(self.arguments)
        self.labels = [f"{n}[{i}]" for n, c in zip(names, counts, strict=True) for i in range(c)]
        self.places = [(k, i) for k, c in enumerate(counts) for i in range(c)]
        ordinary = self.reference("ordinary")
        self.blur = [blur(p, *o) for p, o in zip(plain, zip(*ordinary, strict=True), strict=True)]

    def results(self, args, only=None):
        if only is not None:
            k, i = self.places[only]
            return [self.functions[k](*args[k])[i]]
        return [r for f, a in zip(self.functions, args, strict=True) for r in f(*a)]

    def at(self, mode):
        return [[scaled(x, FACTORS[mode]) for x in arrays] for arrays in self.arguments]

    def reference(self, mode):
        """The results in float64, and how far rounding in float32 may take them.

        A function that rounds badly moves in float64, too, by as many of its units.
        """
        wide = lambda x: x.astype({"f": "f8", "c": "c16"}[x.dtype.kind]) if is_float(x) else x
        args = jax.tree.map(wide, self.at(mode))
        random = np.random.default_rng(0)

        def shaken(size):
            shake = lambda x: x * (1 + size * random.uniform(-1, 1, x.shape))
            changed = self.exact(jax.tree.map(lambda x: shake(x) if is_float(x) else x, args))
            return [np.asarray(x) for x in changed]

        with jax.enable_x64(True), np.errstate(all="ignore"):
            want = [np.asarray(x) for x in self.exact(args)]
            coarse, *fine = [shaken(size) for size in (6e-8, *[2e-16] * 3)]
        noise = [
            np.max([change(coarse[i], w), *(2.0**29 * change(x[i], w) for x in fine)], axis=0)
            for i, w in enumerate(want)
        ]
        return want, noise

    def wrong(self, mode, only=None):
        """The results that are wrong at some numbers, and whether there was a warning."""
        want, noise = self.reference(mode)
        powers = [-top(w) for w in want]
        places = range(len(want)) if only is None else [only]

        def run(args):
            out = self.results(args, only)
            return [
                brought(x, powers[i]) if is_float(x) else x
                for x, i in zip(out, places, strict=True)
            ]

        with jax.enable_x64(False), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = tj.jit(run)(self.at(mode))
        warned = any(issubclass(w.category, tj.errors.ScaleWarning) for w in caught)
        bad = [
            i
            for i, x in zip(places, got, strict=True)
            if not is_right(x, want[i], noise[i], powers[i], self.blur[i])
        ]
        return bad, warned


def change(x, want):
    with np.errstate(all="ignore"):
        return np.abs(x - want) if want.dtype.kind in "fc" else np.zeros(want.shape)


def top(want):
    """The binary logarithm of the largest number, rounded; 0 if there is none."""
    if want.dtype.kind not in "fc":
        return 0
    sizes = np.abs(want[np.isfinite(want) & (want != 0)])
    return int(np.round(np.log2(sizes.max()))) if sizes.size else 0


def is_right(got, want, noise, power, blur):
    got = np.asarray(got)
    if want.dtype.kind not in "fc":
        if want.dtype.kind in "iu":
            want = np.clip(want, np.iinfo(got.dtype).min, np.iinfo(got.dtype).max)
        return blur == np.inf or np.array_equal(got, want)
    with np.errstate(all="ignore"):
        factor = 2.0 ** float(np.clip(power, -1000, 1000))
        want, noise = want * factor, np.nan_to_num(noise * factor, posinf=np.inf, nan=np.inf)
        size = np.abs(want)
        spread = blur * np.max(size, initial=0, where=size < np.inf)
        spread = np.inf if blur == np.inf else spread  # also where all that is wanted is 0
        tolerance = 3e-5 * size + 16 * noise + spread
        counts = np.isfinite(want) & (size < 2.0**126)
        close = np.abs(got - want) <= tolerance + 2.0**-115
    return bool(np.all(close | ~counts))


def blur(plain, want, noise):
    """How far plain JAX is off at ordinary numbers, beside the largest; inf if not comparable."""
    plain = np.asarray(plain)
    if is_right(plain, want, noise, 0, 0.0):
        return 0.0
    if want.dtype.kind not in "fc":
        return np.inf
    with np.errstate(all="ignore"):
        error = np.max(
            np.abs(plain - want), initial=0, where=np.isfinite(want) & np.isfinite(plain)
        )
        share = error / np.max(np.abs(want), initial=0, where=np.isfinite(want))
    return 8 * share if share < 1e-2 else np.inf


@functools.cache
def batches():
    names = chosen()
    return [Batch(names[i : i + BATCH]) for i in range(0, len(names), BATCH)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["huge", "tiny", "mixed"])
def test_every_primitive_is_right_or_warns(mode):
    silent = []
    for batch in batches():
        bad, warned = batch.wrong(mode)
        for i in bad:
            if not warned or batch.wrong(mode, only=i) == ([i], False):
                silent.append(batch.labels[i])
    assert silent == []


def test_the_comparison_notices_what_plain_jax_loses(monkeypatch):
    batch = Batch(["products"])
    assert batch.wrong("huge") == ([], False)
    with monkeypatch.context() as changed:
        changed.setattr(tj, "jit", jax.jit)
        bad, warned = batch.wrong("huge")
        assert bad
        assert not warned
