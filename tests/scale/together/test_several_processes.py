"""Arrays that live on several hosts: two processes on one machine, with JAX's CPU collectives.

No process sees all numbers, and if two of them ran different programs, both would wait for ever.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import traceback
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils

import tanjax as tj
from tanjax.scale import _plan, agreed
from tanjax.scale.numbers import ANYWHERE, Window, _hosts, inside, measure

pytestmark = pytest.mark.core

TIMEOUT = 240  # seconds, of two processes on a busy machine; a hang is killed
PROGRAMS = {}


def on_two_processes(run):
    """A program that both processes run; what it returns in each of them is looked at by a test."""
    PROGRAMS[run.__name__] = run
    return run


# -- what the processes run ------------------------------------------------------------------------


def make(kind, dtype="float32", count=8):
    """A global array, of which the second process holds the larger numbers if `kind` is "far"."""

    ends = {"near": (1.0, 2.0), "far": (1.0, 1e25), "zero": (0.0, 0.0), "bad": (1.0, np.inf)}[kind]
    size = ends[jax.process_index()]
    with np.errstate(invalid="ignore"):
        numbers = (size * np.linspace(1.0, 1.5, count // 2)).astype(dtype)
    return jax.make_array_from_process_local_data(placed("i"), numbers)


def placed(*axes):
    mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))


def replicated(number, dtype):
    return jax.make_array_from_callback((), placed(), lambda _: np.array(number, dtype))


def wide(x):
    """All numbers of a global array, in float64."""
    if not isinstance(x, jax.Array):
        return np.float64(x)
    if x.is_fully_addressable:
        return np.asarray(x, np.float64)
    return gathered(x).astype(np.float64)


def gathered(x):
    return np.asarray(multihost_utils.process_allgather(x, tiled=True))


def compared(f, reference, *calls, **options):
    """Per call the largest relative errors of `tj.jit` and of `jax.jit`; and the plans."""
    planned, plain = tj.jit(f, **options), jax.jit(f)
    errors = []
    for args in calls:
        want = reference(*map(wide, args))
        got = [np.float64(gathered(g(*args))) for g in (plain, planned)]
        with np.errstate(invalid="ignore"):
            errors.append([float(np.max(np.abs(x - want) / np.abs(want))) for x in got])
    plans = [(p.identity, p.grade) for p in planned.plans]
    return {"errors": errors, "plans": plans}


def _norm(x):
    return jnp.sqrt(jnp.sum(x * x))


def _wide_norm(x):
    return np.sqrt(np.sum(x * x))


@on_two_processes
def values():
    return compared(_norm, _wide_norm, [make("far")])


@on_two_processes
def gradients():
    return compared(jax.grad(_norm), lambda x: x / _wide_norm(x), [make("far")])


@on_two_processes
def sequence():
    kinds = ["near", "near", "far", "near", "far", "zero", "near", "far"]
    at = make("near")
    given = [[at if kind == "near" and i else make(kind)] for i, kind in enumerate(kinds)]
    shifted = lambda x: _norm(x) + 1
    return compared(shifted, lambda x: _wide_norm(x) + 1, *given)


@on_two_processes
def large():
    """Too many numbers to travel: the plan comes from bounds."""
    far = [make(kind, count=1 << 20) for kind in ("near", "far", "near", "far")]
    return compared(lambda x: x * x / 1e20, lambda x: x * x / 1e20, *[[x] for x in far])


@on_two_processes
def mapped():
    mesh, spec = placed("i").mesh, jax.sharding.PartitionSpec("i")

    def part(x):
        return x * x / jnp.sqrt(jax.lax.psum(jnp.sum(x**2), "i"))

    f = jax.shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec)
    return compared(
        f, lambda x: x * x / np.sqrt(np.sum(x * x)), *[[make(k)] for k in ("near", "far", "near")]
    )


@on_two_processes
def arguments():
    """Of every sort: spread, replicated, of one process, NumPy's and Python's."""
    f = lambda x, scale, y, z, n: x * scale * y / z * n / 1e25
    calls = [
        [make(kind), replicated(1e20, "float32"), jnp.float32(1e10), np.float32(1e10), 2.0]
        for kind in ("near", "far", "near")
    ]
    return compared(f, f, *calls)


@on_two_processes
def flags_and_counts():
    def f(x, flag, counts):
        big = jax.lax.cond(flag, lambda x: x * x / 1e25, lambda x: x / 2, x)
        return big * counts.astype(x.dtype)

    def reference(x, flag, counts):
        return (x * x / 1e25 if flag else x / 2) * counts

    numbers = np.arange(1, 9, dtype=np.int32)
    counts = jax.make_array_from_callback((8,), placed("i"), lambda i: numbers[i])
    calls = [
        [make("far"), replicated(flag, bool), counts * jnp.int32(times)]
        for flag, times in ((False, 1), (True, 1), (False, 1000), (True, 1000))
    ]
    return compared(f, reference, *calls)


@on_two_processes
def quantities():
    f = tj.jit(lambda m, r: tj.quantity(6.674e-11, "m3 kg-1 s-2") * m * m / r**2)
    out = []
    for kind in ("near", "far"):
        m, r = make(kind), make("near")
        force = f(tj.quantity(m, "kg"), tj.quantity(r, "m"))
        want = 6.674e-11 * wide(m) ** 2 / wide(r) ** 2
        got = wide(force.stored) * 2.0**force.scale
        out.append([str(force.unit.dimension) != "", float(jnp.max(abs(got / want - 1)))])
    return out


@on_two_processes
def random_keys():
    """Of each process its own: they are gathered, too."""
    split = jax.jit(lambda: jax.random.split(jax.random.key(0), 8), out_shardings=placed("i"))
    f = lambda k, x: jax.vmap(lambda k: jax.random.normal(k, dtype=jnp.float32))(k) * x * x / 1e30
    keys, planned = split(), tj.jit(f)
    normal = wide(jax.jit(lambda k: f(k, jnp.float32(1e15)))(keys))
    errors = []
    for kind in ("near", "far", "near"):
        want = normal * wide(make(kind)) ** 2 / 1e30
        errors.append(float(np.max(abs(gathered(planned(keys, make(kind))) / want - 1))))
    return errors


@on_two_processes
def again():
    """Arrays that are given to many calls are looked at once."""
    looked, look = [], _hosts.seen_on_device
    _hosts.seen_on_device = lambda *arrays: looked.append(len(arrays)) or look(*arrays)
    f = tj.jit(lambda w, x: w - 1e-2 * jnp.mean(jnp.tanh(x * w)))
    x, w = make("near"), replicated(0.1, "float32")
    try:
        for _ in range(4):
            w = f(w, x)
        f(w, make("near"))
    finally:
        _hosts.seen_on_device = look
    return looked


@on_two_processes
def alone():
    """What one process computes for itself does not make it decide otherwise.

    The loop is only sampled, so that windows decide.
    """

    def f(x):
        loop = jax.lax.fori_loop(0, 20000, lambda i, c: jnp.cos(c) + 0.5, x / x)
        return x * x / 1e20 * jnp.max(loop) / jnp.min(loop)

    planned = tj.jit(f)
    errors = []
    for i, kind in enumerate(("near", "far", "near", "far", "near", "near")):
        for k in range(3 * jax.process_index()):
            planned(jnp.full(8, 1.0 + i + k, jnp.float32))
        x = make(kind)
        errors.append(float(np.max(abs(gathered(planned(x)) / (wide(x) ** 2 / 1e20) - 1))))
    return errors


@on_two_processes
def not_finite():
    """An infinity that only the second process has, at the same magnitudes otherwise."""
    f = lambda x: 1 / (1 + x) + x * 0
    g = tj.jit(f)
    same = []
    for kind in ("near", "bad", "near", "bad"):
        x = make(kind)
        same.append(bool(np.array_equal(*[gathered(h(x)) for h in (g, jax.jit(f))], True)))
    return same


@on_two_processes
def refused():
    """Zeros that only the second process has, in a window that refuses them."""
    numbers = np.array(([1, 1, 1, 1], [1, 0, 2, 3])[jax.process_index()], np.float32)
    x = jax.make_array_from_process_local_data(placed("i"), numbers)
    given = make("near"), x, replicated(0.0, "float32"), replicated(1.0, "float32")
    return [inside(y, ANYWHERE._replace(nonzero=True)) for y in given]


@on_two_processes
def elsewhere():
    """Arrays that are all on the devices of the first process; the second computes nothing."""
    mesh = jax.sharding.Mesh(np.array([d for d in jax.devices() if d.process_index == 0]), ("j",))
    place = jax.NamedSharding(mesh, jax.sharding.PartitionSpec("j"))
    f = tj.jit(lambda x: x * x / 1e30)
    errors = []
    for size in (1e15, 1e25, 1e15):
        numbers = np.full(8, size, np.float32)
        x = jax.make_array_from_callback((8,), place, lambda i: numbers[i], dtype=np.float32)  # noqa: B023
        y = f(x)
        if y.is_fully_addressable:
            errors.append(
                float(np.max(np.abs(np.asarray(y) / (numbers.astype(float) ** 2 / 1e30) - 1)))
            )
    return errors


@on_two_processes
def donated():
    f = tj.jit(lambda x: x * x / jnp.max(x), donate_argnums=0)
    errors = []
    for kind in ("near", "far"):
        x = make(kind)
        want = wide(x) ** 2 / np.max(wide(x))
        errors.append(float(np.max(abs(gathered(f(x)) / want - 1))))
    return errors


@on_two_processes
def bits():
    """In range, the program is JAX's own, bit by bit; also ahead of time."""
    f = lambda x: jnp.tanh(x) * x + jnp.sum(x**3) / 3
    x = make("near")
    g = tj.jit(f)
    same = [np.array_equal(gathered(h(x)), gathered(jax.jit(f)(x))) for h in (g, g)]
    text = g.lower(x).as_text() == jax.jit(f).lower(x).as_text()
    return [*map(bool, same), text, [p.identity for p in g.plans]]


