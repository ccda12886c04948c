"""Reuse of MLIR's contexts, as in JAX 0.12; JAX 0.10 makes a new one for every program.

A context takes 9 ms to make, longer than writing most programs of tests.
"""

import threading

from jax.interpreters import mlir


def reuse_contexts(times):
    """Let a thread write several programs into one context, as JAX 0.12 does by itself.

    A program that is compiled during the writing of another has its own context: otherwise
    copies of it would be put into the other.
    """
    make, mine = mlir.make_ir_context, threading.local()
    context_class = make.__globals__["ir"].Context

    def is_writing():
        try:
            return context_class.current is not None
        except ValueError:
            return False

    def make_ir_context():
        if is_writing():
            return make()
        mine.left = getattr(mine, "left", 0) - 1
        if mine.left < 0:
            mine.context, mine.left = make(), times - 1
        return mine.context

    make.__globals__["make_ir_context"] = make_ir_context
