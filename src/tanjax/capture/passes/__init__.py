"""Passes: interpreters that rewrite captured programs, and one that measures them.

    tj.jit(f, passes=[tj.programs.passes.share_factorizations])

Never applied unasked. Each agrees with the function to rounding, values and derivatives, and leaves
a program alone in which it finds nothing to do.
"""

from ._cost import CostRow as CostRow, CostTable as CostTable, cost as cost
from ._flops import Cost as Cost
from ._pass import Pass as Pass
from ._promote import promote as promote
from ._reassociate import reassociate as reassociate
from ._share import share_factorizations as share_factorizations
