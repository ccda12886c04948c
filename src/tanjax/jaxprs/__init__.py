"""The nested jaxprs of a program: which equations run them, on which operands, how often."""

from ._depends import Depends as Depends
from ._nested import (
    CALLS as CALLS,
    KINDS as KINDS,
    LOOPS as LOOPS,
    Branches as Branches,
    Kind as Kind,
    Loop as Loop,
    given as given,
    kind_of as kind_of,
    names_of as names_of,
    nested_jaxprs as nested_jaxprs,
    opened as opened,
    reducer as reducer,
    trips as trips,
    with_branches as with_branches,
)
from ._walk import Nested as Nested, Walk as Walk
