"""Checks of captured programs: replay, walk and rewrite give the bits of the function."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import tanjax as tj


def is_same(a, b):
    """True if two trees have one structure, and their leaves equal bits and dtypes."""
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        jnp.result_type(x) == jnp.result_type(y)
        and np.shape(x) == np.shape(y)
        and np.array_equal(np.asarray(x), np.asarray(y), equal_nan=np.asarray(x).dtype.kind in "fc")
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def total(f, *args):
    """Return the sum of all floating results of a function, as a loss."""
    leaves = [
        jnp.real(x) for x in jax.tree.leaves(f(*args)) if jnp.issubdtype(x.dtype, jnp.inexact)
    ]
    return functools.reduce(jnp.add, [jnp.sum(x * x) for x in leaves])


def assert_captures(f, *args, derivative=True, ulps=0):
    """Capture `f`; check replay, walk, rewrite and derivative against it; return the program.

    `ulps`: the allowed error of a derivative of a derivative. In JAX 0.12 `jnp.sin` is a call,
    in which JAX sums the cotangents of `sin` and `cos`; the program has two equations.
    """
    program = tj.capture(f)(*args)
    value = jax.jit(f)(*args)
    assert is_same(jax.jit(program)(*args), value)
    assert is_same(program(*args), f(*args))
    assert str(tj.programs.Interpreter().rewrite(program)) == str(program)
    assert is_same(jax.jit(tj.programs.Interpreter()(f))(*args), value)
    if derivative:
        of = lambda g: jax.jit(jax.grad(functools.partial(total, g)))
        found, expected = of(program)(*args), of(f)(*args)
        if ulps:
            jax.tree.map(lambda a, b: np.testing.assert_array_max_ulp(a, b, ulps), found, expected)
        else:
            assert is_same(found, expected)
    return program


def body_of(program, name):
    """Return the programs of the first equation with a name, at any depth."""
    for equation in program:
        if equation.name == name:
            return equation.programs
        for inner in equation.programs.values():
            if (found := body_of(inner, name)) is not None:
                return found
    return None


def names(program):
    """Return the names of all equations, those of inner programs after their own."""
    for equation in program:
        yield equation.name
        for inner in equation.programs.values():
            yield from names(inner)
