"""The building blocks of random programs: lines of Python by family.

A template has its operands as `{0}`, `{1}`; `<c>` becomes a constant, `<n>` a small integer, `<i>`,
`<k>`, `<b>` an argument that is an index, a count or a flag, `<h>` a helper and `<a>` a closed-over
array. `vs>v` gives the kinds of its operands and of its result: "v" is an array of the shape of the
program, "s" a scalar, "x" any. The result has the widest kind.
"""

from __future__ import annotations

SI = (6.67e-11, 6.626e-34, 1.38e-23, 9.1e-31, 1.602e-19, 3e8, 8.85e-12, 5.67e-8, 6.022e23)
ROUND = (2.0, 0.5, 1.0, 10.0, 3.0, 1e10, 1e-10, 1e20, 1e-20, 1e30, 1e-30, 100.0, 1e-3)

# name: (weight, templates)
OPERATIONS: dict[str, tuple[float, tuple[tuple[str, str], ...]]] = {
    "arithmetic": (
        6,
        (
            ("xx>x", "{0} * {1}"),
            ("xx>x", "{0} / {1}"),
            ("xx>x", "{0} + {1}"),
            ("xx>x", "{0} - {1}"),
            ("x>x", "{0} * {0}"),
            ("x>x", "1 / {0}"),
            ("x>x", "-{0}"),
            ("xx>x", "{0} * {1} / ({0} + {1})"),
            ("xx>x", "({0} - {1}) / ({0} + {1})"),
        ),
    ),
    "constant": (
        5,
        (
            ("x>x", "<c> * {0}"),
            ("x>x", "{0} / <c>"),
            ("x>x", "<c> / {0}"),
            ("x>x", "{0} + <c>"),
            ("x>x", "<c> - {0}"),
            ("x>x", "(<c>**2) * {0}"),
            ("xx>x", "<c> * {0} * {1}"),
            ("xx>x", "<c> * {0} / {1}**2"),
        ),
    ),
    "root": (
        3,
        (
            ("x>x", "jnp.sqrt(jnp.abs({0}))"),
            ("x>x", "jax.lax.rsqrt(jnp.abs({0}))"),
            ("x>x", "jnp.cbrt({0})"),
            ("xx>x", "jnp.sqrt({0} * {0} + {1} * {1})"),
        ),
    ),
    "integer power": (
        3,
        tuple(("x>x", f"{{0}}**{n}") for n in (2, 3, 4, 6, 12, -1, -2, -3)),
    ),
    "real power": (
        3,
        (
            *(("x>x", f"jnp.abs({{0}})**{p}") for p in ("1.5", "(1 / 3)", "0.7", "-2.5", "0.5")),
            ("xs>x", "jnp.abs({0})**jnp.tanh({1})"),
        ),
    ),
    "exp": (
        3,
        (
            ("x>x", "jnp.exp({0})"),
            ("x>x", "jnp.exp(-jnp.abs({0}))"),
            ("x>x", "jnp.expm1({0})"),
            ("x>x", "jax.nn.sigmoid({0})"),
            ("x>x", "jax.nn.softplus({0})"),
            ("x>x", "jnp.tanh({0})"),
            ("xx>x", "1 / (1 + jnp.exp({0} / {1}))"),
            ("xx>x", "{0} / jnp.expm1({0} / {1})"),
            ("xx>x", "jnp.exp(-jnp.square({0} / {1}))"),
        ),
    ),
    "log": (
        3,
        (
            ("x>x", "jnp.log(jnp.abs({0}))"),
            ("x>x", "jnp.log1p(jnp.abs({0}))"),
            ("xx>x", "jnp.log(jnp.abs({0} / {1}))"),
            ("xx>x", "jnp.logaddexp({0}, {1})"),
            ("x>x", "jnp.log(1 + {0} * {0})"),
        ),
    ),
    "choice": (
        3,
        (
            ("xx>x", "jnp.maximum({0}, {1})"),
            ("xx>x", "jnp.minimum({0}, {1})"),
            ("x>x", "jnp.clip({0}, -<c>, <c>)"),
            ("x>x", "jnp.maximum({0}, <c>)"),
            ("xx>x", "jnp.where({0} > {1}, {0}, {1})"),
            ("xx>x", "jnp.where(jnp.abs({0}) < <c>, {0} * {0}, {1})"),
            ("xx>x", "jnp.where(<b>, {0} * {0}, {1})"),
            ("x>x", "jnp.where({0} > 0, jnp.log(jnp.abs({0})), {0})"),
        ),
    ),
    "hypot": (1, (("xx>x", "jnp.hypot({0}, {1})"),)),
    "reduction": (
        4,
        (
            ("v>s", "jnp.sum({0})"),
            ("v>s", "jnp.mean({0})"),
            ("v>s", "jnp.prod({0})"),
            ("v>s", "jnp.max({0})"),
            ("v>s", "jnp.min(jnp.abs({0}))"),
            ("v>s", "jnp.linalg.norm({0}.ravel())"),
            ("v>s", "jnp.var({0})"),
            ("v>s", "jnp.std({0})"),
            ("v>s", "jax.nn.logsumexp({0})"),
            ("vv>s", "jnp.sum({0} * {1})"),
        ),
    ),
    "running": (
        2,
        (
            ("v>v", "jnp.cumsum({0}, axis=-1)"),
            ("v>v", "jnp.cumprod({0}, axis=-1)"),
            ("v>v", "jax.nn.softmax({0})"),
            ("v>v", "{0} / jnp.linalg.norm({0}.ravel())"),
        ),
    ),
    "product": (
        2,
        (
            ("vv>s", "jnp.dot({0}.ravel(), {1}.ravel())"),
            ("vv>v", "(jnp.outer({0}.ravel(), {1}.ravel()) @ {0}.ravel()).reshape({0}.shape)"),
            ("vv>v", "jnp.outer({0}.ravel(), {1}.ravel()).sum(axis=0).reshape({0}.shape)"),
            ("vv>s", "jnp.vdot({0}, {1}) / jnp.vdot({1}, {1})"),
        ),
    ),
    "indexing": (
        3,
        (
            ("v>s", "{0}.ravel()[0]"),
            ("v>s", "{0}.ravel()[-1]"),
            ("v>s", "{0}.ravel()[<i>]"),
            ("v>s", "jax.lax.dynamic_index_in_dim({0}.ravel(), <i>, keepdims=False)"),
            ("v>v", "jnp.take({0}.ravel(), jnp.arange({0}.size)[::-1]).reshape({0}.shape)"),
            ("v>v", "jnp.roll({0}, 1)"),
            (
                "vv>v",
                "jnp.concatenate([{0}.ravel()[1:], {1}.ravel()[:1]]).reshape({0}.shape)",
            ),
            ("vv>v", "jnp.stack([{0}, {1}]).max(axis=0)"),
            ("vv>v", "jnp.stack([{0}, {1}]).sum(axis=0)"),
            ("vs>v", "{0}.ravel().at[<i>].set({1}).reshape({0}.shape)"),
            ("vs>v", "{0}.ravel().at[0].multiply({1}).reshape({0}.shape)"),
        ),
    ),
    "loop": (
        3,
        (
            ("xs>x", "jax.lax.fori_loop(0, <n>, lambda i, c: c * {1}, {0})"),
            ("xs>x", "jax.lax.fori_loop(0, <k>, lambda i, c: c * {1}, {0})"),
            ("xs>x", "jax.lax.fori_loop(0, <k>, lambda i, c: c / {1} + {0}, {0})"),
            (
                "xs>x",
                "jax.lax.while_loop(lambda c: c[1] < <k>, lambda c: (c[0] * c[0] / {1}, c[1] + 1),"
                " ({0}, 0))[0]",
            ),
            (
                "vs>v",
                "jax.lax.scan(lambda c, t: (c * t, c + t), {1}, {0}.ravel())[1].reshape({0}.shape)",
            ),
            ("vs>s", "jax.lax.scan(lambda c, t: (c * t, t), {1}, {0}.ravel())[0]"),
            ("vs>s", "jax.lax.scan(lambda c, t: (c + t * t, None), {1}, {0}.ravel())[0]"),
        ),
    ),
    "branch": (
        3,
        (
            ("xs>x", "jax.lax.cond(<b>, lambda a, b: a * b, lambda a, b: a / b, {0}, {1})"),
            ("xs>x", "jax.lax.cond({1} > 1, lambda a: a * a, lambda a: 1 / a, {0})"),
            (
                "x>x",
                "jax.lax.switch(<i>, [lambda a: a * a, lambda a: 1 / a, "
                "lambda a: jnp.sqrt(jnp.abs(a))], {0})",
            ),
        ),
    ),
    "map": (
        1,
        (
            ("vs>v", "jax.vmap(lambda t: t * t / {1})({0}.ravel()).reshape({0}.shape)"),
            ("vs>v", "jax.vmap(jax.grad(lambda t: t**3 * {1}))({0}.ravel()).reshape({0}.shape)"),
        ),
    ),
    "derivative": (
        2,
        (
            ("xs>x", "jax.grad(lambda t: jnp.sum(t * t * {1}))({0})"),
            ("x>x", "jax.grad(lambda t: jnp.sum(jnp.abs(t)**1.5))({0})"),
            ("x>x", "jax.jvp(lambda t: jnp.log1p(t * t), ({0},), ({0},))[1]"),
            ("x>x", "jax.grad(lambda t: jnp.sum(jax.nn.softplus(t)))({0})"),
        ),
    ),
    "helper": (2, (("xx>x", "<h>({0}, {1})"),)),
    "closure": (2, (("v>v", "{0} * <a>"), ("v>v", "<a> / {0}"), ("v>s", "jnp.sum({0} * <a>)"))),
}

HELPERS = (
    "@jax.jit\ndef {name}(a, b):\n    return 6.626e-34 * a / b\n",
    "@jax.jit\ndef {name}(a, b):\n    return 6.67e-11 * a * b / (b * b)\n",
    "@jax.jit\ndef {name}(a, b):\n    return jnp.sqrt(a * a + b * b)\n",
    "@jax.checkpoint\ndef {name}(a, b):\n    return 1.38e-23 * a / b\n",
    "@tj.jit\ndef {name}(a, b):\n    return a * a / b\n",
    "@tj.jit\ndef {name}(a, b):\n    return 6.626e-34**2 * a / (9.1e-31 * b)\n",
    "@jax.custom_jvp\ndef {name}(a, b):\n    return a * b * b\n"
    "{name}.defjvps(lambda t, out, a, b: b * b * t, lambda t, out, a, b: 2 * a * b * t)\n",
)
