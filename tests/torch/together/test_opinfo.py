"""Torch's OpInfo database through the bridge; and that the measure itself can fail.

All dtypes and samples are `python tests/support/torch_opinfo.py`; its results are on the page of
operations.
"""

from types import SimpleNamespace

import jax.numpy as jnp
import pytest

torch = pytest.importorskip("torch")

import tanjax as tj
import torch_opinfo as opinfo
from tanjax.bridges import torch as tjt
from tanjax_torch.table import _registry
from tanjax_torch.table._decompositions import definition
from tanjax_torch.table._functional import functional_of
from tanjax_torch.table._left import KINDS_OF

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
aten = torch.ops.aten

PARTS = 10
# Operations of core ATen that are no functions of tensors: torch answers them itself.
OF_TORCH = {
    "aten.sym_is_contiguous.default",
    "aten.sym_numel.default",
    "aten.sym_size.int",
    "aten.sym_storage_offset.default",
    "aten.sym_stride.int",
}
REFUSED = {"aten.resize_.default"}
# Torch defines an overload by another one, which has an entry.
ONE_OVERLOAD = {"var", "upsample_nearest2d", "upsample_bilinear2d", "_native_batch_norm_legit"}
MISSING = {"aten._embedding_bag.default"}
"""Neither an entry nor a decomposition: `NoRuleError` by name. It only becomes smaller."""


# `out=` is refused by name, or (`matrix_rank`) stays as it was: torch hands out a plain tensor.
WITHOUT_OUT = {"linalg.cholesky", "linalg.det", "linalg.eigvalsh", "linalg.inv", "linalg.lu_factor"}
WITHOUT_OUT |= {"linalg.slogdet", "linalg.svdvals", "linalg.matrix_rank", "lu", "msort"}
WITHOUT_OUT |= {"nn.functional.logsigmoid"}
LENIENT = {"empty_permuted"}  # sizes without a tensor
# Faults: `searchsorted` of nothing raises ZeroDivisionError, `nonzero_static` forgets `fill_value`.
FAULTS = {("searchsorted", 1), ("nonzero_static", 2)}


@pytest.mark.parametrize("part", range(PARTS))
def test_every_operation_is_torchs(part):
    """Samples in float32 with gradients, in place, with `out=`; arguments that torch refuses."""
    wrong = []
    for op in opinfo.database()[part::PARTS]:
        for mode, n, case in opinfo.cases_of(op, opinfo.spread(3), [torch.float32]):
            skipped = any(part in op.name for part in opinfo.UNSERVED)
            skipped |= op.name in {"out=": WITHOUT_OUT, "errors": LENIENT}.get(mode, ())
            skipped |= mode == "float32" and (op.name, n) in FAULTS
            answer, words = (None, "") if skipped else case()
            if answer not in (None, opinfo.RIGHT):
                wrong.append((op.name, mode, n, answer, words))
    assert not wrong


def served_by(op):
    """How an overload is served: by an entry, one of its functional operation, or torch's words."""
    functional = functional_of(op)
    if _registry.dense_entry(op):
        return "entry"
    if functional is not None and _registry.dense_entry(functional):
        return "derived"
    defined = definition(op) or (functional and definition(functional))
    return "decomposition" if defined else "missing"


def test_core_aten_is_covered():
    found = {str(op): served_by(op) for op in opinfo.core_overloads()}
    left = set(found) - OF_TORCH - REFUSED
    assert {op for op in left if found[op] == "missing"} <= MISSING
    assert len(found) == 193
    by_torch = {op.split(".")[1] for op in left if found[op] == "decomposition"}
    assert by_torch <= KINDS_OF.keys() | ONE_OVERLOAD


def test_operations_left_to_torch_have_no_entry_and_a_definition():
    for name in KINDS_OF:
        packet = getattr(aten, name)
        ops = [getattr(packet, n) for n in packet.overloads()]
        assert not any(_registry.dense_entry(op) for op in ops), name
        assert definition(ops[0]) is not None, name


def test_an_operation_left_to_torch_refuses_dtypes_that_torch_refuses():
    for name, x in (("relu", torch.ones(2, dtype=torch.bool)), ("gelu", torch.ones(2).long())):
        with pytest.raises(RuntimeError):
            getattr(aten, name)(x)
        with pytest.raises(tj.NoRuleError, match=name):
            getattr(aten, name)(tjt.from_torch(x))


@pytest.fixture
def instead(monkeypatch):
    """Put another function in the place of an entry."""

    def put(name, function):
        packet = getattr(aten, name)
        key = packet if packet in _registry.DENSE else packet.default
        monkeypatch.setitem(_registry.DENSE, key, _registry.Entry(function))
        _registry._forget()

    yield put
    monkeypatch.undo()
    _registry._forget()


def sin(first, args, kwargs):
    return first.sin()


def answer(call, backward=True):
    x = torch.linspace(0.1, 1.0, 6).reshape(2, 3).requires_grad_(backward)
    sample = SimpleNamespace(input=x, args=(), kwargs={})
    return opinfo.answer_of(opinfo.check, call, sample, None, backward)[0]


def test_the_measure_sees_wrong_values_types_and_gradients(instead):
    assert answer(sin) == opinfo.RIGHT
    instead("sin", lambda self: jnp.sin(self) * (1 + 1e-4))
    assert answer(sin) == opinfo.VALUE
    instead("sin", lambda self: jnp.sin(self).astype(jnp.float64))
    assert answer(sin) == opinfo.TYPE
    instead("sin", lambda self: jnp.sin(self).at[0, 0].set(jnp.nan))
    assert answer(sin) == opinfo.VALUE
    instead("sin", jnp.sin)
    assert answer(sin) == opinfo.RIGHT
    instead("cos", jnp.sin)
    assert answer(sin) == opinfo.GRADIENT
    assert answer(sin, backward=False) == opinfo.RIGHT


def test_the_measure_sees_cut_gradients_and_refusals():
    def only_ours(change):
        return lambda x, args, kwargs: change(x) if isinstance(x, tjt.Tensor) else x.sin()

    assert answer(only_ours(lambda x: x.detach().sin())) == opinfo.CUT
    assert answer(only_ours(lambda x: tjt.from_jax(x.payload).sin())) == opinfo.CUT
    assert answer(only_ours(lambda x: x.resize_(3)), backward=False) == opinfo.REFUSED
    assert answer(only_ours(lambda x: x.no_such_name())) == opinfo.RAISES
    assert answer(only_ours(lambda x: [x.sin(), x])) == opinfo.TYPE


def test_the_measure_sees_arguments_that_are_not_refused():
    def lenient(x, args, kwargs):
        return x.view(7) if not isinstance(x, tjt.Tensor) else x

    sample = SimpleNamespace(input=torch.ones(2, 3), args=(), kwargs={})
    found = opinfo.answer_of(opinfo.check_error, lenient, sample)[0]
    assert found == opinfo.NOT_RAISED
    assert opinfo.check_error(lambda x, a, k: x.view(7), sample) == opinfo.RIGHT
    assert opinfo.check_error(sin, sample) is None
