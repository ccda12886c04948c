"""Windows: magnitudes for which a plan certainly loses no number, and the flag that checks them.

Later calls have other numbers, and a look at each of them costs more than the call. So `find` draws
windows on the magnitudes of arguments around the numbers of a look. Inside the windows, bounds
prove that no number overflows, and that underflow does no harm. If bounds prove too little, a few
values inside the program have windows, too. The program checks these itself and returns a flag
(`flagged`).
"""

from ._extremes import extremes as extremes, magnitudes_in as magnitudes_in
from ._find import Windows as Windows, find as find
from ._flag import flagged as flagged, limits_of as limits_of
