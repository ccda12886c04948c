"""The graph run on numbers: every rule against JAX in float64, wide ranges, loops, losses."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scale_cases import CASES, X, results_of

from tanjax.scale._evaluate import evaluate
from tanjax.scale._graph import build
from tanjax.scale._wide import as_float


@functools.cache
def program(family):
    return jax.make_jaxpr(lambda _: results_of(family))(X)


def run_with_jax(closed):
    """Constants are handed over as arguments: XLA would compute with them while it compiles."""
    run = jax.jit(lambda consts, x: jax.core.eval_jaxpr(closed.jaxpr, consts, x))
    return run(closed.consts, X)


def assert_equal(got, want, where, tolerance=1e-12):
    """Same shape and kind; floats relative to the largest entry of the array."""
    want = np.asarray(want)
    if want.dtype.kind not in "biufc":
        want = want.astype(float)
    got = np.asarray(as_float(got))
    assert got.shape == want.shape, where
    assert got.dtype.kind == want.dtype.kind, where
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want, str(where))
        return
    finite = np.abs(want[np.isfinite(want)])
    size = max(float(finite.max()), 1e-3) if finite.size else 1.0
    np.testing.assert_allclose(got, want, tolerance, tolerance * size, True, str(where))


@pytest.mark.parametrize("family", CASES)
def test_every_rule_agrees_with_jax(family):
    closed = program(family)
    want = run_with_jax(closed)
    graph = build(closed)
    found = evaluate(graph, [X])
    assert [(s.node.primitive, s.reason) for s in found.skipped] == []
    assert len(want) == len(found.outputs)
    for i, (a, b) in enumerate(zip(found.outputs, want, strict=True)):
        assert_equal(a, b, (family, i, graph.outputs[i].value.node))
