"""Loops that hand their state on: what of it is looked at, and that nothing else passes unseen."""

import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.scale.numbers._in_row import InRow
from tanjax.transforms import _entries, _returned, _watch

pytestmark = pytest.mark.core

LOOKS = 9  # calls until a state that is at rest is looked at less often


def chain(x):
    """`x` by a detour that leaves the range of float32 for numbers from 1e5 on."""
    return x * 1e20 * 1e14 * 1e-34


def step(state, batch):
    return chain(state) * 0.5 + chain(batch) * 0.5


def array(size, shape=(8,)):
    return jnp.full(shape, size, jnp.float32)


@pytest.fixture
def looked(monkeypatch):
    """The arrays that were looked at."""
    found = []
    for module, name in ((_watch, "inside"), (_entries, "measure")):
        old = getattr(module, name)
        note = lambda x, *a, _old=old: found.append(weakref.ref(x)) or _old(x, *a)
        monkeypatch.setattr(module, name, note)
    in_row = InRow.inside
    monkeypatch.setattr(
        InRow, "inside", lambda row, xs: found.extend(map(weakref.ref, xs)) or in_row(row, xs)
    )
    return found


def run(f, state, count, batch=1.0):
    for _ in range(count):
        state = f(state, array(batch))
    return state


def test_a_state_at_rest_is_looked_at_less_and_less_and_a_batch_on_every_call(looked):
    f = tj.jit(step)
    state, of_state = array(1.0), []
    for i in range(200):
        looked.clear()
        batch = array(1.0)
        before, state = state, f(state, batch)
        if any(r() is before for r in looked):
            of_state.append(i)
        assert i == 0 or any(r() is batch for r in looked)
    assert len(of_state) < 25
    gaps = np.diff(of_state)
    assert gaps[-1] >= _returned._RARELY
    assert np.all(gaps[: LOOKS - 2] == 1)
    assert len(f.plans) == 1
    assert f.plans[0].grade == "guessed"  # the last call was not looked at


def test_near_an_end_of_what_is_guessed_a_state_is_looked_at_more_often(looked, monkeypatch):
    """It was looked at on every call for hundreds of steps, until it had moved elsewhere."""
    monkeypatch.setattr(_returned, "_have_room", lambda *_: False)
    f, state, of_state = tj.jit(step), array(1.0), []
    for i in range(100):
        looked.clear()
        before, state = state, f(state, array(1.0))
        if any(r() is before for r in looked):
            of_state.append(i)
    gaps = np.diff(of_state)
    assert len(of_state) < 30
    assert max(gaps) == gaps[-1] == _returned._SOON + 1


def test_numbers_that_are_handed_back_without_a_look_are_no_second_program():
    traces = []
    f = tj.jit(lambda s, b: traces.append(1) or step(s, b))
    run(f, array(1.0), 50)
    assert len(traces) == 1
    assert len(f._compiled._making._programs) == 0


@pytest.mark.parametrize("calls", [5, 20, 60])
def test_another_batch_is_seen_on_the_very_call(calls):
    f = tj.jit(step)
    state = run(f, array(1.0), calls)
    np.testing.assert_allclose(f(state, array(1e6)), 0.5 * state + 5e5, rtol=1e-5)
    np.testing.assert_allclose(run(f, state, 3, 1e7), 0.125 * state + 0.875e7, rtol=1e-5)


@pytest.mark.parametrize("calls", [5, 20, 60])
def test_a_state_from_elsewhere_is_seen_on_the_very_call(calls):
    f = tj.jit(step)
    run(f, array(1.0), calls)
    np.testing.assert_allclose(f(array(1e7), array(1.0)), 5e6 + 0.5, rtol=1e-5)


def test_a_state_of_another_shape_is_another_program():
    f = tj.jit(step)
    run(f, array(1.0), 30)
    np.testing.assert_allclose(f(array(1e7, (3,)), array(1.0, (3,))), 5e6 + 0.5, rtol=1e-5)
    run(f, array(1.0), 30)


