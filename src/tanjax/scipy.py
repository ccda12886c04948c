"""`jax.scipy`, opened to quantities: the same names and signatures."""

from .frontends import mirror, scipy_modules

__getattr__, __dir__ = mirror(__name__, "scipy", "jax.scipy", scipy_modules())
