"""Formulas of physics with numbers that overflow or underflow float32, bfloat16 or float16.

Each stands as a scientist would write it, in SI. `SUBJECTS` has a list of formulas for each module,
`FORMULAS` has all of them. `cells` computes a formula with its gradient in a dtype.
"""

from . import astronomy, classics, plasmas, quanta, thermal
from .formula import DTYPES as DTYPES, Formula as Formula, form as form
from .measure import ALLOWED as ALLOWED, cells as cells, table as table, ulps as ulps

SUBJECTS = {
    module.__name__.rpartition(".")[2]: module.FORMULAS
    for module in (classics, astronomy, plasmas, quanta, thermal)
}
FORMULAS = [formula for formulas in SUBJECTS.values() for formula in formulas]