@pytest.mark.parametrize("growth", [1.1, 2.0, 4.0, 30.0])
def test_a_state_that_grows_is_looked_at_in_time(growth):
    f = tj.jit(lambda x: chain(x) * jnp.float32(growth))
    x, want = array(1.0), 1.0
    for _ in range(300):
        x, want = f(x), want * float(np.float32(growth))
        if want > 1e30:
            break
        np.testing.assert_allclose(x, want, rtol=1e-3)


def adam(p, m, v, t, batch):
    """A step towards the mean of the batches; no bound says that nothing leaves its range."""
    g, t = p - batch, t + 1
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    first, second = 1 - 0.9 ** t.astype(jnp.float32), 1 - 0.999 ** t.astype(jnp.float32)
    return p - 1e-2 * (m / first) / (jnp.sqrt(v / second) + 1e-8), m, v, t


def test_a_dear_program_is_looked_at_now_and_then_though_its_steps_are_counted(monkeypatch):
    monkeypatch.setattr(_entries, "DEAR", 0.0)
    rng, f, g = np.random.default_rng(0), tj.jit(adam), jax.jit(adam)
    state = other = (array(1.0), array(0.0), array(0.0), jnp.int32(0))
    for _ in range(300):
        batch = jnp.asarray(rng.normal(size=8), jnp.float32)
        state, other = f(*state, batch), g(*other, batch)
    assert all(np.array_equal(a, b) for a, b in zip(state, other, strict=True))
    (plan,) = f.plans
    assert plan.looks < 20
    assert f._compiled._recent.entries[0].unseen


def test_numbers_near_an_end_of_what_is_trusted_are_looked_at_and_trusted_no_more_if_wrong(
    monkeypatch,
):
    monkeypatch.setattr(_entries, "DEAR", 0.0)
    f, state = tj.jit(adam), (array(1.0), array(0.5), array(0.5), jnp.int32(3))
    for size in (1.5, 2.0, 2.5, 3.0):
        f(*state, array(size))
    entry, near, far = f._compiled._recent.entries[0], (*state, array(4.0)), (*state, array(1e25))
    for _ in range(2):
        assert entry.covers(near)
        assert entry.confirm(near, _entries.look(near))
    assert entry.covers(near)
    assert not entry.confirm(far, _entries.look(far))
    assert not entry.covers(near)


def test_a_state_that_is_squared_is_looked_at_in_time():
    f, x, want = tj.jit(lambda x: chain(x) * x), array(1.000001), float(np.float32(1.000001))
    for _ in range(25):
        x, want = f(x), want * want
        np.testing.assert_allclose(x, want, rtol=0.1 * want)
        x, want = array(want), float(np.float32(want))


def test_a_state_that_explodes_between_two_looks_is_said():
    """It is no number of the last look, and no window foresees it: then it is late, not silent."""

    def bomb(x, t):
        return chain(x) * jnp.where(t == 100, jnp.float32(1e12), jnp.float32(1)), t + 1

    f = tj.jit(bomb)
    state = array(1.0), jnp.int32(0)
    for _ in range(99):
        state = f(*state)
    with pytest.warns(tj.ScaleWarning, match="without a look"):
        explode(f, state)


def explode(f, state):
    for _ in range(100):
        state = f(*state)


def test_a_flag_from_outside_is_seen_on_the_very_call():
    """Of a program that no proof covers, which is trusted where it was seen."""

    def over(x):
        large = jnp.exp(60.0 * x)
        return large * large / large * jnp.exp(-60.0 * x)

    def f(x, flag):
        for _ in range(80):  # dear to look at
            x = x + 0.0
        y = jax.lax.cond(flag, over, lambda x: x, x)
        return y + 0.0 / (1.5 * x - x)

    g, x = tj.jit(f), array(1.0)
    for _ in range(31):
        x = g(x, jnp.bool_(False))
    assert g._compiled._recent.entries[0].unseen
    np.testing.assert_allclose(g(x, jnp.bool_(True)), 1.0, rtol=1e-5)


