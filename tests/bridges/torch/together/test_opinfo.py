"""A part of torch's OpInfo database through the bridge; and that the measure itself can fail.

The whole is `python tests/support/torch_opinfo.py`; its results are on the page of operations.
"""

from types import SimpleNamespace

import jax.numpy as jnp
import pytest

torch = pytest.importorskip("torch")

import torch_cases as cases
import torch_database as database
from tanjax.bridges import torch as tjt
from tanjax.bridges.torch import _registry
from tanjax.bridges.torch._decompositions import definition
from tanjax.bridges.torch._functional import functional_of
from tanjax.bridges.torch._registry import Entry, dense_entry

pytestmark = [
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
MISSING = {"aten._embedding_bag.default"}
"""Neither an entry nor a decomposition: `NoRuleError` by name. It only becomes smaller."""


def smallest(samples):
    """The sample with the fewest entries that has some."""

    def entries(sample):
        return sum(t.numel() for t in cases.tensors_of((sample.input, sample.args)))

    return min(samples, key=lambda s: (entries(s) == 0, entries(s)), default=None)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_smallest_sample_of_every_name_of_core_aten(part):
    wrong = []
    chosen = [op for op in database.database() if {op.aten_name, op.name} & database.core_names()]
    for op in chosen[part::PARTS]:
        backward = op.supports_autograd and torch.float32 in op.backward_dtypes
        dtype = torch.float32 if torch.float32 in op.dtypes else torch.int64
        sample = smallest(list(database.samples_of(op, dtype, backward, 0))[:8])
        if sample is None or database.is_random(op) or op.name in database.UNDEFINED:
            continue

        def call(first, args, kwargs, op=op):
            return op.gradcheck_wrapper(op.op, first, *args, **kwargs)

        answer, words = cases.answer_of(
            cases.check, call, sample, sample.output_process_fn_grad, backward, ties=True
        )
        if answer not in (None, cases.RIGHT) and op.name != "resize_":
            wrong.append((op.name, answer, words))
    assert not wrong


def served_by(op):
    """How an overload is served: by an entry, one of its functional operation, or torch's words."""
    functional = functional_of(op)
    if dense_entry(op):
        return "entry"
    if functional is not None and dense_entry(functional):
        return "derived"
    return (
        "decomposition" if definition(op) or (functional and definition(functional)) else "missing"
    )


def test_core_aten_is_covered():
    found = {str(op): served_by(op) for op in database.core_overloads()}
    left = set(found) - OF_TORCH - REFUSED
    assert {op for op in left if found[op] == "missing"} <= MISSING
    assert len(found) == 193
    assert sum(found[op] in ("entry", "derived") for op in left) >= 175


@pytest.fixture
def instead(monkeypatch):
    """Put another function in the place of an entry."""

    def put(op, function):
        monkeypatch.setitem(_registry.DENSE, op, Entry(function))
        _registry._forget()

    yield put
    monkeypatch.undo()
    _registry._forget()


def sample_of(x):
    return SimpleNamespace(input=x, args=(), kwargs={})


def sin(first, args, kwargs):
    return first.sin()


def answer(call, backward=True):
    x = torch.linspace(0.1, 1.0, 6).reshape(2, 3).requires_grad_(backward)
    return cases.answer_of(cases.check, call, sample_of(x), None, backward)[0]


def test_the_measure_sees_wrong_values_types_and_gradients(instead):
    key = aten.sin if aten.sin in _registry.DENSE else aten.sin.default
    assert answer(sin) == cases.RIGHT
    instead(key, lambda self: jnp.sin(self) * (1 + 1e-4))
    assert answer(sin) == cases.VALUE
    instead(key, lambda self: jnp.sin(self).astype(jnp.float64))
    assert answer(sin) == cases.TYPE
    instead(key, lambda self: jnp.sin(self).at[0, 0].set(jnp.nan))
    assert answer(sin) == cases.VALUE
    instead(key, jnp.sin)
    assert answer(sin) == cases.RIGHT
    cos = aten.cos if aten.cos in _registry.DENSE else aten.cos.default
    instead(cos, jnp.sin)
    assert answer(sin) == cases.GRADIENT
    assert answer(sin, backward=False) == cases.RIGHT


def test_the_measure_sees_cut_gradients_and_refusals():
    def only_ours(change):
        return lambda x, args, kwargs: change(x) if isinstance(x, tjt.Tensor) else x.sin()

    assert answer(only_ours(lambda x: x.detach().sin())) == cases.CUT
    assert answer(only_ours(lambda x: tjt.from_jax(x.payload).sin())) == cases.CUT
    assert answer(only_ours(lambda x: x.resize_(3)), backward=False) == cases.REFUSED
    assert answer(only_ours(lambda x: x.no_such_name())) == cases.RAISES
    assert answer(only_ours(lambda x: [x.sin(), x])) == cases.TYPE


def test_the_measure_sees_arguments_that_are_not_refused():
    def lenient(x, args, kwargs):
        return x.view(7) if not isinstance(x, tjt.Tensor) else x

    sample = sample_of(torch.ones(2, 3))
    assert cases.answer_of(cases.check_error, lenient, sample)[0] == cases.NOT_RAISED
    assert cases.answer_of(cases.check_error, lambda x, a, k: x.view(7), sample)[0] == cases.RIGHT
    assert cases.check_error(sin, sample) is None
