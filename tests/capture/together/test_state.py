"""A capture leaves nothing behind and changes no keys, effects or threads; what it costs."""

import threading
import weakref

import jax
import jax.extend
import jax.numpy as jnp
import pytest

import tanjax as tj
from tanjax import _compat, _marks

pytestmark = pytest.mark.core

METRE = tj.unit("m")
D, X, M = jnp.array([1.0, 2.0, 3.0]), jnp.array([3.0, 1.0, 2.0]), 3 * jnp.eye(3) + 0.5


def solved(d, x):
    return tj.solve(tj.Diagonal(d), x) * tj.logdet(tj.Symmetric(M))


def in_a_loop(d, x):
    return tj.fori_loop(0, 2, lambda i, c: solved(d, c), x)


def names(jaxpr):
    """The names of all calls in a jaxpr, however deep."""
    for eqn in jaxpr.eqns:
        yield eqn.params.get("name")
        yield from (n for j in jax.extend.core.jaxprs_in_params(eqn.params) for n in names(j))


def marks(f, *args):
    return [n for n in names(jax.make_jaxpr(f)(*args).jaxpr) if type(n) is _marks.Label]


def unmarked():
    active = _marks.ACTIVE != [0] or _marks.capturing()
    return not active and not marks(solved, D, X) and not marks(in_a_loop, D, X)


def test_marks_are_made_within_a_capture_alone():
    """Not before it, not after it, not by a replay."""
    assert unmarked()
    program = tj.capture(lambda d, x: tj.scan(lambda c, r: (solved(d, c), r), x, x)[0])(D, X)
    assert unmarked()
    tj.jit(program)(D, X)
    assert unmarked()
    assert not marks(lambda q: q.stored * 2, D * METRE)


def test_no_mark_is_left_after_an_exception():
    def fails(x):
        tj.solve(tj.Diagonal(x), x)
        raise KeyError("mine")

    for f in (
        fails,
        lambda x: tj.scan(lambda c, r: fails(c), x, x),
        lambda x: tj.fori_loop(0, 2, lambda i, x: fails(x), x),
    ):
        with pytest.raises(KeyError, match="mine"):
            tj.capture(f)(D)
        assert unmarked()


def test_another_thread_is_not_captured():
    """It traces while this one captures: neither sees the other."""
    found = {}

    def other():
        found["marks"] = marks(solved, D, X)
        found["program"] = str(tj.capture(lambda d: tj.Diagonal(d) @ d)(D))

    def f(d, x):
        y = solved(d, x)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return y + solved(d, y)

    program = tj.capture(f)(D, X)
    assert found["marks"] == []
    assert "matmul[Diagonal, Dense]" in found["program"]
    assert [e.name for e in program if e.kind == "operation"].count("solve") == 2
    assert unmarked()


@pytest.mark.parametrize("called_before", [True, False])
def test_caches_of_jax_keep_no_marks(called_before):
    """A compiled function is traced anew for a capture, and after it is as it was."""
    compiled = jax.jit(lambda d, x: solved(d, x) + 1)
    if called_before:
        compiled(D, X)
    assert "solve[Diagonal, Dense]" in str(tj.capture(compiled)(D, X))
    assert not marks(compiled, D, X)
    assert jnp.array_equal(compiled(D, X), jax.jit(lambda d, x: solved(d, x) + 1)(D, X))


def test_cache_of_an_operation_keeps_no_marks():
    new = jnp.arange(1.0, 6.0)  # of a shape that nothing has compiled so far
    product = lambda d: tj.Diagonal(d) @ d
    assert "matmul[Diagonal, Dense]" in str(tj.capture(product)(new))
    assert not marks(product, new)
    assert "matmul[Diagonal, Dense]" in str(tj.capture(product)(new))


def test_capture_in_capture():
    def f(d, x):
        inner = tj.capture(solved)(d, x)
        return inner(d, x) + tj.Diagonal(d) @ x

    program = tj.capture(f)(D, X)
    assert {"solve", "matmul"} <= {e.name for e in program}
    assert jnp.array_equal(jax.jit(program)(D, X), jax.jit(f)(D, X))
    assert unmarked()


@pytest.mark.parametrize("around", ["jit", "vmap", "grad", "scan"])
def test_capture_inside_of_a_transformation(around):
    """What the function closes over are tracers there: they are constants of the program."""

    def inside(d):
        program = tj.capture(lambda x: tj.solve(tj.Diagonal(d), x) * d)(X)
        assert program.consts[0].type == "Diagonal<f64[3]>"
        return jnp.sum(program(X))

    plain = lambda d: jnp.sum(tj.solve(tj.Diagonal(d), X) * d)
    wrap = {
        "jit": jax.jit,
        "vmap": lambda f: lambda d: jax.vmap(f)(jnp.stack([d, 2 * d])),
        "grad": jax.grad,
        "scan": lambda f: lambda d: jax.lax.scan(lambda c, r: (c, f(d * r)), 0.0, d)[1],
    }[around]
    assert jnp.array_equal(jax.jit(wrap(inside))(D), jax.jit(wrap(plain))(D))


def test_disable_jit():
    with jax.disable_jit():
        program = tj.capture(solved)(D, X)
        assert "solve[Diagonal, Dense]" in str(program)
        replayed, plain = program(D, X), solved(D, X)
    assert jnp.allclose(replayed, plain, rtol=1e-14)
    assert str(program) == str(tj.capture(solved)(D, X))


def test_without_x64():
    with jax.enable_x64(False):
        d = jnp.asarray(D, jnp.float32)
        program = tj.capture(lambda d: (tj.Diagonal(d) @ d, d * 1e-3 * METRE))(d)
        assert [v.type for v in program.outputs] == ["f32[3]", "f32[3] m"]
        assert program(d)[0].dtype == jnp.float32
    wide = tj.capture(lambda d: tj.Diagonal(d) @ d)(D)
    assert wide.outputs[0].type == "f64[3]"


