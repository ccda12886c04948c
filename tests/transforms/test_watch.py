"""What was found in its window is not looked at again, and nothing else is let through."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.scale.numbers import InRow, Together, Window
from tanjax.transforms import _watch as watches
from tanjax.transforms._arguments import can_be_looked_at
from tanjax.transforms._watch import Watch

pytestmark = pytest.mark.core

NEAR = Window(-3.0, 3.0, True)


@pytest.fixture
def looked_at(monkeypatch):
    """How many arrays are looked at, call by call."""
    counts = []
    one, row, together = watches.inside, InRow.inside, Together.inside

    def counted(original, count):
        def look(*args):
            counts.append(count(args))
            return original(*args)

        return look

    monkeypatch.setattr(watches, "inside", counted(one, lambda args: 1))
    monkeypatch.setattr(InRow, "inside", counted(row, lambda args: len(args[1])))
    monkeypatch.setattr(Together, "inside", counted(together, lambda args: len(args[1])))
    return counts


def array(*values):
    found = jnp.array(values, jnp.float32)
    assert can_be_looked_at(found)
    return found


def test_only_strangers_are_looked_at(looked_at):
    data = [array(1.0, 2.0), array(3.0, 4.0)]
    watch = Watch([NEAR, NEAR, None, NEAR], [array(1.0), data[0], 3, data[1]])
    assert watch.takes([array(1.5), data[0], 3, data[1]])
    assert sum(looked_at) == 3
    assert watch.takes([array(1.6), data[0], 4, data[1]])
    assert sum(looked_at) == 4
    assert not watch.takes([array(9.0), data[0], 4, data[1]])
    assert not watch.takes([array(0.01), data[0], 4, data[1]])
    assert not watch.takes([array(np.nan), data[0], 4, data[1]])
    assert sum(looked_at) == 7
    assert watch.takes([array(1.6), data[1], 4, data[0]]), "at other places they are strangers"
    assert sum(looked_at) == 10


def test_what_was_out_of_its_window_stays_a_stranger(looked_at):
    far, near = array(100.0), array(1.0)
    watch = Watch([NEAR, NEAR], [near, near])
    for _ in range(3):
        assert not watch.takes([near, far])
    assert not watch.takes([far, near])
    assert watch.takes([near, near])


def test_another_array_in_the_same_place_of_memory_is_a_stranger():
    """`id` of an array that is gone may be that of another one."""
    watch = Watch([NEAR], [array(1.0)])
    met = 0
    for i in range(200):
        x = jnp.array([1.0 if i % 2 else 100.0], jnp.float32)
        known = id(x) in watch._places[0].seen if watch._places else False
        met += known
        assert watch.takes([x]) == bool(i % 2)
        del x
        gc.collect(0)
    assert met, "no identity came again"


def test_an_array_of_numpy_is_looked_at_on_every_call(looked_at):
    x, y = np.ones(3, np.float32), array(1.0)
    watch = Watch([NEAR, NEAR], [x, y])
    assert watch.takes([x, y])
    x[1] = 100.0
    assert not watch.takes([x, y])
    x[1] = 1.0
    watch = Watch([NEAR, NEAR], [y, y])
    assert watch.takes([x, y]), "where one of JAX was before"
    x[1] = 100.0
    assert not watch.takes([x, y])


def test_a_place_where_nothing_comes_back_is_forgotten(looked_at, monkeypatch):
    monkeypatch.setattr(watches, "MOST", 4)
    data, rest = array(2.0), [array(1.0 + i / 100) for i in range(50)]
    watch = Watch([NEAR, NEAR], [rest[0], data])
    for x in rest[:20]:
        assert watch.takes([x, data])
    assert [p.index for p in watch._places] == [1]
    turns = [array(1.0 + i / 10) for i in range(3)]
    watch = Watch([NEAR], [data])
    for i in range(20):
        assert watch.takes([turns[i % 3]])
    assert len(looked_at) - 20 == 3
    for x in rest[:5]:
        assert watch.takes([x]), "of others than these there are too many"
    assert len(watch._places[0].seen) <= 4
    for x in rest[5:15]:
        assert watch.takes([x])
    assert not watch._places


def test_nothing_is_kept_alive(collect):
    x = array(1.0)
    watch = Watch([NEAR], [x])
    assert watch.takes([x])
    gone = jax.tree.map(watches.weakref.ref, x)
    del x
    collect()
    assert gone() is None


def test_each_set_of_strangers_has_a_watch_of_its_own_up_to_some(monkeypatch):
    monkeypatch.setattr(watches, "PARTS", 2)
    known = [array(1.0 + i) for i in range(4)]
    watch = Watch([NEAR] * 4, known)
    assert watch.takes(known)
    for which in range(1, 15):
        bits = [which >> i & 1 for i in range(4)]
        given = [array(1.0) if b else x for b, x in zip(bits, known, strict=True)]
        assert watch.takes(given)
        for i in np.nonzero(bits)[0]:
            far = [*given]
            far[i] = array(100.0)
            assert not watch.takes(far), (which, i)
    assert len(watch._parts) == 2


def chain(w, x):
    """Out of float32 from 1e16 on, in range for ordinary numbers."""
    return jnp.sqrt(jnp.sum((w * x) ** 2)) / (1.0 + jnp.sum(x * x))


@pytest.mark.parametrize("size", [3, 1 << 19])
def test_data_that_stays_is_not_looked_at_while_parameters_change(size, looked_at):
    f = tj.jit(lambda w, x: jnp.sum(w * x) * 2.0)
    data = jnp.full(size, 1.5, jnp.float32)
    for i in range(6):
        f(jnp.float32(1.0 + i), data)
    looked_at.clear()
    for i in range(6):
        np.testing.assert_allclose(f(jnp.float32(2.0 + i), data), size * 3.0 * (2.0 + i), rtol=1e-5)
    assert looked_at == [1] * 6


def test_parameters_that_wander_off_beside_known_data_are_found():
    f = tj.jit(chain)
    data = jnp.linspace(1.0, 2.0, 50, dtype=jnp.float32)
    for i in range(5):
        f(jnp.float32(1.0 + i), data)
    for w in (1e25, 1e-25, 3.0, 1e30, 2.0, 1e18):
        expected = w * np.linalg.norm(data) / (1 + np.sum(np.square(np.float64(data))))
        np.testing.assert_allclose(f(jnp.float32(w), data), expected, rtol=1e-5)
        others = data * jnp.float32(1e15)
        squares = np.square(np.float64(others))
        expected = w * np.sqrt(squares.sum()) / (1 + squares.sum())
        if 1e-36 < expected < 1e36:
            np.testing.assert_allclose(f(jnp.float32(w), others), expected, rtol=1e-5)