def test_a_state_that_nobody_holds_is_gone(collect):
    f = tj.jit(step)
    state = array(1.0, (300, 300))
    for _ in range(30):
        state = f(state, array(1.0, (300, 300)))
    gone = weakref.ref(state)
    del state
    collect()
    assert gone() is None


def test_donated_states():
    f = tj.jit(step, donate_argnums=0)
    state = run(f, array(1.0), 40)
    last = state + 0
    np.testing.assert_allclose(f(state, array(3.0)), 0.5 * last + 1.5, rtol=1e-5)
    assert state.is_deleted()


def test_trees_of_quantities():
    f = tj.jit(lambda s, b: {k: (x + b[k]) * 0.5 for k, x in s.items()})
    make = lambda size: {k: tj.Unitful(array(size), "m") for k in "abcde"}
    state = make(1.0)
    for _ in range(40):
        state = f(state, make(1.0))
    far = f(state, make(1e30))
    np.testing.assert_allclose(np.asarray(far["e"].value, float), 5e29, rtol=1e-5)


def test_an_alarm_is_said_again_where_the_plan_is_used_again():
    """A dear program whose results are wrong at any exponents: not only when it is planned."""

    def f(x):
        for _ in range(80):
            x = x + 0.0
        return x * x * x * 1e-30, jnp.cumsum(x * x) * 1e-20

    g, x = tj.jit(f), jnp.asarray(np.logspace(-30, 30, 8), jnp.float32)
    for _ in range(5):  # planned, looked at, trusted
        with pytest.warns(tj.ScaleWarning, match="entries of the results are wrong"):
            g(x * 1.0)


def test_jax_debug_nans_is_asked_by_the_user():
    f = tj.jit(step)
    state = run(f, array(1.0), 30)
    with jax.debug_nans(True):
        np.testing.assert_allclose(f(state, array(1e6)), 0.5 * state + 5e5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32])
def test_a_network_in_training_is_planned_once_and_nothing_is_said(dtype):
    """In float16 it was planned on each step: its gradients are subnormal, and were called lost."""
    rng = np.random.default_rng(0)
    made = lambda *shape, size=1.0: jnp.asarray(rng.normal(size=shape) * size, dtype)

    def loss(p, x, y):
        return jnp.mean((jnp.tanh(jnp.tanh(x @ p[0]) @ p[1]) @ p[2] - y) ** 2)

    def step(p, x, y):
        return jax.tree.map(lambda p, g: p - 1e-2 * g, p, jax.grad(loss)(p, x, y))

    f, g = tj.jit(step), jax.jit(step)
    p = [made(16, 32, size=0.25), made(32, 32, size=0.2), made(32, 1, size=0.2)]
    q = p
    for _ in range(60):
        batch = made(32, 16), made(32, 1)
        p, q = f(p, *batch), g(q, *batch)
    assert len(f.plans) <= 2
    assert all(np.array_equal(a, b) for a, b in zip(p, q, strict=True))


def test_what_comes_from_outside_is_asked_for_a_large_number_as_well(monkeypatch):
    """Beside a state that is not looked at; the fourth power of each is 0 in float32."""
    monkeypatch.setattr(_entries, "DEAR", 0.0)
    f = tj.jit(lambda state, x: state * 0.5 + x**4 / jnp.max(x) ** 4)
    far = jnp.asarray(2.0 ** np.linspace(-40, 30, 20), jnp.float32)
    state, small = array(1.0, (20,)), far[:3][jnp.arange(20) % 3]
    for i in range(60):
        state = f(state, far * (1 + i % 7 / 100))
    assert f.plans[-1].grade == "guessed"
    expected = state * 0.5 + (small / jnp.max(small)) ** 4
    np.testing.assert_allclose(f(state, small), expected, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*called under a trace")
def test_another_batch_may_be_a_tracer():
    f = tj.jit(step)
    state = run(f, array(1.0), 30)
    np.testing.assert_allclose(jax.grad(lambda b: f(state, b).sum())(array(1.0)), 0.5, rtol=1e-5)
    np.testing.assert_allclose(f(state, np.float32(3.0)), 0.5 * state + 1.5, rtol=1e-5)
