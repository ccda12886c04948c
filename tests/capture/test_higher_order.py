"""Loops, branches, derivatives and maps as equations: printed, replayed, walked, differentiated."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from program_checks import assert_captures, body_of, is_same, names, total
from tanjax.capture._replay import inline_calls_dissolve

X = jnp.asarray([0.5, -1.0, 2.0])
B = jnp.asarray([1.0, 2.0, -0.5])


def heat(d, x):
    """A step with structure: what is closed over arrives as a typed operand."""
    return tj.matmul(d, x) + jnp.sin(x)


def scanned(d, x):
    a = tj.Diagonal(d)
    return tj.scan(lambda c, r: (heat(a, c) * r, c[0]), x, B, reverse=True, unroll=2)


def scanned_alone(d, x):
    return tj.scan(lambda c, _: (c * d, None), x, length=3)


def fori_static(d, x):
    a = tj.Diagonal(d)
    return tj.fori_loop(0, 3, lambda i, c: heat(a, c) * (i + 1), x)


def for_down(d, x):
    return tj.for_loop(3, 0, -1)(lambda i, c, s: (c * d + i, s + c))(x, x)


def for_never(d, x):
    return tj.for_loop(2, 2)(lambda i, c: c * d)(x)


def branch(d, x):
    a = tj.Diagonal(d)
    return tj.cond(x[0] > 0, lambda x: heat(a, x), lambda x: a.diag * x, x)


def switched(d, x):
    a = tj.Diagonal(d)
    return tj.switch(2, [lambda x: x, lambda x: x * d, lambda x: heat(a, x)], x)


def loss(a, x):
    return jnp.sum(heat(a, x) ** 2)


def gradient(d, x):
    return tj.grad(loss, argnums=(0, 1))(tj.Diagonal(d), x)[1] * d


def gradient_aux(d, x):
    (value, aux), g = tj.value_and_grad(lambda x: (loss(tj.Diagonal(d), x), x * 2), has_aux=True)(x)
    return value + g, aux


def jacobian(d, x):
    return tj.jacobian(lambda x: heat(tj.Diagonal(d), x))(x), tj.hessian(
        lambda x: (d * x**3).sum()
    )(x)


def mapped(d, x):
    f = lambda c, x: jax.lax.psum(c * x, "rows") + d
    return tj.vmap(f, in_axes=(0, None), out_axes=1, axis_name="rows")(x, x)


def kept(d, x):
    policy = jax.checkpoint_policies.dots_saveable
    return tj.checkpoint(lambda x: heat(tj.Diagonal(d), x), policy=policy)(x)


def compiled(d, x):
    return tj.jit(lambda x, n: x * d * n, static_argnums=1, scale=False)(x, 3)


def pulled(d, x):
    y, pullback = tj.vjp(lambda a, x: heat(a, x), tj.Diagonal(d), x)
    d_bar, x_bar = pullback(y)
    return d_bar.diag + x_bar


def pushed(d, x):
    y, push = tj.linearize(lambda x: heat(tj.Diagonal(d), x), x)
    return tj.jvp(lambda x: d * x**2, (x,), (y,))[1] + push(y)


def rowwise(d, x):
    a = tj.Diagonal(d)
    return tj.map(lambda r: tj.matmul(a, x) * r, x)


def associated(d, x):
    return tj.associative_scan(lambda a, b: a * b + jnp.sin(a), jnp.stack([d, x, d * x]))


def forwards(d, x):
    return tj.jacfwd(lambda x: heat(tj.Diagonal(d), x))(x)


def adjoined(d, x):
    return tj.adjoint(lambda d, x: tj.fori_loop(0, 2, lambda i, x: d * jnp.roll(x, 1), x))(d, x)


def controlled(d, x):
    return tj.ctrl(lambda d, x: d * x, (1, 0))(d, jnp.stack([x, x * 2, x * 3, x * 4]))


EQUATIONS = {
    "scan": scanned,
    "scan ": scanned_alone,
    "fori_loop": fori_static,
    "for_loop": for_down,
    "for_loop ": for_never,
    "cond": branch,
    "switch": switched,
    "grad": gradient,
    "value_and_grad": gradient_aux,
    "jacobian": jacobian,
    "vmap": mapped,
    "checkpoint": kept,
    "jit": compiled,
    "vjp": pulled,
    "linearize": pushed,
    "map": rowwise,
    "associative_scan": associated,
    "jacfwd": forwards,
    "adjoint": adjoined,
    "ctrl": controlled,
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_every_higher_order_equation(name):
    program = assert_captures(EQUATIONS[name], X, B)
    (programs,) = [e.programs for e in program if e.name == name.strip()]
    assert programs
    assert name.strip() in str(program)


BATCHED = ("scan", "cond", "vjp", "vmap")


@pytest.mark.parametrize("name", BATCHED)
def test_they_are_batched(name):
    f = EQUATIONS[name]
    program, rows = tj.capture(f)(X, B), (jnp.stack([X, -X]), jnp.stack([B, B * 2]))
    assert is_same(jax.jit(jax.vmap(program))(*rows), jax.jit(jax.vmap(f))(*rows))


def test_while_loops_and_dynamic_bounds_have_forward_mode():
    def f(n, x):
        a = tj.Diagonal(B)
        y = tj.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, heat(a, s[1])), (0, x))[1]
        y = tj.fori_loop(0, n, lambda i, y: heat(a, y), y)
        return tj.for_loop(0, n, 2)(lambda i, y: y + i)(y)

    program = assert_captures(f, 3, X, derivative=False)
    assert [e.name for e in program if e.programs] == ["while_loop", "fori_loop", "for_loop"]
    assert list(body_of(program, "while_loop")) == ["cond_fun", "body_fun"]
    for n in (3, 0):
        push = lambda g, n=n: jax.jit(lambda x: jax.jvp(lambda x: g(n, x), (x,), (x,)))
        assert is_same(push(program)(X), push(f)(X))


def test_what_is_closed_over_is_a_typed_operand():
    module = {"w": tj.Symmetric(jnp.eye(3)), "name": "layer", "activation": jnp.tanh}
    q = tj.quantity(jnp.asarray(2.0), "m")

    def f(d, x):
        a = tj.Diagonal(d)
        numpy = np.arange(3.0)

        def step(c, r):
            y = module["activation"](module["w"] @ c) + tj.matmul(a, c) + numpy
            return y * r * (q / q).plain("test"), (q * r)

        return tj.scan(step, x, B)

    program = assert_captures(f, X, B, derivative=False)
    body = body_of(program, "scan")["f"]
    types = {v.type for v in body.consts}
    assert "Diagonal<f64[3]>" in types


def test_refs_are_closed_over():
    def f(x):
        ref = jax.new_ref(jnp.zeros(3))

        def step(i, c):
            ref[...] += c
            return c * 2

        out = tj.fori_loop(0, 3, step, x)
        return out, ref[...]

    program = tj.capture(f)(X)
    assert is_same(jax.jit(program)(X), jax.jit(f)(X))
    assert "fori_loop" in str(program)


def test_outer_tracers_are_closed_over():
    def f(x, scale):
        inner = tj.capture(lambda y: tj.fori_loop(0, 2, lambda i, c: c * scale, y))(x)
        return inner(x)

    expected = jax.grad(lambda s: jnp.sum(X * s * s))(3.0)
    assert jax.grad(lambda s: jnp.sum(f(X, s)))(3.0) == expected
    assert is_same(jax.jit(tj.capture(f)(X, 3.0))(X, 3.0), jax.jit(f)(X, 3.0))


def test_one_function_in_two_places():
    calls = []

    def same(x):
        calls.append(x)
        return jnp.sin(x) * B

    f = lambda x: tj.cond(x[0] > 0, same, same, x)
    program = tj.capture(f)(X)
    assert list(program[-1].programs) == ["true_fun", "false_fun"]
    assert is_same(jax.jit(program)(X), jax.jit(f)(X))


def deep(depth, calls, x):
    """Loops, maps, branches and derivatives in one another, counted at the innermost."""
    if depth == 0:
        calls.append(1)
        return jnp.sin(x)
    inner = functools.partial(deep, depth - 1, calls)
    kinds = [
        lambda x: tj.scan(lambda c, _: (inner(c), None), x, length=2)[0],
        lambda x: tj.cond(x[0] > 0, inner, lambda x: 2 * x, x),
        lambda x: tj.vmap(lambda s: inner(x) * s)(x).sum(0),
    ]
    return kinds[depth % 3](x)


def test_depth_costs_what_it_adds():
    """User code at the bottom runs as often as one level deep; equations grow by a constant."""
    runs, sizes = [], []
    for depth in (3, 6):
        calls = []
        program = tj.capture(functools.partial(deep, depth, calls))(X)
        runs.append(len(calls))
        sizes.append(len(list(names(program))))
    assert runs[1] <= 2 * runs[0], runs
    assert sizes[1] <= 2 * sizes[0] + 4, sizes
    assert is_same(jax.jit(program)(X), jax.jit(lambda x: deep(6, [], x))(X))


def test_jax_transformations_inside_show_what_is_in_them():
    @jax.custom_jvp
    def own(x):
        return tj.matmul(tj.Diagonal(B), x)

    own.defjvp(lambda p, t: (own(*p), 2 * own(*t)))

    def f(x):
        a = tj.Diagonal(B)
        y = jax.lax.scan(lambda c, r: (tj.matmul(a, c) * r, None), x, B)[0]
        y = jax.lax.fori_loop(0, 2, lambda i, y: tj.matmul(a, y), y)
        y = jax.lax.cond(y[0] > 0, lambda y: tj.matmul(a, y), lambda y: y, y)
        y = jax.checkpoint(lambda y: tj.matmul(a, y))(y)
        y = jax.vmap(lambda s: tj.matmul(a, y) * s)(y).sum(0)
        return own(y) + jax.grad(lambda y: tj.matmul(a, y).sum())(y)

    program = tj.capture(f)(X)
    assert list(names(program)).count("matmul") >= 4
    value, push = jax.jit(f)(X), lambda g: jax.jit(lambda x: jax.jvp(g, (x,), (x,)))
    assert is_same(jax.jit(program)(X), value)
    assert is_same(push(program)(X), push(f)(X))
    for walked in (tj.Interpreter()(f), tj.Interpreter().rewrite(program)):
        assert is_same(jax.jit(walked)(X), value)
        assert is_same(push(walked)(X), push(f)(X))


def test_nothing_is_captured_before_and_after():
    f = jax.jit(lambda x: tj.fori_loop(0, 2, lambda i, c: tj.matmul(tj.Diagonal(B), c), x))
    plain = str(jax.make_jaxpr(f)(X))
    assert "fori_loop" in str(tj.capture(f)(X))

    def fails(i, x):
        raise RuntimeError("of the user")

    with pytest.raises(RuntimeError, match="of the user"):
        tj.capture(lambda x: tj.fori_loop(0, 2, fails, x))(X)
    assert str(jax.make_jaxpr(f)(X)) == plain
    assert "fori_loop" not in plain


def test_a_pullback_is_a_value_that_programs_return():
    f = lambda x: tj.vjp(lambda a, q: tj.solve(a, q), tj.Diagonal(B), tj.quantity(x, "m"))
    program = tj.capture(f)(X)
    (equation,) = [e for e in program if e.name == "vjp"]
    assert equation.outputs[1].type == "Pullback<f64[3] m -> Diagonal<f64[3]>, f64[3] m>"
    _out, pullback = program(X)
    assert is_same(pullback(tj.quantity(X, "1/m")), f(X)[1](tj.quantity(X, "1/m")))
    (_value, back), crossed = jax.jit(program)(X), jax.jit(lambda p, y: p(y))
    assert is_same(
        crossed(back, tj.quantity(X, "1/m")), jax.jit(lambda x: f(x)[1](tj.quantity(x, "1/m")))(X)
    )


def test_a_pullback_crosses_a_loop_and_handlers_see_its_calls():
    def f(x):
        _, pullback = tj.vjp(lambda x: jnp.sin(x) * B, x)
        return tj.fori_loop(0, 3, lambda i, y: pullback(y)[0], x)

    program = assert_captures(f, X)
    assert "Pullback<f64[3] -> f64[3]>" in str(program)
    assert [e.kind for e in body_of(program, "fori_loop")["body_fun"]] == ["pullback"]

    class Twice(tj.Interpreter):
        @tj.handles("pullback")
        def pullback(self, equation, *args):
            return jax.tree.map(lambda x: 2 * x, self.default(equation, *args))

    np.testing.assert_allclose(Twice()(f)(X), 8 * f(X))


def test_functions_by_keyword_are_programs():
    f = lambda x: tj.fori_loop(0, 3, body_fun=lambda i, c: c * jnp.sin(x), init_val=x)
    program = assert_captures(f, X)
    assert list(body_of(program, "fori_loop")) == ["body_fun"]
    g = lambda x: tj.scan(f=lambda c, r: (heat(tj.Diagonal(x), c) * r, c), init=x, xs=B)
    assert list(body_of(assert_captures(g, X), "scan")) == ["f"]
    by_name = lambda x: tj.grad(f=lambda x: jnp.sum(jnp.sin(x) * B))(x)
    assert list(body_of(assert_captures(by_name, X), "grad")) == ["f"]


@pytest.mark.parametrize("outer", ["map", "map of lax", "vjp", "scan", "vmap"])
def test_derivatives_of_nested_equations_have_the_bits_of_the_function(outer):
    """Cotangents of what inner equations close over are summed in the order of the function.

    Except where `jnp.sin` is a call, in which JAX sums them; of `lax.sin` they are exact.
    """

    def inner(x, c):
        rows = tj.vmap(lambda s: jnp.sin(s) * x + c)(x)
        return rows.sum(0) * tj.grad(lambda x: (x**3 * c).sum())(x) + tj.vjp(jnp.cos, c)[1](x)[0]

    def mapped(sin, x):
        rows = lambda x: tj.vmap(lambda s: sin(s) * x)(x)
        return tj.vjp(rows, x)[1](jnp.ones((3, 3)))[0]

    kinds = {
        "map": lambda x: mapped(jnp.sin, x),
        "map of lax": lambda x: mapped(jax.lax.sin, x),
        "vjp": lambda x: tj.vjp(lambda c: inner(x, c) + x * c, x)[1](x)[0],
        "scan": lambda x: tj.scan(lambda c, r: (inner(x, c) * r * x, None), x, B)[0],
        "vmap": lambda x: tj.vmap(lambda s: inner(x, s * x) * x)(x),
    }
    is_exact = outer != "map" or inline_calls_dissolve()
    assert_captures(kinds[outer], X, ulps=0 if is_exact else 2)


@pytest.mark.parametrize("function", [jnp.sin, jax.lax.exp])
def test_gradients_of_derivatives_are_those_of_the_jaxpr_of_jax(function):
    """Cotangents are summed as JAX sums them for its own jaxpr of the function."""
    f = lambda x: tj.vjp(lambda x: function(x) * x, x)[1](x)[0]
    closed = jax.make_jaxpr(f)(X)
    by_jax = lambda x: jax.core.eval_jaxpr(closed.jaxpr, closed.consts, x)[0]
    text = lambda g: str(jax.make_jaxpr(jax.grad(lambda x: g(x).sum()))(X))
    program = text(tj.capture(f)(X))
    assert program == text(by_jax)
    assert program == text(f) or not inline_calls_dissolve()


def test_aux_values_pass_through():
    f = lambda x: tj.vjp(lambda x: (x * B, {"n": x.sum()}), x, has_aux=True)[2]
    program = tj.capture(f)(X)
    assert program[0].params == {"has_aux": True}
    assert is_same(program(X), f(X))
    linearized = lambda x: tj.linearize(lambda x: (x * B, x.sum()), x, has_aux=True)[2]
    assert is_same(tj.capture(linearized)(X)(X), linearized(X))


MATRICES = {
    "dense": jnp.asarray([[1.0, 2.0], [3.0, 4.0 + 1j]]),
    "diagonal": tj.Diagonal(jnp.asarray([1.0 + 1j, 2.0])),
    "kronecker": tj.Kronecker(
        jnp.asarray([[1.0, 2j], [0.5, 1.0]]), tj.Diagonal(jnp.asarray([1j, 2.0]))
    ),
    "block": tj.BlockDiagonal(
        jnp.asarray(np.eye(2) * 1j), tj.Diagonal(jnp.asarray(np.ones(1) + 0j))
    ),
    "triangular": tj.Triangular(jnp.asarray([[1.0, 0], [3j, 4.0]])),
    "low rank": tj.LowRank(jnp.asarray([[1j], [2.0]]), jnp.asarray([[3.0], [1j]])),
    "identity": tj.Identity(2, jnp.float64),
    "permutation": tj.Permutation(jnp.asarray([1, 2, 0])),
    "quantity": tj.quantity(tj.Diagonal(jnp.asarray([1j, 2.0])), "m"),
}


@pytest.mark.parametrize("name", MATRICES)
def test_adjoints_of_matrices(name):
    a = MATRICES[name]
    dense = lambda a: np.asarray(tj.destructure(a) if tj.is_structured(a) else a)
    plain = lambda a: dense(a.stored) if name == "quantity" else dense(a)
    np.testing.assert_array_equal(plain(tj.adjoint(a)), plain(a).conj().T)
    np.testing.assert_array_equal(plain(tj.adjoint(tj.adjoint(a))), plain(a))


@pytest.mark.parametrize("name", [n for n in MATRICES if n != "quantity"])
def test_controlled_matrices(name):
    a = MATRICES[name]
    dense = lambda a: np.asarray(tj.destructure(a) if tj.is_structured(a) else a)
    n, out = a.shape[0], dense(tj.ctrl(a, (1, 0)))
    expected = np.eye(4 * n, dtype=out.dtype)
    expected[2 * n : 3 * n, 2 * n : 3 * n] = dense(a)
    np.testing.assert_array_equal(out, expected)
    both = dense(tj.ctrl(tj.adjoint(a), (1,))), dense(tj.adjoint(tj.ctrl(a, (1,))))
    np.testing.assert_array_equal(*both)


def test_controlled_functions_of_adjoints():
    rotate = lambda t, x: jnp.stack(
        [jnp.cos(t) * x[0] - jnp.sin(t) * x[1], jnp.sin(t) * x[0] + jnp.cos(t) * x[1]]
    )
    states = jnp.arange(8.0).reshape(4, 2)
    f = lambda t, s: tj.ctrl(tj.adjoint(rotate), (0, 1))(t, s)
    program = assert_captures(f, 0.3, states)
    out = program(0.3, states)
    np.testing.assert_allclose(out[1], rotate(-0.3, states[1]))
    assert is_same(out[np.array([0, 2, 3])], states[np.array([0, 2, 3])])
    back = tj.adjoint(tj.ctrl(rotate, (0, 1)))(0.3, states)
    np.testing.assert_allclose(back, out)
    inner = body_of(program, "ctrl")["f"]
    assert [e.name for e in inner] == ["adjoint"]
    tree = tj.ctrl(lambda s: {"a": 2 * s["a"]}, (1,))({"a": states[:2]})
    np.testing.assert_array_equal(tree["a"], states[:2] * np.array([[1.0], [2.0]]))


def test_shard_map_shows_its_body():
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("rows",))
    spec = jax.sharding.PartitionSpec("rows")
    solve = lambda d, x: tj.solve(tj.Diagonal(d), tj.quantity(x, "m")).to("km").value
    mapped = jax.shard_map(solve, mesh=mesh, in_specs=(spec, spec), out_specs=spec)
    program = tj.capture(mapped)(B, X)
    assert "solve" in names(program)
    grad = lambda f: jax.jit(jax.grad(functools.partial(total, f)))(B, X)
    assert is_same(jax.jit(program)(B, X), jax.jit(mapped)(B, X))
    assert is_same(grad(program), grad(mapped))
