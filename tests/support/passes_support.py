"""Helpers for rewritten programs: their calls, and their results up to rounding."""

import jax
import jax.numpy as jnp
import numpy as np

from comparisons import dense_tree


def names(program):
    """Return the calls of a program in order, with bodies: operations, higher-order functions."""
    found = []
    for equation in program:
        if equation.kind in ("operation", "higher_order"):
            classes = [t for t in equation.types if t != "Dense"]
            found.append(f"{equation.name}[{','.join(classes)}]" if classes else equation.name)
        elif equation.name in ("scan", "while", "cond"):
            found.append(equation.name)
        for inner in equation.programs.values():
            found += names(inner)
    return found


def total(f):
    """Return the sum of all results of a function."""
    return lambda *args: sum(jnp.sum(jnp.real(x)) for x in jax.tree.leaves(dense_tree(f(*args))))


def assert_agrees(f, rewritten, *args, rtol=1e-12):
    """Assert that values and gradients agree, compiled."""
    which = tuple(range(len(args)))
    both = lambda f: jax.jit(lambda *a: (f(*a), jax.grad(total(f), which)(*a)))(*args)
    for want, got in zip(*(jax.tree.leaves(both(g)) for g in (f, rewritten)), strict=True):
        scale = max(1.0, float(np.max(np.abs(want), initial=0)))
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * scale)
