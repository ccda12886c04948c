"""`jax.lax`, opened to quantities: the same names and signatures."""

from .dispatch import mirror

__getattr__, __dir__ = mirror(__name__, "lax", "jax.lax", ("linalg",))
