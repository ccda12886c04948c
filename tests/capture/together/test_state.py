"""What a capture leaves behind: nothing; and what it must not change: keys, effects, threads."""

import threading

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj
from tanjax import _jaxprs, _marks
from tanjax._errors import CaptureError

METRE = tj.unit("m")
D, X, M = jnp.array([1.0, 2.0, 3.0]), jnp.array([3.0, 1.0, 2.0]), 3 * jnp.eye(3) + 0.5


def solved(d, x):
    return tj.solve(tj.Diagonal(d), x) * tj.logdet(tj.Symmetric(M))


def names(closed):
    """The names of all calls in a jaxpr, however deep."""
    for eqn in getattr(closed, "jaxpr", closed).eqns:
        if "name" in eqn.params:
            yield eqn.params["name"]
        for _, inner in _jaxprs.inner_jaxprs(eqn):
            yield from names(inner)


def marks(f, *args):
    return [n for n in names(jax.make_jaxpr(f)(*args)) if type(n) is _marks.Label]


def unmarked():
    return _marks.ACTIVE == [0] and not _marks.capturing() and not marks(solved, D, X)


def test_off_there_is_no_mark():
    assert unmarked()
    tj.capture(solved)(D, X)
    assert unmarked()
    assert not marks(lambda q: q.stored * 2, D * METRE)


def test_not_after_an_exception():
    def fails(x):
        tj.solve(tj.Diagonal(x), x)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tj.capture(fails)(D)
    with pytest.raises(KeyError, match="mine"):
        tj.capture(lambda x: tj.scan(lambda c, r: fails(c), x, x))(D)
    assert unmarked()


def test_not_in_another_thread():
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


def test_not_through_the_caches_of_jax():
    """A compiled function that was called before is traced anew, and after a capture as it was."""
    compiled = jax.jit(solved)
    compiled(D, X)
    assert "solve[Diagonal, Dense]" in str(tj.capture(compiled)(D, X))
    assert not marks(compiled, D, X)
    other = jax.jit(lambda d, x: solved(d, x) + 1)
    assert "solve[Diagonal, Dense]" in str(tj.capture(other)(D, X))
    assert not marks(other, D, X)
    assert jnp.array_equal(other(D, X), jax.jit(lambda d, x: solved(d, x) + 1)(D, X))


def test_not_in_the_cache_of_an_operation():
    new = jnp.arange(1.0, 6.0)  # of a shape that nothing has compiled so far
    tj.capture(lambda d: tj.Diagonal(d) @ d)(new)
    assert not marks(lambda d: tj.Diagonal(d) @ d, new)
    assert "matmul[Diagonal, Dense]" in str(tj.capture(lambda d: tj.Diagonal(d) @ d)(new))


def test_replay_enters_no_capture():
    program = tj.capture(lambda d, x: tj.scan(lambda c, r: (solved(d, c), r), x, x)[0])(D, X)
    assert _marks.ACTIVE == [0]
    tj.jit(program)(D, X)
    assert _marks.ACTIVE == [0]


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


def test_keys():
    def f(key, d):
        left, right = jax.random.split(key)
        return tj.Diagonal(d) @ jax.random.normal(left, (3,)), right

    key = jax.random.key(3)
    program = tj.capture(f)(key, D)
    ours, plain = jax.jit(program)(key, D), jax.jit(f)(key, D)
    assert jnp.array_equal(ours[0], plain[0])
    assert jnp.array_equal(jax.random.key_data(ours[1]), jax.random.key_data(plain[1]))
    assert "key<fry>[]" in str(program)


def test_effects_keep_their_order(capsys):
    def f(d, x):
        jax.debug.print("first {}", d[0], ordered=True)
        y = solved(d, x)
        step = lambda i, c: (jax.debug.print("in loop {}", i, ordered=True), c * 2)[1]
        z = tj.fori_loop(0, 2, step, y)
        jax.debug.print("last {}", x[0], ordered=True)
        return z

    jax.block_until_ready(jax.jit(f)(D, X))
    jax.effects_barrier()
    wanted = capsys.readouterr().out
    assert wanted.count("\n") == 4
    program = tj.capture(f)(D, X)
    assert capsys.readouterr().out == ""
    for run in (program, jax.jit(program), tj.Interpreter().rewrite(program)):
        jax.block_until_ready(run(D, X))
        jax.effects_barrier()
        assert capsys.readouterr().out == wanted


def test_effects_stay_where_nobody_uses_a_result(capsys):
    program = tj.capture(lambda d: (jax.debug.print("here"), tj.logdet(tj.Diagonal(d)), d)[2])(D)
    again = tj.Interpreter().rewrite(program)
    assert "logdet" not in str(again)
    jax.block_until_ready(again(D))
    jax.effects_barrier()
    assert capsys.readouterr().out == "here\n"


def test_a_ref_as_argument_and_one_made_inside():
    def f(ref, d):
        ref[...] = tj.Diagonal(d) @ ref[...]
        own = jax.new_ref(d)
        own[0] = ref[1]
        return jax.freeze(own)

    program = tj.capture(f)(jax.new_ref(X), D)
    assert "Ref<f64[3]>" in str(program)
    ours, plain = jax.new_ref(X), jax.new_ref(X)
    assert jnp.array_equal(program(ours, D), f(plain, D))
    assert jnp.array_equal(ours[...], plain[...])
    assert jnp.array_equal(jax.jit(program)(ours, D), jax.jit(f)(plain, D))
    assert jnp.array_equal(ours[...], plain[...])


def test_a_ref_that_a_loop_closes_over():
    def f(d):
        ref = jax.new_ref(d)

        def step(i, c):
            ref[...] = tj.Diagonal(d) @ ref[...] + c[0]
            return c + 1

        last = tj.fori_loop(0, 2, step, d)
        return jax.freeze(ref), last

    program = tj.capture(f)(D)
    for g, w in zip(jax.jit(program)(D), jax.jit(f)(D), strict=True):
        assert jnp.array_equal(g, w)


def test_a_rule_that_is_registered_later():
    @tj.operation(dense=True)
    def doubled(x):
        return 2 * x

    f = lambda d, x: tj.matmul(doubled(tj.Diagonal(d)), x)
    with tj.densify("allow"):
        program = tj.capture(f)(D, X)
        before = str(program)
        assert "doubled[densify[Diagonal]]" in before

        @doubled.implementation(tj.Diagonal)
        def _(x):
            return tj.Diagonal(2 * x.diag)

        assert str(program) == before
        assert "doubled[Diagonal]" in str(tj.Interpreter().rewrite(program))
        assert jnp.array_equal(program(D, X), f(D, X))


def test_nothing_to_capture():
    with pytest.raises(CaptureError, match="which is not a function"):
        tj.capture(solved(D, X))


def test_compiled_functions_inside():
    """`tj.jit` is an equation; a function of `jax.jit` that holds an operation shows it."""
    inner, theirs = tj.jit(solved), jax.jit(solved)
    program = tj.capture(lambda d, x: (inner(d, x), theirs(d, x)))(D, X)
    assert program[0].kind == "higher_order"
    assert "solve[Diagonal, Dense]" in str(program[-1].programs["jaxpr"])
    inner(D, X)
    assert str(tj.capture(lambda d, x: (inner(d, x), theirs(d, x)))(D, X)) == str(program)
