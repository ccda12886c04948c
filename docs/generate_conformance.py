"""Write the page of the functions that take quantities through each front door, by calling them.

Each cell comes from calls in `tests/support/calls`. The same numbers go through tanjax in mixed
units, and through plain JAX in SI. The cell is right if value and unit agree.

    python docs/generate_conformance.py           # write docs/pages/conformance.md
    python docs/generate_conformance.py --check   # fail if the page is stale
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "pages" / "conformance.md"
sys.path.insert(0, str(ROOT / "tests" / "support"))

import jax  # noqa: E402
from generated_parts import renewed, write_or_check  # noqa: E402

from calls import DOORS, GROUPS, SINGLE_VERSION, raw  # noqa: E402
from tanjax.frontends.signatures import TABLES  # noqa: E402

RIGHT, ABSENT = "✓", "·"
HEADINGS = {
    "tanjax": "`tanjax`",
    "NumPy": "`np.f(q)`",
    "Python": "operator, method",
    "lift": "`tj.lift`",
}

VERSION = "The last column was measured with JAX {}."


def signature(table, name):
    """Return the unit signature in a table cell."""
    entry = TABLES[table][name].replace("!", "").removesuffix(" kept")
    return "*special*" if entry == "special" else f"`{entry.replace('|', '')}`"


def cell(calls, door, outcome):
    """Return the mark of all calls of a function through a door, or a word for a failure."""
    found = [outcome(call, door) for call in calls]
    known = [text for text in found if text is not None]
    if not known:
        return ABSENT
    failures = [text for text in known if text]
    return kind(failures[0]) if failures else RIGHT


def kind(failure):
    """Return the word for a failure."""
    if not failure.startswith("error"):
        return "differs"
    return "refused" if "UnitError" in failure else "needs values"


def by_function(calls):
    """Return the calls of a group by function, if every supported JAX has the function."""
    functions = {}
    for call in calls:
        if str(call) not in SINGLE_VERSION:
            functions.setdefault(str(call), []).append(call)
    return functions


def group_table(title, calls, outcome):
    """Return the table of a group of functions."""
    lines = [f"## {title}\n", f"| function | units | {' | '.join(HEADINGS.values())} |"]
    lines.append("| --- " * (2 + len(DOORS)) + "|")
    for name, several in by_function(calls).items():
        table, _, function = name.rpartition(".")
        cells = [cell(several, door, outcome) for door in DOORS]
        lines.append(f"| `{name}` | {signature(table, function)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def refused():
    """Return the list of functions that refuse quantities, by reason."""
    reasons = {}
    for table, entries in TABLES.items():
        for name, entry in entries.items():
            if entry.startswith("refuse"):
                reason = entry.partition(":")[2].strip()
                reasons.setdefault(reason, []).append(f"`{table}.{name}`")
    return "\n".join(f"- {reason}: {', '.join(names)}." for reason, names in reasons.items()) + "\n"


def others():
    """Return the list of functions with a signature but without a call."""
    called = {str(call) for calls in GROUPS.values() for call in calls}
    lines = []
    for table, entries in TABLES.items():
        names = [
            f"`{name}`"
            for name, entry in entries.items()
            if (entry == "special" or "->" in entry) and f"{table}.{name}" not in called
        ]
        if names:
            lines.append(f"- `{table}`: {', '.join(names)}.")
    return "\n".join(lines) + "\n"


def version():
    """Return the line with the version of JAX, which determines primitives of functions."""
    return VERSION.format(".".join(jax.__version__.split(".")[:2]))


def stale(text, committed):
    """True if the committed page differs by more than the version of JAX explains."""
    if version() in committed:
        return text != committed
    return without_last_column(text) != without_last_column(committed)


def without_last_column(text):
    """Return the page without the parts that differ between versions of JAX."""
    text = re.sub(VERSION.format(r"[\d.]+"), "", text)
    return re.sub(r"^(\| .*\|) [^|]* \|$", r"\1", text, flags=re.MULTILINE)


def measure(call, door):
    """Return the failure of a call through a door: empty if right, `None` if the door lacks it."""
    function = DOORS[door](call)
    return None if function is None or raw(call) is None else call.wrong(function)


def page(outcome=measure):
    """Return the text of the page."""
    calls = [c for group in GROUPS.values() for c in group if str(c) not in SINGLE_VERSION]
    counts = f"{len(calls)} calls of {len({str(c) for c in calls})} functions. {version()}\n"
    tables = "\n".join(group_table(title, group, outcome) for title, group in GROUPS.items())
    parts = {"counts": counts, "tables": tables, "refused": refused(), "others": others()}
    return renewed(PAGE, parts)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_dtype_promotion", "strict")  # as the tests
    write_or_check(PAGE, page(), sys.argv[1:], stale)
