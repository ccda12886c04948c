"""The source of numbers for torch's random operations: its generator, or a key of JAX.

JAX draws from keys, torch from a generator with a state. Each random operation takes 64 bits from
torch's generator as its key. So `torch.manual_seed` and `generator=` work, and a state saved and
restored gives the same numbers again. The numbers are JAX's and differ from torch's.

    torch.manual_seed(0)
    F.dropout(t)  # the same at each run

Under a trace of JAX (`jax.jit`) such a draw would happen once, while tracing, and the compiled
program would repeat it at each call. So you must give a key there:

    with tjt.random_key(key):
        torch.func.functional_call(model, params, x)

Sharp edges. Within `random_key` torch's default generator has a fixed start and counts the draws;
its state is restored afterwards. So all numbers follow from the key alone. A block that runs again
from a restored state (`torch.utils.checkpoint`) draws the same numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tanjax._compat import get_opaque_trace_state
from tanjax._errors import NoRuleError, message
from tanjax_torch._typing import Numbers, RandomKey

_GIVEN: ContextVar[tuple[bool, list[jax.Array]] | None] = ContextVar("key", default=None)
_HALF = 2**31
with jax.ensure_compile_time_eval():
    _OUTSIDE = get_opaque_trace_state()


def under_trace() -> bool:
    """True if JAX is tracing now, even if no argument is a tracer."""
    return bool(get_opaque_trace_state() != _OUTSIDE)


@contextlib.contextmanager
def random_key(key: jax.Array) -> Iterator[None]:
    """Let random operations of torch draw from a key, also under a trace.

    **Arguments:** `key`: of `jax.random.key`; traced, as a rule: an argument of the function that
    is compiled.
    """
    before = torch.get_rng_state()
    torch.manual_seed(0)
    token = _GIVEN.set((True, [key]))
    try:
        yield
    finally:
        _GIVEN.reset(token)
        torch.set_rng_state(before)


@contextlib.contextmanager
def drawn_key(key: jax.Array) -> Iterator[None]:
    """Set the key inside of a kernel, drawn by its caller; each further draw splits it."""
    token = _GIVEN.set((False, [key]))
    try:
        yield
    finally:
        _GIVEN.reset(token)


def next_key(generator: torch.Generator | None = None) -> RandomKey:
    """A new key: two words of 32 bits, which `jax.random` takes as a key.

    **Raises:** `NoRuleError` under a trace of JAX without `random_key`.
    """
    given = _GIVEN.get()
    if given is None:
        _refuse_a_trace()
        return _bits(generator)
    counted, box = given
    if not counted:
        box[0], key = jax.random.split(box[0])
        return key
    key = box[0]
    for word in _bits(generator):
        key = jax.random.fold_in(key, word)
    return key


def as_state(key: RandomKey) -> jax.Array:
    """A key in the form that a state of torch's generator has, for a graph to hand on."""
    words = jax.random.key_data(key).reshape(-1)
    data = jax.lax.bitcast_convert_type(words, np.uint8).reshape(-1)
    return jnp.zeros(torch.get_rng_state().shape, np.uint8).at[: data.size].set(data)


def key_of(state: jax.Array) -> jax.Array:
    """The key that `as_state` has put into a state."""
    like = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    data = state[: 4 * like.size].reshape(*like.shape, 4)
    return jax.random.wrap_key_data(jax.lax.bitcast_convert_type(data, like.dtype))


def _bits(generator: torch.Generator | None) -> Numbers:
    with torch._C._DisableTorchDispatch():  # skips a mode of the caller's: 0.3 us
        drawn = torch.randint(-_HALF, _HALF, (2,), dtype=torch.int32, generator=generator)
        return drawn.numpy().view(np.uint32)


def _refuse_a_trace() -> None:
    if under_trace():
        raise NoRuleError(
            message(
                "a random operation of torch under a trace of JAX would be drawn once, and give "
                "the same numbers at each call.",
                hint="`with tjt.random_key(key):` around it, with a key that is an argument.",
            )
        )
