"""Write the page of formulas whose numbers overflow or underflow their dtype, by computing them.

    python docs/generate_hard_formulas.py           # write docs/pages/hard_formulas.md
    python docs/generate_hard_formulas.py --check   # fail if the page shows other formulas

The last digits of an error depend on the processor and the version of JAX, so `--check` ignores
them. `tests/scale/together/test_hard_formulas.py` tests that each error is at most 8.
"""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "pages" / "hard_formulas.md"
sys.path.append(str(DOCS / "examples"))

import jax  # noqa: E402
from generated_parts import renewed, write_or_check  # noqa: E402
from hard_formulas import DTYPES, FORMULAS, cells, form  # noqa: E402

HEAD = """\
| formula | | of | value: `tj.jit` | `jax.jit` | gradient: `tj.jit` | `jax.jit` |
| --- | --- | --- | --: | --: | --: | --: |
"""


def row(formula, dtype):
    value, slope = cells(formula, dtype)
    texts = (formula.name, formula.text, form(formula), *value.texts, *slope.texts)
    return f"| {' | '.join(texts)} |\n"


def page(row=row):
    """Return the text of the page."""
    version = ".".join(jax.__version__.split(".")[:2])
    parts = {"version": f"Measured with JAX {version} on a CPU.\n"}
    for dtype in DTYPES:
        rows = [row(formula, dtype) for formula in FORMULAS if dtype in formula.dtypes]
        parts[dtype.__name__] = HEAD + "".join(rows)
    return renewed(PAGE, parts)


def without_numbers(text):
    """Return the page without numbers, which differ between processors and versions of JAX."""
    text = re.sub(r"JAX [\d.]+", "", text)
    return re.sub(r"(\| [^|]*){4}\|$", "|", text, flags=re.MULTILINE)


def blank(formula, dtype):
    return f"| {formula.name} | {formula.text} | {form(formula)} | | | | |\n"


def stale(text):
    """True if a page shows other formulas than these."""
    return without_numbers(page(blank)) != without_numbers(text)


if __name__ == "__main__":
    is_check = "--check" in sys.argv
    differs = lambda _, committed: stale(committed)
    write_or_check(PAGE, page(blank if is_check else row), sys.argv[1:], differs)
