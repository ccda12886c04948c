"""Every mode of differentiation of a function of one array, for two forms that must agree."""

import jax
import jax.numpy as jnp
import numpy as np


def results(f, x, t):
    """What JAX makes of `f`, a real function of one array, at `x` in the direction `t`."""
    gradient = jax.grad(f)
    repeated = lambda x: jax.lax.scan(lambda c, _: (c * f(x), None), jnp.ones(()), None, 2)[0]
    return {
        "value": f(x),
        "grad": gradient(x),
        "jvp": jax.jvp(f, (x,), (t,))[1],
        "hessian": jax.hessian(f)(x),
        "reverse over reverse": jax.grad(lambda x: jnp.vdot(gradient(x), t))(x),
        "vmap of grad": jax.vmap(gradient)(jnp.stack([x, x + 0.1 * t])),
        "checkpoint": jax.grad(jax.checkpoint(f))(x),
        "scan": jax.grad(repeated)(x),
    }


def assert_same_in_every_mode(f, reference, x, t, modes=None, rtol=1e-9):
    """Compare two functions in every mode; each is compiled once for all of them."""

    def chosen(f):
        found = results(f, x, t)
        return {name: found[name] for name in modes or found}

    got, expected = jax.jit(lambda: chosen(f))(), jax.jit(lambda: chosen(reference))()
    for name, value in expected.items():
        scale = max(1.0, float(jnp.max(jnp.abs(value))))
        np.testing.assert_allclose(got[name], value, rtol=rtol, atol=rtol * scale, err_msg=name)
