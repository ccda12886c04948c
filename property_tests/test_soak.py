"""Random programs and sequences of calls: no promise of the scale graph is broken.

The oracle comes first: it agrees with JAX in float64, and faults planted in results are seen.
"""

import dataclasses
import functools
import io
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import tanjax as tj
from soak import Band, Program, Reference, generate
from soak.__main__ import main
from soak._hunt import one, report
from soak._programs import Argument, Call, Step
from soak._run import _as_plain, expected, run
from soak._shrink import shrink
from tanjax import transforms

PER_TEST = 10
SEEDS = {
    "float32": range(0, 130, PER_TEST),
    "float16": range(0, 70, PER_TEST),
    "bfloat16": range(0, 40, PER_TEST),
}


def squares(*, calls, text="{0} * {0}", kind="v", wrap="plain"):
    """A program of one operation."""
    step = Step("v0", "arithmetic", text, ("x0",), kind)
    made = tuple(Call((np.array(c, np.float32).astype(float),), "given") for c in calls)
    return Program(0, "float32", (Argument("x0", "v"),), (), (), (step,), ("v0",), wrap, made)


@pytest.mark.parametrize("seed", range(8))
def test_reference_agrees_with_float64(seed):
    program = generate(seed, "float32")
    reference = Reference(program)
    with jax.enable_x64(True):
        f = jax.jit(program.build(jnp.float64))
        for call in program.calls:
            given = [jnp.asarray(v) for v in call.values]
            for band, got in zip(reference.bands(call, 8), jax.tree.leaves(f(*given)), strict=True):
                got = np.asarray(got)
                if got.dtype.kind != "f":
                    continue
                # Where float64 does not leave its range itself, it is within the float32 band.
                fits = np.isfinite(got) & (np.abs(got) > 1e-300) & (np.abs(got) < 1e38)
                assert not (band.wrong(got) & fits).any()


def test_reference_of_a_scan_from_the_end_keeps_the_order_of_rows():
    text = "jax.lax.scan(lambda c, x: (c + x, c * x), 1.0 * {0}[0], {0}, reverse=True)[1]"
    program = squares(calls=[[2.0, 3.0, 5.0]], text=text)
    (rows,) = Reference(program).bands(program.calls[0], 1)
    assert rows.right([20.0, 21.0, 10.0]).all()


def band(*runs):
    return Band(jnp.float32, np.array(runs, np.longdouble))


def test_bands_accept_a_number_that_its_dtype_holds():
    assert band([1.0, 1e50, 1e-50, np.inf, np.nan]).right([1, np.inf, 0, np.inf, np.nan]).all()
    assert band([1.0, 1e50, 1e-50, np.inf]).wrong([1.01, 1.0, 1e-20, np.nan]).all()
    assert band([1e50, -1e50, 1e30]).wrong([np.nan, np.inf, np.inf]).all()


def test_an_infinity_that_only_rounding_excuses_is_neither_right_nor_wrong():
    """Plain JAX has it by chance, where its own steps overflow."""
    edge = band([3.24e38, 3.5e38], [3.46e38, 3.5e38])
    inf = np.full(2, np.inf, np.float32)
    assert edge.right(inf).tolist() == [False, True]
    assert edge.wrong(inf).tolist() == [False, False]
    assert edge.right(np.float32([3.24e38, 3.4028235e38])).all()


def test_bands_do_not_judge_a_result_that_rounding_decides():
    unsure = band([1.0, np.inf, 1.0], [1.2, 3.0, np.nan])
    assert not unsure.wrong([1.3, 7.0, 7.0]).any()
    assert unsure.judged.tolist() == [True, False, False]
    either = band([1e50, 1e50, 1.0], [-1e50, 1e30, 1e50])
    assert either.judged.tolist() == [False, True, True]


def test_rounding_beside_zero_may_be_that_of_plain_jax():
    one = band([0.0, 0.0, 1e-20, 1.0], [1e-33, 0.0, 1.01e-20, 1.0])
    noise = np.array([1e-26, 1e-26, 1e-26, 2.0], np.float32)
    assert one.is_rounding(noise).tolist() == [True, False, False, False]
    own = band([1e-22, 1e-18, 1e-22, 1.0], [-6e-11, -6e-11, 1.1e-22, 1.1])
    assert own.is_rounding(noise).tolist() == [True, False, False, False]
    assert one.wrong(noise).tolist() == [True, True, True, True]
    assert _as_plain(one, noise, noise).tolist() == [True, False, False, False]
    assert not _as_plain(one, noise, 2 * noise).any()
    apart = band([0.0, 0.0, 1.0, 0.0], [1e-9, 0.0, 1.1, 0.0], [0.0, 0.0, 1.0, 1e-10])
    shared = np.array([1e-11, 1e-11, 1e-11, 2e-9], np.float32)  # by a `min` of equals
    assert apart.is_rounding(shared).tolist() == [True, True, False, True]
    assert apart.is_rounding(1000 * shared).tolist() == [True, False, False, True]


