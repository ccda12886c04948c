"""Into the bridge, out of it, and through files: numbers, gradients, memories, types."""

import copy
import io
import pickle

import pytest

pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

import tanjax as tj
from tanjax.bridges import torch as tjt

pytestmark = pytest.mark.torch

DTYPES = [torch.bool, torch.uint8, torch.uint16, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES += [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
DTYPES += [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_goes_to_jax_and_back_with_the_same_bits(dtype):
    """Each dtype goes to JAX and back with the same bits."""
    t = torch.tensor([0.0, 1.0, 3.0]).to(dtype)
    x = tjt.to_jax(t)
    ours = tjt.from_jax(x)
    assert ours.dtype == dtype
    back = tjt.to_torch(ours)
    assert back.dtype == dtype
    assert bytes(back.view(torch.uint8)) == bytes(t.view(torch.uint8))


def test_every_layout_keeps_its_numbers():
    """Transposed, expanded, empty, lazily conjugated and scalar tensors keep their numbers."""
    c = torch.tensor([1 + 2j, 3j])
    tensors = [torch.arange(6.0).view(2, 3).t(), torch.ones(3).expand(2, 3), torch.zeros(0, 3)]
    tensors += [c.conj(), c.conj().imag, torch.tensor(2.0), torch.arange(9)[::2]]
    for t in tensors:
        np.testing.assert_array_equal(tjt.to_jax(t), t.resolve_conj().resolve_neg().numpy())


def test_constructor_takes_arrays_numbers_and_lists():
    """`tjt.Tensor(x)` is `from_jax(x)`: arrays of JAX, NumPy, ours, numbers and lists."""
    x = jnp.arange(3.0)
    assert tjt.Tensor(x).payload is x
    assert tjt.Tensor(x, requires_grad=True).requires_grad
    assert tjt.Tensor([1, 2]).dtype == torch.int64
    assert tjt.Tensor(2.5).dtype == torch.float32
    assert tjt.Tensor(np.ones(2, ml_dtypes.bfloat16)).dtype == torch.bfloat16
    d = tj.Diagonal(x)
    assert tjt.from_jax(d).payload is d
    assert tuple(tjt.from_jax(d).shape) == (3, 3)


def test_gradients_flow_through_both_ways():
    """Plain leaf, ours, plain again: gradients of both orders are plain torch's."""

    def loss(x, there, back):
        return (back(there(x).sin()) ** 2).sum()

    leaf = torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True)
    same = lambda x: x
    found = []
    for there, back in ((same, same), (tjt.from_torch, tjt.to_torch)):
        (g,) = torch.autograd.grad(loss(leaf, there, back), leaf, create_graph=True)
        (h,) = torch.autograd.grad((g * g).sum(), leaf)
        assert type(g) is type(h) is torch.Tensor
        found.append((g, h))
    torch.testing.assert_close(*found)
    ours = tjt.from_jax(jnp.array([0.3, -0.7]), requires_grad=True)
    (tjt.to_torch(ours).sin() ** 2).sum().backward()
    assert type(ours.grad) is tjt.Tensor
    np.testing.assert_allclose(ours.grad, np.sin(2 * ours.numpy(force=True)), 1e-6)
    with torch.no_grad():
        assert not tjt.from_torch(leaf).requires_grad
        assert not tjt.to_torch(ours).requires_grad


def test_numpy_and_dlpack():
    """NumPy reads without a copy and cannot write; a tensor that requires a gradient is refused."""
    x = tjt.from_jax(jnp.arange(6.0).reshape(2, 3))
    a = x.numpy()
    assert a.ctypes.data == x.payload.unsafe_buffer_pointer()
    assert not a.flags.writeable
    assert x.tolist() == a.tolist() == [list(r) for r in np.asarray(x)]
    assert np.array(x, dtype=np.float32).dtype == np.float32
    np.testing.assert_array_equal(np.sin(x), np.sin(a))
    assert type(np.sin(x)) is tjt.Tensor
    for load in (np.from_dlpack, jnp.from_dlpack, torch.from_dlpack):
        np.testing.assert_array_equal(load(x), a)
    x.requires_grad_()
    for ask in (x.numpy, x.__array__, x.__dlpack__):
        with pytest.raises(RuntimeError, match="requires grad"):
            ask()
    assert x.numpy(force=True).tolist() == a.tolist()


def test_no_write_reaches_an_array_of_jax():
    """Nor one of JAX what is read of torch's memory."""
    array = jnp.arange(3.0)
    ours = tjt.from_jax(array)
    kept = copy.deepcopy({"ours": ours})["ours"]
    for t in (
        torch.from_dlpack(ours),
        tjt.to_torch(ours),
        tjt.to_torch(ours.requires_grad_()).data,
    ):
        t.add_(5)
    ours.requires_grad_(False)
    np.from_dlpack(ours)
    source = torch.ones(2, requires_grad=True) * 2
    there, alone = tjt.from_torch(source), tjt.to_jax(source.detach())
    source.data.mul_(3)
    for found in (array, ours.payload, kept.payload):
        assert found.tolist() == [0.0, 1.0, 2.0]
    assert there.tolist() == alone.tolist() == [2.0, 2.0]
    with pytest.raises(BufferError, match="gives copies"):
        ours.__dlpack__(copy=False)


def test_convert_a_module():
    """Parameters and buffers become ours, shared ones stay shared, what is kept is kept."""
    plain = nn.Sequential(
        nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3, bias=False), nn.GRU(3, 2)
    )
    plain[2].weight = plain[0].weight
    plain[0].bias.requires_grad_(False)
    ours = copy.deepcopy(plain)
    ours[0].weight.grad = torch.ones(3, 3)
    tjt.convert(ours)
    assert all(isinstance(t, tjt.Tensor) for t in ours.state_dict().values())
    assert all(isinstance(p, nn.Parameter) for p in ours.parameters())
    assert ours[2].weight is ours[0].weight
    assert ours[3]._flat_weights[0] is ours[3].weight_ih_l0
    assert not ours[0].bias.requires_grad
    assert ours[0].weight.grad.tolist() == [[1.0] * 3] * 3
    assert tjt.convert(ours) is ours
    x = torch.linspace(0, 1, 6).view(2, 3)
    torch.testing.assert_close(tjt.to_torch(ours[:3](tjt.from_torch(x))), plain[:3](x))


def test_convert_a_tree():
    """Tensors in dicts and lists; one that occurs twice is one."""
    t = torch.ones(2)
    tree = tjt.convert({"a": [t, 3], "b": (t, None)})
    assert tree["a"][0] is tree["b"][0]
    assert tree["a"][1] == 3
    leaf = tjt.convert([torch.ones(2, requires_grad=True)])[0]
    assert leaf.is_leaf
    assert leaf.requires_grad


def through_a_file(x):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    "again", [through_a_file, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_keep(again):
    """Files, pickle and deepcopy keep numbers, leaves, types, units and shared memory."""
    base = tjt.from_jax(jnp.arange(6.0).reshape(2, 3))
    parameter = nn.Parameter(tjt.from_jax(jnp.ones(2)))
    parameter.note = "kept"
    metres = tjt.from_jax(tj.Quantity(jnp.arange(3.0), "m"))
    kinds = [tj.Diagonal(jnp.ones(3)), tj.Kronecker(tj.Diagonal(jnp.ones(2)), jnp.eye(2))]
    saved = {"base": base, "row": base.t()[1], "parameter": parameter, "metres": metres}
    loaded = again(saved | {"kinds": [tjt.from_jax(k) for k in kinds], "conj": base + 1j})
    assert loaded["row"].tolist() == [1.0, 4.0]
    assert loaded["row"].stride() == (3,)
    loaded["base"].mul_(2)
    assert loaded["row"].tolist() == [2.0, 8.0]
    assert base[0, 1].item() == 1.0
    assert isinstance(loaded["parameter"], nn.Parameter)
    assert loaded["parameter"].note == "kept"
    assert loaded["metres"].payload.unit == metres.payload.unit
    for kind, found in zip(kinds, loaded["kinds"], strict=True):
        assert type(found.payload) is type(kind)
        np.testing.assert_array_equal(found.payload.to_dense(), kind.to_dense())


def test_copies_of_one_tensor():
    """`copy.copy` shares memory, `deepcopy` does not; a result of autograd is not deep-copied."""
    x = tjt.from_jax(jnp.zeros(2), requires_grad=True)
    (x * 2).sum().backward()
    shallow, deep = copy.copy(x), copy.deepcopy(x)
    assert deep.grad.tolist() == [2.0, 2.0]
    assert deep.is_leaf
    assert deep.requires_grad
    with torch.no_grad():
        x.add_(1)
    assert shallow.tolist() == [1.0, 1.0]
    assert deep.tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(x * 2)


def test_a_state_dict_goes_through_a_file_and_from_plain_modules():
    plain, ours = nn.Linear(3, 2), tjt.convert(nn.Linear(3, 2))
    ours.load_state_dict(tjt.convert(plain.state_dict()))
    again = copy.deepcopy(ours)
    again.weight.data.zero_()
    again.load_state_dict(through_a_file(ours.state_dict()))
    x = torch.ones(1, 3)
    torch.testing.assert_close(tjt.to_torch(again(tjt.from_torch(x))), plain(x))


def test_data_loader():
    """The default collate stacks our tensors."""
    rows = [(tjt.from_jax(jnp.full(2, float(n))), n) for n in range(4)]
    batches = list(DataLoader(rows, batch_size=2))
    assert [type(x) for x, _ in batches] == [tjt.Tensor] * 2
    assert batches[1][0].tolist() == [[2.0, 2.0], [3.0, 3.0]]


@pytest.mark.parametrize("payload", [jnp.ones(2), tj.Diagonal(jnp.ones(2)), tj.quantity(1.0, "m")])
def test_a_worker_of_a_data_loader_raises(payload, monkeypatch):
    """By our error, which says what to give it; it is forked, which JAX does not survive."""
    monkeypatch.setattr(torch.utils.data._utils.worker, "_worker_info", object())
    with pytest.raises(tjt.TensorError, match="plain tensors in the dataset"):
        torch.utils.data.default_collate([tjt.from_jax(payload)])


def test_revert_is_the_inverse_of_convert():
    """Also of gradients, of a parameter that occurs twice, and of a state for a plain module."""
    plain = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)).double()
    plain[2].weight = plain[0].weight
    plain[1].weight.requires_grad_(False)
    x = torch.randn(4, 3, dtype=torch.float64)
    plain(x).square().sum().backward()
    before = {n: (p, p.grad) for n, p in plain.named_parameters()}
    again = tjt.revert(tjt.convert(plain))
    assert again[0].weight is again[2].weight
    for name, q in again.named_parameters():
        p, gradient = before[name]
        assert type(q) is nn.Parameter
        assert p is not q
        assert p.requires_grad is q.requires_grad
        torch.testing.assert_close(p, q)
        assert gradient is q.grad is None or torch.equal(gradient, q.grad)
    fresh = nn.Linear(3, 2)
    ours = tjt.convert(nn.Linear(3, 2))
    with pytest.raises(RuntimeError, match="revert"):
        fresh.load_state_dict(ours.state_dict())
    fresh.load_state_dict(tjt.revert(ours.state_dict()))
    torch.testing.assert_close(fresh.weight, tjt.to_torch(ours.weight))


