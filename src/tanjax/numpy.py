"""`jax.numpy`, opened to quantities and structured arrays: the same names and signatures.

What each function does to units is in the conformance table of the documentation.
"""

from .frontends import mirror

__getattr__, __dir__ = mirror(__name__, "numpy", "jax.numpy", ("linalg", "fft"))