def test_bands_of_quantities_leave_room_for_the_largest_entry():
    free = lambda *run: Band(jnp.float32, np.array([run], np.longdouble), free=True)
    assert free(1.0, 1e-50).right([1, 0]).all()  # as of bare numbers
    assert free(1e50, 1e-50).right([1e50, 0]).all()
    assert free(1e50, 1e20).wrong([np.inf, 0]).all()
    assert free(1e-60, 1e-70).wrong([0, 0]).all()
    far = np.longdouble("1e-250"), np.longdouble("1e-355")  # and no number of float64
    assert free(*far).right([far[0], 0]).all()


def test_a_nan_that_xla_drops_is_no_loss():
    """The gradient of `max` is 1/0 times a mask, of which XLA makes a choice, in any dtype."""
    program = squares(calls=[[1.0, np.nan]], text="jnp.max({0})", kind="s", wrap="grad")
    assert np.isnan(expected(program)).all()
    assert run(program) is None


def test_cancellation_widens_the_band():
    program = squares(calls=[[1.0, 3.0]], text="({0} + 1e4) - 1e4")
    noisy = Reference(program).bands(program.calls[0], 20)[0]
    assert noisy.right(np.array([1.0005, 3.0])).all()
    assert noisy.wrong(np.array([1.1, 3.0])).tolist() == [True, False]


def test_exact_number_stays_exact_beside_other_roundings():
    """`log(x / x)` is 0, and what is left of a gradient beside it noise of 1 / x**2, not of 1."""
    program = generate(9200012, "float32")  # the gradient of (v - x) / (v + x), v = log(x / x)
    (band,) = Reference(program).bands(program.calls[0], 60)
    one_ulp = np.float64(2.0**-24) / np.ravel(program.calls[0].values[0]).astype(float) ** 2
    assert not band.wrong(one_ulp).any()
    assert band.wrong(1e3 * one_ulp).all()


def test_numbers_beyond_the_reference_are_not_judged():
    program = squares(calls=[[1e30]], text="jnp.log(jnp.exp({0}))")
    assert not Reference(program).bands(program.calls[0])[0].wrong(np.array([np.inf])).any()
    program = squares(calls=[[1e30]], text="1 / (1 + jnp.exp({0}))")
    assert Reference(program).bands(program.calls[0])[0].wrong(np.array([1.0])).all()


class Planted:
    """`tj.jit` with a fault in its results."""

    def __init__(self, fault):
        self.fault = fault

    def __call__(self, f):
        compiled, count = jax.jit(f), iter(range(1000))
        return functools.wraps(f)(lambda *a: self.fault(next(count), compiled(*a)))