def test_revert_of_structure_and_units():
    layer = tjt.nn.StructuredLinear(tj.Diagonal(jnp.array([1.0, 2.0])))
    layer(tjt.from_jax(jnp.ones(2))).sum().backward()
    with pytest.raises(tjt.TensorError, match="stored coordinates"):
        tjt.revert(layer)
    layer.zero_grad()
    with tj.densify("allow"):
        assert tjt.revert(layer).weight.tolist() == [[1.0, 0.0], [0.0, 2.0]]
    with pytest.raises(tj.UnitError):
        tjt.revert({"length": tjt.from_jax(tj.quantity(1.0, "m"))})


def test_hints_name_the_factories_that_help():
    x = tjt.from_torch(torch.tensor([0.3, -0.1, 0.2]))
    for made, value, wanted in (
        (torch.empty(2, 3), x, r"factories\(\)"),
        (torch.full((2, 3), 7), x.argsort(), r"factories\(integers=True\)"),
    ):
        with pytest.raises(tjt.TensorError, match=wanted):
            made[0] = value


def test_under_a_trace():
    """Tensors over tracers are made, printed and read; their numbers are not there."""

    @jax.jit
    def f(x):
        t = tjt.from_jax(x)
        assert "Tracer" in repr(t)
        with pytest.raises(tjt.TensorError, match="while JAX traces"):
            t.numpy()
        t[0] = 7.0
        return tjt.to_jax(t * 2)

    assert f(jnp.ones(2)).tolist() == [14.0, 2.0]
