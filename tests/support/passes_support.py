"""Of rewritten programs: what they call, and that nothing but rounding has changed."""

import jax
import jax.numpy as jnp
import numpy as np

from comparisons import dense_tree


def names(program):
    """What a program calls, in order, bodies included: operations and higher-order functions."""
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
    """The sum of everything that a function returns."""
    return lambda *args: sum(jnp.sum(jnp.real(x)) for x in jax.tree.leaves(dense_tree(f(*args))))


def assert_agrees(f, rewritten, *args, rtol=1e-12):
    """Values and gradients, compiled."""
    which = tuple(range(len(args)))
    both = lambda f: jax.jit(lambda *a: (f(*a), jax.grad(total(f), which)(*a)))(*args)
    for want, got in zip(*(jax.tree.leaves(both(g)) for g in (f, rewritten)), strict=True):
        scale = max(1.0, float(np.max(np.abs(want), initial=0)))
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * scale)
