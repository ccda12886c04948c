"""The densify policy: whose it is, and where its warning points."""

import threading

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj
from tanjax.arrays import densify_mode


@tj.register_array_type
class Loud(tj.AbstractArray):
    points: jax.Array

    def to_dense(self):
        return self.points[:, None] * jnp.ones(3)


def modes_elsewhere():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(densify_mode()))
    thread.start()
    thread.join()
    return seen[0]


def test_a_context_governs_its_own_thread():
    assert densify_mode() == modes_elsewhere() == "warn"
    with tj.densify("error"):
        assert (densify_mode(), modes_elsewhere()) == ("error", "warn")
        with tj.densify("allow"):
            assert (densify_mode(), modes_elsewhere()) == ("allow", "warn")
        assert densify_mode() == "error"
        tj.densify("allow")  # a call inside a context lasts as long as the context
        assert (densify_mode(), modes_elsewhere()) == ("allow", "warn")
    assert densify_mode() == "warn"


def test_a_call_governs_all_threads():
    try:
        tj.densify("error")
        assert densify_mode() == modes_elsewhere() == "error"
    finally:
        tj.densify("warn")


@pytest.mark.parametrize("compiled", [False, True])
def test_the_warning_names_the_line_of_the_user(compiled):
    """Through operators, rules, and JAX's tracing of both."""
    kind = tj.register_array_type(
        type("Local", (tj.AbstractArray,), {"__annotations__": {"points": jax.Array},
             "to_dense": Loud.to_dense})
    )  # fmt: skip
    run = lambda a: a @ jnp.ones(3)
    line = run.__code__.co_firstlineno
    with pytest.warns(tj.DensifyWarning) as caught:
        (jax.jit(run) if compiled else run)(kind(jnp.ones(2)))
    assert [(w.filename, w.lineno) for w in caught] == [(__file__, line)]
    with tj.densify("error"), pytest.raises(tj.NoRuleError, match="Local"):  # warned or not
        run(kind(jnp.ones(2)))