@on_two_processes
def measured():
    found = {}
    for dtype in ("float16", "bfloat16", "float32", "complex64", "int32"):
        x = make("near", jnp.dtype(dtype))
        found[dtype] = list(measure(x))[:2]
    x, bad = make("far"), make("bad")
    found["inside"] = [inside(x, Window(-1.0, 84.0)), inside(x, Window(-1.0, 80.0))]
    found["finite"] = [inside(bad, Window(-1.0, 1.0)), inside(bad, Window(-1.0, 1.0, True))]
    found["zero"] = measure(make("zero")).is_zero
    tiny = jax.jit(lambda x: jax.lax.bitcast_convert_type(x * 0 + 1, jnp.float32))
    found["subnormal"] = measure(tiny(make("near", "int32"))).low
    key = jax.jit(lambda: jax.random.key(0), out_shardings=placed())()
    found["key"] = measure(key).is_zero
    return found


@on_two_processes
def agreement():
    """Plans that differ, or that fail in one process, are not used by any."""
    me = jax.process_index()
    [seen] = _hosts.looked_at([make("near")])
    closed = jax.make_jaxpr(lambda x: x * x)(jnp.float32(1))
    plan = _plan.plan(closed, [jnp.ones(())], [False])

    def different():
        return plan._replace(method=f"{me}")

    def fails():
        if me:
            raise ValueError("only here")
        return plan

    found = [agreed(lambda: plan, [seen]).method]
    for ask in (different, fails):
        try:
            agreed(ask, [seen])
        except (RuntimeError, ValueError) as error:
            found.append(type(error).__name__)
    found.append(_warned(lambda: tj.jit(_clashing)(make("far"))))
    return found


