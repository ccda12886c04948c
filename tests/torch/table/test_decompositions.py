"""What torch makes while `tjt.factories` is active, and what stays as it is."""

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import numpy as np
from torch import nn

from tanjax.bridges import torch as tjt

pytestmark = pytest.mark.torch

FLOATS, INTEGERS = torch.tensor([1.5, 2.5, 3.5]), torch.tensor([14, 9, 23])
WAVES = torch.tensor([1 + 2j, 3 - 1j])
READS = {
    "from_torch": lambda t: tjt.from_torch(t).payload,
    "to_jax": tjt.to_jax,
    "numpy": lambda t: t.numpy(),
    "asarray": np.asarray,
    "tolist": lambda t: t.tolist(),
    "copied by force": lambda t: t.numpy(force=True),
    "a row": lambda t: t.view(-1)[1:].numpy(),
}


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("name", READS)
def test_plain_numbers_are_read_as_they_are_among_factories(name, integers):
    """Torch's C++ takes a view of a tensor, and reads its memory: an array of JAX has none."""
    read = READS[name]
    for t in (FLOATS, INTEGERS, torch.arange(1000.0), WAVES):
        expected = np.asarray(read(t))
        with tjt.factories(integers=integers):
            found = read(t)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("integers", [False, True])
def test_conjugate_plain_numbers_are_read_as_they_are_among_factories(integers):
    with tjt.factories(integers=integers):
        assert WAVES.conj().tolist() == [1 - 2j, 3 + 1j]
        assert WAVES.conj().imag.tolist() == [-2.0, 1.0]
        np.testing.assert_array_equal(WAVES.conj().numpy(force=True), [1 - 2j, 3 + 1j])
        np.testing.assert_array_equal(tjt.to_jax(WAVES.conj()), [1 - 2j, 3 + 1j])


def test_what_is_made_among_factories_is_ours():
    """Also of plain numbers, where a write of ours is to follow; it is read like any other."""
    layer = nn.Linear(3, 2)
    weight = layer.weight.detach().numpy().copy()
    with tjt.factories():
        twice = torch.ones(3) * 2
        given, sums = twice.numpy(), torch.zeros(3) + tjt.from_torch(FLOATS)
        copied = FLOATS.clone()
        copied[0] = twice[0]
        listed = torch.tensor([1.0, 2.0])
        converted = tjt.convert(layer).weight
    assert all(type(t) is tjt.Tensor for t in (twice, sums, copied, listed))
    np.testing.assert_array_equal(given, [2.0, 2.0, 2.0])
    assert sums.tolist() == FLOATS.tolist()
    assert copied.tolist() == [2.0, 2.5, 3.5]
    assert FLOATS[0] == 1.5
    np.testing.assert_array_equal(converted.payload, weight)


def test_a_write_into_plain_numbers_reaches_them_among_factories():
    t = torch.zeros(3)
    with tjt.factories():
        t.add_(1)
        t.view(3)[1:].mul_(2)
    assert t.tolist() == [1.0, 2.0, 2.0]


def test_plain_numbers_are_read_as_they_are_inside_a_pure_function():
    """What a module holds beside its parameters and buffers is a constant with its numbers."""
    held = torch.tensor([4.0, 5.0])

    def run(x):
        assert held.numpy().tolist() == held.tolist() == [4.0, 5.0]
        copied = held.clone()
        copied[0] = x[0]
        return x * tjt.from_torch(held) * copied

    _, f = tjt.as_jax(run)
    for call in (f, jax.jit(f)):
        assert call({}, jnp.array([1.0, 2.0])).tolist() == [4.0, 50.0]
