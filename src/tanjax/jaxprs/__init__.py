"""The nested jaxprs of a program: which equations run them, on which operands, how often."""

from ._nested import (
    KINDS as KINDS,
    Kind as Kind,
    given as given,
    names_of as names_of,
    nested_jaxprs as nested_jaxprs,
    trips as trips,
)