def test_random_keys_are_captured_as_arguments():
    def f(key, d):
        left, right = jax.random.split(key)
        return tj.Diagonal(d) @ jax.random.normal(left, (3,)), jax.random.key_data(right)

    key = jax.random.key(3)
    program = tj.capture(f)(key, D)
    ours, plain = jax.jit(program)(key, D), jax.jit(f)(key, D)
    assert jnp.array_equal(ours[0], plain[0])
    assert jnp.array_equal(ours[1], plain[1])
    assert "key<fry>[]" in str(program)


def test_effects_happen_once_in_order_whoever_uses_the_result(capfd):
    """Between operations and in loops; replayed, compiled, rewritten; a trace prints nothing."""

    def f(d, x):
        jax.debug.print("first {}", d[0], ordered=True)
        tj.logdet(tj.Diagonal(d))
        step = lambda i, c: (jax.debug.print("in loop {}", i, ordered=True), c * 2)[1]
        tj.fori_loop(0, 2, step, solved(d, x))
        jax.debug.print("last {}", x[0], ordered=True)
        return x

    program = tj.capture(f)(D, X)
    rewritten = tj.programs.Interpreter().rewrite(program)
    assert capfd.readouterr().out == ""
    assert "logdet[Diagonal]" not in str(rewritten)
    for run in (f, program, jax.jit(program), rewritten):
        jax.block_until_ready(run(D, X))
        jax.effects_barrier()
        lines = capfd.readouterr().out.splitlines()
        assert lines == ["first 1.0", "in loop 0", "in loop 1", "last 3.0"]


def test_refs_are_arguments_made_inside_and_closed_over():
    def f(ref, d):
        ref[...] = tj.Diagonal(d) @ ref[...]
        own = jax.new_ref(d)
        own[0] = ref[1]

        def step(i, c):
            own[...] = tj.Diagonal(d) @ own[...] + c[0]
            return c + 1

        return tj.fori_loop(0, 2, step, d), jax.freeze(own)

    program = tj.capture(f)(jax.new_ref(X), D)
    assert "Ref<f64[3]>" in str(program)
    for ours, plain in ((program, f), (jax.jit(program), jax.jit(f))):
        left, right = jax.new_ref(X), jax.new_ref(X)
        got, want = (*ours(left, D), left[...]), (*plain(right, D), right[...])
        assert all(jnp.array_equal(g, w) for g, w in zip(got, want, strict=True))


def test_compiled_functions_inside():
    """`tj.jit` is an equation; a function of `jax.jit` that holds an operation shows it."""
    inner, theirs = tj.jit(solved), jax.jit(solved)
    program = tj.capture(lambda d, x: (inner(d, x), theirs(d, x)))(D, X)
    assert program[0].kind == "higher_order"
    assert "solve[Diagonal, Dense]" in str(program[-1].programs["jaxpr"])
    inner(D, X)
    assert str(tj.capture(lambda d, x: (inner(d, x), theirs(d, x)))(D, X)) == str(program)


# -- what a capture costs, counted and not timed ---------------------------------------------------


def test_functions_and_definitions_run_once_however_deep():
    """Closures become operands without a second trace."""
    runs = {"function": 0, "definition": 0}

    @tj.programs.higher_order(curried=True)
    def twice(f):
        def new(x):
            runs["definition"] += 1
            return f(f(x)) + jnp.arange(3.0)  # an array of the definition's own

        return new

    def level(depth):
        def f(x):
            runs["function"] += 1
            inner = twice(level(depth - 1))(x) if depth else x
            return tj.matmul(tj.Diagonal(X), inner) + closed

        return f

    def outer(x):
        nonlocal closed
        closed = jnp.sin(x)
        return twice(level(5))(x)

    closed = X
    program = tj.capture(outer)(X)
    assert runs == {"function": 6, "definition": 6}
    assert jnp.array_equal(program(X), outer(X))


def test_source_lines_are_looked_for_when_asked(monkeypatch):
    """They are half of what reading costs."""
    program = tj.capture(lambda x: tj.solve(tj.Diagonal(x), x))(X)
    asked = []
    found = _compat.source_of
    monkeypatch.setattr(_compat, "source_of", lambda eqn: asked.append(eqn) or found(eqn))
    assert "solve" in str(program)
    assert not asked
    assert __file__ in program[-1].source
    assert asked


def test_equal_calls_of_all_programs_are_compiled_once():
    """The compiled function of an operation is kept by its mark."""
    solve = lambda a, x: tj.solve(tj.Diagonal(a), x)
    programs = [tj.capture(lambda a, x: solve(a, solve(a, x)))(D, X) for _ in range(2)]
    for program in programs:
        program(D, X)
    found = [_marks.mark_of(e.eqn) for p in programs for e in p if e.name == "solve"]
    assert len(found) == 4
    assert len({id(mark.compiled) for mark in found}) == 1
    assert found[0].compiled._cache_size() == 1


def test_values_are_let_go_after_their_last_use(collect):
    """A long program holds no more than it needs."""
    seen, watched = [], []
    program = tj.capture(lambda x: jnp.exp(jnp.cos(jnp.sin(x))))(jnp.ones(3))
    steps = program._eagerly._steps
    for i, (call, *rest) in enumerate(steps):

        def watching(*operands, call=call):
            outs = call(*operands)
            collect()
            watched.append(sum(r() is not None for r in seen))
            seen.extend(weakref.ref(o) for o in outs)
            return outs

        steps[i] = (watching, *rest)
    program(jnp.ones(3))
    assert watched == [0, 1, 1]
