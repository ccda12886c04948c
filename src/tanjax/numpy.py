"""`jax.numpy`, opened to quantities and structured arrays: the same names and signatures.

The conformance table of the documentation shows how each function treats units.
"""

from .frontends import mirror

__getattr__, __dir__ = mirror(__name__, "numpy", "jax.numpy", ("linalg", "fft"))
