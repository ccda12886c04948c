"""Units of measurement, without arrays: algebra, names, conversions.

    >>> from tanjax import units
    >>> units.unit("N m") == units.joule, units.conversion(units.km, units.m)
    (True, (1000.0, 1.0))

Every name of the catalogue is an attribute: `units.metre`, `units.km`, `units.solar_mass`.
"""

from typing import Any

from ._conversion import (
    add_units as add_units,
    conversion as conversion,
    convert as convert,
    is_step as is_step,
    subtract_units as subtract_units,
)
from ._dimension import Dimension as Dimension
from ._factor import Factor as Factor
from ._names import nearest_names as nearest_names
from ._parse import define as define, parse_quantity as parse_quantity, unit as unit
from ._unit import (
    Unit as Unit,
    coherent as coherent,
    one as one,
    set_quantity_hook as set_quantity_hook,
)

_MODULES = ("constants", "signatures", "systems")


def __getattr__(name: str) -> Any:
    """Return a unit by its name in the catalogue."""
    if name.startswith("__"):
        raise AttributeError(f"module 'tanjax.units' has no attribute {name!r}")
    if name in _MODULES:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    from . import _names

    found = _names.named(name)
    if found is None:
        near = _names.nearest_names(name)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise AttributeError(f"module 'tanjax.units' has no unit {name!r}{hint}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the functions of the module and the names of the catalogue that are identifiers."""
    from . import _names

    names = (name for name in _names.known_names() if name.isidentifier())
    return sorted({*globals(), *_MODULES, *names})