@pytest.mark.parametrize(
    ("fault", "promise"),
    [
        (lambda i, y: y * 1.001, "worse"),
        (lambda i, y: y.at[1].set(0), "worse"),
        (lambda i, y: y.at[1].set(jnp.inf), "worse"),
        (lambda i, y: y.at[0].set(jnp.nan), "worse"),
        (lambda i, y: y if i < 2 else y * 2, "history"),
    ],
)
def test_planted_fault_is_found(monkeypatch, fault, promise):
    program = squares(calls=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert run(program) is None
    monkeypatch.setattr(transforms, "jit", Planted(fault))
    assert run(program).promise == promise


@pytest.mark.parametrize(
    ("are_right", "promise"), [([1, 1, 1], "history"), ([1, 1, 0], None), ([0, 1, 1], None)]
)
def test_exponents_that_are_found_for_one_call_alone_are_luck_after_a_warning(
    monkeypatch, are_right, promise
):
    """A limited search may find exponents for the numbers of one call that it misses for others."""
    right = iter([0, *are_right])

    def planned(f):
        is_right = next(right)

        def call(x):
            if not is_right:
                warnings.warn(
                    "1 entries of the results are wrong", tj.errors.ScaleWarning, stacklevel=2
                )
            return x if is_right else f(x)

        return call

    monkeypatch.setattr(transforms, "jit", planned)
    failure = run(squares(calls=[[1e30, 2e30]], text="{0} * {0} / {0}"))
    assert (failure and failure.promise) == promise


def test_lost_numbers_are_found(monkeypatch):
    program = squares(calls=[[1e30, 2e30]], text="{0} * {0} / {0}")
    monkeypatch.setattr(transforms, "jit", jax.jit)
    failure = run(program)
    assert (failure.promise, failure.looks) == ("lost", "inf")


def test_a_warning_of_an_earlier_call_outside_of_jit_excuses_no_later_one(monkeypatch):
    def fault(x):
        if isinstance(x, jax.core.Tracer):  # the reference
            return x
        if x[0] == 2:
            warnings.warn("not all is held", tj.errors.ScaleWarning, stacklevel=2)
        return jnp.where(x == 3, jnp.inf, x)

    monkeypatch.setattr(jnp, "fault", fault, raising=False)
    program = squares(calls=[[2.0], [3.0]], text="jnp.fault({0})")
    failure = run(dataclasses.replace(program, eager=True))
    assert (failure.call, failure.promise, failure.warned) == (1, "lost", False)


def test_quantities_are_compared_with_bare_numbers(monkeypatch):
    step = Step("v0", "arithmetic", "{0} * {1}", ("q0", "q1"), "s")
    call = Call((np.array(1.5), np.array(2.0**90)), "given")
    arguments = (Argument("q0", "s"), Argument("q1", "s"))
    program = Program(
        0, "float16", arguments, (), (), (step,), ("v0",), "plain", (call,), units=("m", "kg")
    )
    assert "scale=" in program.argument_text(1, call.values[1])
    assert run(program) is None
    twice = Planted(lambda i, q: dataclasses.replace(q, stored=2 * q.stored))
    monkeypatch.setattr(transforms, "jit", twice)
    assert run(program).promise == "worse"


def test_crash_is_found(monkeypatch):
    def refuse(i, y):
        raise KeyError("no")

    monkeypatch.setattr(transforms, "jit", Planted(refuse))
    assert run(squares(calls=[[1.0]])).promise == "crash"


def test_failure_is_shrunk_and_its_script_runs(monkeypatch, capsys):
    monkeypatch.setattr(transforms, "jit", Planted(lambda i, y: y if i else y * 2))
    calls = [[3.0, 5.0, 7.0], [2.0, 2.0, 2.0]]
    failure = shrink(run(squares(calls=calls)), 20)
    assert len(failure.program.calls) == 1
    assert failure.program.calls[0].values[0].tolist() == [1.0]
    exec(failure.program.script(expected(failure.program)), {})
    assert "want  [1.0]" in capsys.readouterr().out
    assert "promise broken: worse" in report(failure)


def test_a_failure_between_other_calls_is_shrunk(monkeypatch):
    monkeypatch.setattr(transforms, "jit", Planted(lambda i, y: jnp.where(y > 20, 2 * y, y)))
    failure = shrink(run(squares(calls=[[1.0], [5.0], [1.0]])), 20)
    assert failure.call == 0
    assert len(failure.program.calls) == 1


def test_command_line_writes_one_line_per_program(tmp_path):
    out, log = Console(file=io.StringIO(), width=200), tmp_path / "log"
    arguments = ["--programs", "1", "--seed", "3", "--dtype", "float32", "--log", str(log)]
    status = main([*arguments, "--quiet", "--shrink", "1"], out)
    assert status == ("0 failures" not in out.file.getvalue())
    assert log.read_text().count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "first"), [(d, first) for d, firsts in SEEDS.items() for first in firsts]
)
def test_random_programs_keep_the_promises(dtype, first):
    for seed in range(first, first + PER_TEST):
        outcome = one(seed, dtype)
        assert outcome.error is None, outcome.error
        assert outcome.failure is None, report(outcome.failure)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_quantities_outside_of_jit_are_right_or_warn(dtype):
    for seed in range(40):
        outcome = one(seed, dtype, eager=True)
        assert outcome.error is None, outcome.error
        assert outcome.failure is None, report(outcome.failure)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "planted"),
    [
        ("tanjax.quantities._common_labels._beside", lambda *_: []),
        ("tanjax.quantities._losses._differ", lambda *_: False),
        ("tanjax.quantities._arithmetic._nearer", lambda x, *_: x),
    ],
    ids=["pure numbers", "losses", "constants and zeros"],
)
def test_faults_outside_of_jit_are_found(monkeypatch, capsys, fault, planted):
    monkeypatch.setattr(fault, planted)
    outcomes = (one(seed, "float16", eager=True) for seed in range(100))
    failure = next(o.failure for o in outcomes if o.failure)
    assert failure.promise == "lost"
    assert "--eager" in report(failure)
    with warnings.catch_warnings(record=True):
        exec(failure.program.script(expected(failure.program)), {})
    assert "want" in capsys.readouterr().out