def _clashing(x):
    """Planned in vain: one process cannot."""
    if jax.process_index():
        _plan.evaluate = None  # called when a plan is made
    return x * x / 1e25


def _warned(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(w.message).splitlines()[0] for w in caught]


def main(port, index, out):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=index)
    found = {}
    for name, run in PROGRAMS.items():  # `agreement` breaks the planner, and is the last
        try:
            found[name] = {"result": run()}
        except Exception:
            found[name] = {"failure": traceback.format_exc()}
        with open(out, "w") as file:
            json.dump(found, file)


# -- what is looked at -----------------------------------------------------------------------------


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """What each of two processes has found."""
    folder, port = tmp_path_factory.mktemp("processes"), free_port()
    options = "--xla_force_host_platform_device_count=2"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": options}
    started = []
    for i in range(2):
        with open(folder / f"log{i}", "w") as log:
            command = [sys.executable, __file__, str(port), str(i), str(folder / f"found{i}")]
            started.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            )
    try:
        for p in started:
            p.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        pass  # programs that hang have found nothing
    finally:
        for p in started:
            p.kill()
            p.wait()
    found = []
    for i in range(2):
        path = folder / f"found{i}"
        text = (folder / f"log{i}").read_text()
        found.append((json.loads(path.read_text()) if path.exists() else {}, text))
    return found


