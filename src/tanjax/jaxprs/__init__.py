"""How a program is walked: which equations run jaxprs of their own, on what, and how often."""

from ._nested import (
    KINDS as KINDS,
    Kind as Kind,
    given as given,
    nested_jaxprs as nested_jaxprs,
    trips as trips,
)
