"""Write the page of formulas whose numbers do not fit in their dtype, by computing them.

    python docs/generate_hard_formulas.py           # write docs/pages/hard_formulas.md
    python docs/generate_hard_formulas.py --check   # fail if the page shows other formulas

The last digits of an error depend on the processor and the version of JAX, so that `--check`
compares all but these numbers; that each is at most 8 is tested by
`tests/scale/together/test_hard_formulas.py`.
"""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "pages" / "hard_formulas.md"
sys.path.append(str(DOCS / "examples"))

import jax  # noqa: E402
from hard_formulas import ALLOWED, DTYPES, FORMULAS, cells, form  # noqa: E402

INTRODUCTION = """\
# Hard formulas

Formulas of physics as they are written in SI, in float32, bfloat16 and float16. Written by
`docs/generate_hard_formulas.py` from the formulas in `docs/examples/hard_formulas/`, measured with
JAX {version} on a CPU; `python docs/examples/hard_formulas.py Saha Casimir` prints some of them.

Each cell is the largest error of the value or of the gradient by all arguments, in units in the
last place of the dtype: by `tj.jit` (at most {allowed:.0f} in every cell, which is tested), and by
`jax.jit` of the same numbers in the same dtype, where `inf`, `nan` and `0` say what comes out
instead. The reference is float64. It takes the arguments exactly as they are after rounding to the
dtype, and constants as they were written.

*Quantities* may hold numbers that their dtype cannot, because they carry a power of two; the
argument of 2·10³⁰ kg in float16 is one. *Plain* are arrays without unit, whose results must fit in
the dtype, with Python's numbers as constants: also those of the units that the text names.

- A formula may multiply the relative error of its constants: the Boltzmann factor does by E/kT. The
  arguments are such that this is about 3; at E/kT = 40 nobody can have 8 units in float16, because
  rounding `k` alone costs 20.
- Grids of occupations have an entry in the tail, where exp(E/kT) is 10³⁵⁰: it and its gradient are
  0 in every dtype, and the other entries must not suffer from it. No grid is symmetric about its
  level, and none has an entry at the peak of a spectrum: gradients there are what is left of terms
  that cancel, and correctly rounded arithmetic without any limit of exponents is 14 units off.
- The chain of 240 roundings errs by itself: correctly rounded arithmetic without any limit of
  exponents is off by 6 units in float32, 3 in bfloat16 and 7 in float16 from the same numbers.
- Where plain JAX is right, as in `jax.nn.softmax`, `tj.jit` runs the very same program.
"""

HEAD = """\
## {dtype}

| formula | | of | value: `tj.jit` | `jax.jit` | gradient: `tj.jit` | `jax.jit` |
| --- | --- | --- | --: | --: | --: | --: |
"""


def row(formula, dtype):
    value, slope = cells(formula, dtype)
    texts = (formula.name, formula.text, form(formula), *value.texts, *slope.texts)
    return f"| {' | '.join(texts)} |\n"


def page(row=row):
    """The text of the page."""
    version = ".".join(jax.__version__.split(".")[:2])
    parts = [INTRODUCTION.format(version=version, allowed=ALLOWED)]
    for dtype in DTYPES:
        rows = [row(formula, dtype) for formula in FORMULAS if dtype in formula.dtypes]
        parts.append(HEAD.format(dtype=dtype.__name__) + "".join(rows))
    return "\n".join(parts)


def without_numbers(text):
    """The page without what differs between processors and versions of JAX."""
    text = re.sub(r"JAX [\d.]+", "", text)
    return re.sub(r"(\| [^|]*){4}\|$", "|", text, flags=re.MULTILINE)


def stale(text):
    """Whether a page is of other formulas than these."""
    blank = lambda formula, dtype: (
        f"| {formula.name} | {formula.text} | {form(formula)} | | | | |\n"
    )
    return without_numbers(page(blank)) != without_numbers(text)


def main(arguments):
    if "--check" not in arguments:
        PAGE.write_text(page())
    elif stale(PAGE.read_text()):
        sys.exit(f"{PAGE.name} is stale: run `python docs/generate_hard_formulas.py`.")


if __name__ == "__main__":
    main(sys.argv[1:])