def results(processes, name):
    """The results of a program, alike in both processes."""
    for found, log in processes:
        assert name in found, f"{name} hangs or was not reached: {log[-3000:]}"
        assert "failure" not in found[name], found[name]["failure"]
    first, second = (found[name]["result"] for found, _ in processes)
    assert first == second
    return first


def lost(error):
    return not error < 1e-3


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("name", ["values", "gradients"])
def test_together_the_processes_see_an_overflow(processes, name):
    found = results(processes, name)
    [[plain, planned]] = found["errors"]
    assert lost(plain)
    assert planned < 1e-6
    assert [identity for identity, _ in found["plans"]] == [False]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "far"),
    [
        ("sequence", [2, 4, 7]),
        ("large", [1, 3]),
        ("mapped", [1]),
        ("arguments", [1]),
        ("flags_and_counts", [1, 3]),
    ],
)
def test_sequences_of_calls(processes, name, far):
    """In range, out of range, and back: each call is right, where plain JAX is or is not."""
    found = results(processes, name)
    for i, (plain, planned) in enumerate(found["errors"]):
        assert lost(plain) == (i in far), found
        assert planned < 2e-6, found
    identities = [identity for identity, _ in found["plans"]]
    assert True in identities or name == "flags_and_counts"
    assert False in identities


@pytest.mark.processes
def test_quantities_have_the_unit_and_the_number_of_one_process(processes):
    assert all(unit and error < 1e-5 for unit, error in results(processes, "quantities"))


@pytest.mark.processes
def test_calls_of_one_process_alone_do_not_matter_to_the_others(processes):
    assert max(results(processes, "alone")) < 1e-4


@pytest.mark.processes
def test_an_infinity_in_one_process_is_seen_by_both(processes):
    assert results(processes, "not_finite") == [True] * 4


@pytest.mark.processes
def test_zeros_in_one_process_are_seen_by_both(processes):
    assert results(processes, "refused") == [True, False, False, True]


@pytest.mark.processes
def test_a_process_without_the_devices_does_not_stand_in_the_way(processes):
    first, second = [found["elsewhere"]["result"] for found, _ in processes]
    assert len(first) == 3
    assert max(first) < 1e-6
    assert second == []


@pytest.mark.processes
def test_random_keys(processes):
    assert max(results(processes, "random_keys")) < 1e-6


@pytest.mark.processes
def test_an_array_is_looked_at_once(processes):
    looked = results(processes, "again")
    assert [count for count in looked if count] == [1, 1]


@pytest.mark.processes
def test_donated_arguments(processes):
    assert max(results(processes, "donated")) < 1e-6


@pytest.mark.processes
def test_in_range_the_program_is_that_of_jax(processes):
    assert results(processes, "bits") == [True, True, True, [True, True]]


@pytest.mark.processes
def test_magnitudes_are_of_the_whole_array(processes):
    found = results(processes, "measured")
    for dtype in ("float16", "bfloat16", "float32", "complex64", "int32"):
        assert found[dtype] == pytest.approx([0.0, 1.585], abs=1e-2), dtype
    assert found["inside"] == [True, False]
    assert found["finite"] == [True, False]
    assert found["zero"]
    assert found["key"]
    assert found["subnormal"] == -149.0


@pytest.mark.processes
def test_processes_that_cannot_agree_run_plain_jax_and_say_so(processes):
    method, *errors, warned = results(processes, "agreement")
    assert method == "identity"
    assert errors == ["RuntimeError", "RuntimeError"]
    assert any("could not be planned" in text for text in warned)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
