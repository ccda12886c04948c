"""Agreement of several processes about a plan.

Processes that run one program on many hosts must take the same decisions. If two of them run
different programs, each waits for the other in a collective forever. So they compare plans before
they use one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tanjax._typing import Primal

from .numbers._hosts import Spread

if TYPE_CHECKING:
    from ._plan import Plan


def agreed(ask: Callable[[], Plan], leaves: Sequence[Primal]) -> Plan:
    """Return the plan of this process, after checking that all processes made the same plan.

    **Arguments:** `ask`: makes a plan. It depends on no clock, so equal numbers give equal plans.
    `leaves`: its arguments; some are spread over several hosts.
    **Raises:** the error of `ask`, if all processes fail; `RuntimeError` if plans differ.
    """
    array = next(x.array for x in leaves if type(x) is Spread)
    plan: Any = None
    failure: Exception | None = None
    try:
        plan = ask()
    except Exception as error:  # raised after the comparison: the others would wait forever
        failure = error
    if not _is_common(0 if plan is None else _digest(plan), array.sharding):
        raise RuntimeError("the processes made different plans.") from failure
    if failure is not None:
        raise failure
    return plan


def _digest(plan: Plan) -> int:
    """Return a number that two plans share if they are the same program, used in the same way."""
    graph = plan.graph
    what = (
        (plan.identity, plan.method, *plan.exponents[:2]),
        [sorted(nodes) for nodes in plan.exponents[2:]],
        (plan.is_estimate, plan.is_confirmed, plan.expected, plan.has_effects),
        [node.primitive for node in graph.walk()],
        [value.restored for value in graph.values],
    )
    return 1 + zlib.crc32(repr(what).encode()) % (2**31 - 1)


def _is_common(number: int, sharding: Any) -> bool:
    """True if all processes that hold a part of an array have the same number."""
    devices = sorted(sharding.device_set, key=lambda d: d.id)
    each = NamedSharding(Mesh(np.array(devices), ("all",)), PartitionSpec("all"))
    mine = np.full(1, number, np.int32)
    numbers = jax.make_array_from_callback((len(devices),), each, lambda _: mine)
    return bool(_all_equal(numbers))


@jax.jit
def _all_equal(numbers: jax.Array) -> jax.Array:
    return jnp.max(numbers) == jnp.min(numbers)
