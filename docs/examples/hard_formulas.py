"""Formulas of physics whose numbers do not fit in float32, bfloat16 or float16, and what comes out.

    python docs/examples/hard_formulas.py                # the first two of each subject
    python docs/examples/hard_formulas.py Saha Casimir   # those whose names contain these words
    python docs/examples/hard_formulas.py all            # two minutes

Each formula is computed with its gradient by `tj.jit`, by plain JAX in the same dtype, and in
float64. Exits with an error if one of `tj.jit` is off by more than 8 units in the last place. The
formulas are in the package of the same name, one module for each subject.
"""

import sys

from hard_formulas import ALLOWED, FORMULAS, SUBJECTS, table
from rich.console import Console


def chosen(words):
    """The formulas that people ask for."""
    if not words:
        return [formula for formulas in SUBJECTS.values() for formula in formulas[:2]]
    if words == ["all"]:
        return FORMULAS
    return [f for f in FORMULAS if any(word.lower() in f.name.lower() for word in words)]


def main(words):
    formulas = chosen(words)
    if not formulas:
        sys.exit(f"no formula has a name with {' or '.join(words)}")
    shown, wrong = table(formulas)
    Console().print(shown)
    if wrong:
        sys.exit(f"more than {ALLOWED:.0f} units in the last place: {'; '.join(wrong)}")


if __name__ == "__main__":
    main(sys.argv[1:])
