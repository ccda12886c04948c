"""`jax.random`, opened to quantities: the same names and signatures.

What is drawn between quantities is one; what a function draws without any is a pure number.
"""

from .frontends import mirror

__getattr__, __dir__ = mirror(__name__, "random", "jax.random")
