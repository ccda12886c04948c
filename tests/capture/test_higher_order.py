"""Loops, branches, derivatives and maps as equations: printed, replayed, walked, differentiated."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from program_checks import assert_captures, body_of, is_same, names, total

pytestmark = pytest.mark.core

X = jnp.asarray([0.5, -1.0, 2.0])
B = jnp.asarray([1.0, 2.0, -0.5])
# Of `jax.jit(inline=True)` a jaxpr shows nothing in JAX 0.10.2, and a call in 0.12.
DISSOLVES = "jit" not in str(jax.make_jaxpr(jax.jit(lambda x: 2.0 * x, inline=True))(1.0))


def heat(d, x):
    """A step with structure: what is closed over arrives as a typed operand."""
    return tj.matmul(d, x) + jnp.sin(x)


def loss(a, x):
    return jnp.sum(heat(a, x) ** 2)


def on(d):
    """A function that closes over a structured array, made outside of it."""
    a = tj.Diagonal(d)
    return lambda x: heat(a, x)


def scanned(d, x):
    step = on(d)
    return tj.scan(lambda c, r: (step(c) * r, c[0]), x, B, reverse=True, unroll=2)


def branch(d, x):
    a = tj.Diagonal(d)
    return tj.cond(x[0] > 0, lambda x: heat(a, x), lambda x: a.diag * x, x)


def gradient_with_aux(d, x):
    (value, aux), g = tj.value_and_grad(lambda x: (loss(tj.Diagonal(d), x), x * 2), has_aux=True)(x)
    return value + g, aux


def mapped(d, x):
    f = lambda c, x: jax.lax.psum(c * x, "rows") + d
    return tj.vmap(f, in_axes=(0, None), out_axes=1, axis_name="rows")(x, x)


def pulled(d, x):
    y, pullback = tj.vjp(heat, tj.Diagonal(d), x)
    d_bar, x_bar = pullback(y)
    return d_bar.diag + x_bar


def pushed(d, x):
    y, push = tj.linearize(on(d), x)
    return tj.jvp(lambda x: d * x**2, (x,), (y,))[1] + push(y)


SAVE = jax.checkpoint_policies.dots_saveable
EQUATIONS = {
    "scan": scanned,
    "scan ": lambda d, x: tj.scan(lambda c, _: (c * d, None), x, length=3),
    "fori_loop": lambda d, x: tj.fori_loop(0, 3, lambda i, c: on(d)(c) * (i + 1), x),
    "for_loop": lambda d, x: tj.programs.for_loop(3, 0, -1)(lambda i, c, s: (c * d + i, s + c))(
        x, x
    ),
    "for_loop ": lambda d, x: tj.programs.for_loop(2, 2)(lambda i, c: c * d)(x),
    "cond": branch,
    "switch": lambda d, x: tj.programs.switch(2, [lambda x: x, lambda x: x * d, on(d)], x),
    "grad": lambda d, x: tj.grad(loss, argnums=(0, 1))(tj.Diagonal(d), x)[1] * d,
    "value_and_grad": gradient_with_aux,
    "jacobian": lambda d, x: tj.jacobian(on(d))(x),
    "hessian": lambda d, x: tj.hessian(lambda x: (d * x**3).sum())(x),
    "vmap": mapped,
    "checkpoint": lambda d, x: tj.checkpoint(on(d), policy=SAVE)(x),
    "jit": lambda d, x: tj.jit(lambda x, n: x * d * n, static_argnums=1, scale=False)(x, 3),
    "vjp": pulled,
    "linearize": pushed,
    "map": lambda d, x: tj.programs.map(lambda r: tj.matmul(tj.Diagonal(d), x) * r, x),
    "associative_scan": lambda d, x: tj.programs.associative_scan(
        lambda a, b: a * b + jnp.sin(a), jnp.stack([d, x, d * x])
    ),
    "jacfwd": lambda d, x: tj.jacfwd(on(d))(x),
    "adjoint": lambda d, x: tj.programs.adjoint(
        lambda d, x: tj.fori_loop(0, 2, lambda i, x: d * jnp.roll(x, 1), x)
    )(d, x),
    "ctrl": lambda d, x: tj.programs.ctrl(lambda d, x: d * x, (1, 0))(
        d, jnp.stack([x, 2 * x, 3 * x, x])
    ),
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_higher_order_call_is_an_equation_with_programs(name):
    f = EQUATIONS[name]
    program = assert_captures(f, X, B)
    (programs,) = [e.programs for e in program if e.name == name.strip()]
    assert programs
    assert name.strip() in str(program)
    if name in ("scan", "cond", "vjp", "vmap"):
        rows = jnp.stack([X, -X]), jnp.stack([B, B * 2])
        assert is_same(jax.jit(jax.vmap(program))(*rows), jax.jit(jax.vmap(f))(*rows))


def test_while_loops_and_dynamic_bounds_have_forward_mode():
    def f(n, x):
        a = tj.Diagonal(B)
        y = tj.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, heat(a, s[1])), (0, x))[1]
        y = tj.fori_loop(0, n, lambda i, y: heat(a, y), y)
        return tj.programs.for_loop(0, n, 2)(lambda i, y: y + i)(y)

    program = assert_captures(f, 3, X, derivative=False)
    assert [e.name for e in program if e.programs] == ["while_loop", "fori_loop", "for_loop"]
    assert list(body_of(program, "while_loop")) == ["cond_fun", "body_fun"]
    for n in (3, 0):
        push = lambda g, n=n: jax.jit(lambda x: jax.jvp(lambda x: g(n, x), (x,), (x,)))
        assert is_same(push(program)(X), push(f)(X))


def test_closed_over_value_is_a_typed_operand():
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


def test_outer_tracers_are_closed_over():
    def f(x, scale):
        inner = tj.capture(lambda y: tj.fori_loop(0, 2, lambda i, c: c * scale, y))(x)
        return inner(x)

    expected = jax.grad(lambda s: jnp.sum(X * s * s))(3.0)
    assert jax.grad(lambda s: jnp.sum(f(X, s)))(3.0) == expected
    assert is_same(jax.jit(tj.capture(f)(X, 3.0))(X, 3.0), jax.jit(f)(X, 3.0))


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

    class Twice(tj.programs.Interpreter):
        @tj.programs.handles("pullback")
        def pullback(self, equation, *args):
            return jax.tree.map(lambda x: 2 * x, self.default(equation, *args))

    np.testing.assert_allclose(Twice()(f)(X), 8 * f(X))


def test_functions_by_keyword_and_twice_are_programs():
    f = lambda x: tj.fori_loop(0, 3, body_fun=lambda i, c: c * jnp.sin(x), init_val=x)
    program = assert_captures(f, X)
    assert list(body_of(program, "fori_loop")) == ["body_fun"]
    g = lambda x: tj.scan(f=lambda c, r: (heat(tj.Diagonal(x), c) * r, c), init=x, xs=B)
    assert list(body_of(assert_captures(g, X), "scan")) == ["f"]
    twice = lambda x: tj.cond(x[0] > 0, jnp.sin, jnp.sin, x)
    assert list(body_of(assert_captures(twice, X), "cond")) == ["true_fun", "false_fun"]
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
    is_exact = outer != "map" or DISSOLVES
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
    assert program == text(f) or not DISSOLVES


def test_aux_values_pass_through():
    f = lambda x: tj.vjp(lambda x: (x * B, {"n": x.sum()}), x, has_aux=True)[2]
    program = tj.capture(f)(X)
    assert program[0].params == {"has_aux": True}
    assert is_same(program(X), f(X))
    linearized = lambda x: tj.linearize(lambda x: (x * B, x.sum()), x, has_aux=True)[2]
    assert is_same(tj.capture(linearized)(X)(X), linearized(X))


def test_controlled_functions_of_adjoints():
    rotate = lambda t, x: jnp.stack(
        [jnp.cos(t) * x[0] - jnp.sin(t) * x[1], jnp.sin(t) * x[0] + jnp.cos(t) * x[1]]
    )
    states = jnp.arange(8.0).reshape(4, 2)
    f = lambda t, s: tj.programs.ctrl(tj.programs.adjoint(rotate), (0, 1))(t, s)
    program = assert_captures(f, 0.3, states)
    out = program(0.3, states)
    np.testing.assert_allclose(out[1], rotate(-0.3, states[1]))
    assert is_same(out[np.array([0, 2, 3])], states[np.array([0, 2, 3])])
    back = tj.programs.adjoint(tj.programs.ctrl(rotate, (0, 1)))(0.3, states)
    np.testing.assert_allclose(back, out)
    inner = body_of(program, "ctrl")["f"]
    assert [e.name for e in inner] == ["adjoint"]
    tree = tj.programs.ctrl(lambda s: {"a": 2 * s["a"]}, (1,))({"a": states[:2]})
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


# -- a higher-order function of one's own ----------------------------------------------------------


@tj.programs.higher_order(curried=True)
def repeat(func, n):
    def new_func(*args, **kwargs):
        return jax.lax.fori_loop(0, n, lambda _, a: func(*a, **kwargs), args)

    return new_func


def test_definition_is_an_equation_whose_number_and_keywords_move(float32):
    func = lambda x, y, y_coeff=1.0: (x + 1, y_coeff * y)
    workflow = lambda x, n, c: repeat(func, n)(x, 2.0, y_coeff=c)
    assert workflow(0.5, 2, 2.0) == (2.5, 8.0)
    program = tj.capture(workflow)(0.5, 2, 2.0)
    assert is_same(program(0.5, 2, 2.0), workflow(0.5, 2, 2.0))
    assert program(0.5, 3, 3.0) == (3.5, 54.0)
    (equation,) = program
    assert (equation.kind, equation.name) == ("higher_order", "repeat")
    assert list(equation.programs) == ["func"]
    assert "repeat[\n" in str(program)
    assert "mul" in str(equation.programs["func"])


def test_another_number_of_repetitions_is_no_new_trace(float32):
    traced, calls = [], []

    def counted(x):
        traced.append(x)
        return (2 * x,)

    program = tj.capture(lambda x, n: repeat(counted, n)(x))(0.5, 2)
    before = len(traced)

    @jax.jit
    def times(x, n):
        calls.append(n)
        return program(x, n)

    assert [times(0.5, n)[0] for n in range(4)] == [0.5, 1, 2, 4]
    assert len(traced) == before
    assert len(calls) == 1


def test_numbers_that_a_definition_passes_tell_its_programs_apart():
    """Also the sign of zero: a number is a parameter of what a function is traced to."""

    @tj.programs.higher_order
    def each(func, x):
        return [func(x, number) for number in (0.0, -0.0, 2.0, 3.0, 2.0)]

    f = lambda x: each(lambda x, number: jnp.copysign(x + number, number), x)
    program = assert_captures(f, X, derivative=False)
    assert len(body_of(program, "each")) == 4

    class Rows(tj.programs.Interpreter):
        @tj.programs.handles("sin")
        def sin(self, equation, x):
            return jnp.stack([x, -x])  # no program was captured for this shape

    times = lambda x: each(lambda x, number: x * number, x)
    assert is_same(Rows()(lambda x: times(jnp.sin(x)))(X), times(jnp.stack([X, -X])))


@pytest.mark.parametrize("bounds", [(0, 5, 2), (0, 4, 2), (5, 0, -2), (3, 0, 2), (1, 0, -3)])
def test_trips_of_a_loop_are_those_of_range(bounds):
    visit = lambda i, count, total: (count + 1, total * 10 + i)
    count, total = 0, 0
    for i in range(*bounds):
        count, total = visit(i, count, total)
    for given in (bounds, tuple(map(jnp.asarray, bounds))):
        assert tj.programs.for_loop(*given)(visit)(0, 0) == (count, total)
