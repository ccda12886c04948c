"""`jax.random`, opened to quantities: the same names and signatures.

A sample between quantities is a quantity; a sample without any is a pure number.
"""

from .frontends import mirror

__getattr__, __dir__ = mirror(__name__, "random", "jax.random")
