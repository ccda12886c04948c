"""Formulas of physics with numbers that overflow or underflow their dtype, and their results.

    python docs/examples/hard_formulas.py                # the first two of each subject
    python docs/examples/hard_formulas.py Saha Casimir   # those whose names contain these words
    python docs/examples/hard_formulas.py all            # two minutes

The script computes each formula with its gradient by `tj.jit`, by plain JAX in the same dtype, and
in float64. It exits with an error if a result of `tj.jit` is off by more than 8 units in the last
place. The formulas are in the package of the same name, one module for each subject.
"""

import sys

from hard_formulas import ALLOWED, FORMULAS, SUBJECTS, table
from rich.console import Console


def chosen(words):
    """Return the formulas that the arguments select."""
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
