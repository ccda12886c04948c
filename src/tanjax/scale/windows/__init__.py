"""Windows: the magnitudes for which a plan is known to lose nothing, and the flag that checks them.

Later calls have other numbers, and a look at each of them costs more than the call. So windows on
the magnitudes of arguments are drawn around the numbers of a look (`find`). Inside of them bounds
say that no number overflows, and that a number that underflows does no harm. Where bounds say too
little, a few values inside of the program have windows, too; the program checks those itself and
returns a flag (`flagged`).
"""

from ._extremes import extremes as extremes, magnitudes_in as magnitudes_in
from ._find import Windows as Windows, find as find
from ._flag import flagged as flagged, limits_of as limits_of
