"""Layer 12: bridges for quantities to libraries around JAX; each is imported on first use.

`tanjax.bridges.diffrax`, `.lineax`, `.matfree`, `.matplotlib`, `.optax`, `.optimistix`, `.scipy`,
`.torch`. Equinox needs no bridge: a quantity is a pytree, and a field of a Module like any other.
"""

import importlib

_BRIDGES = ("diffrax", "lineax", "matfree", "matplotlib", "optax", "optimistix", "scipy", "torch")


def __getattr__(name: str) -> object:
    """Import a bridge, and with it its library, on request."""
    if name in _BRIDGES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(_BRIDGES)
