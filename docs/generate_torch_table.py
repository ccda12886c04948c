"""Write the page of torch's operations from a run of its OpInfo database through the bridge.

python tests/support/torch_opinfo.py --samples 6 --json docs/torch_operations.json
python docs/generate_torch_table.py           # write docs/pages/torch_operations.md
python docs/generate_torch_table.py --check   # fail if the page is stale
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "pages" / "torch_operations.md"
DATA = HERE / "torch_operations.json"
GROUPS = {
    "core": "Names of core ATen",
    "reach": "Functions that reach core ATen",
    "more": "Everything else",
}
# Answers from best to worst, after `right`.
REFUSED = ("refused", "raises", "too slow")
WRONG = ("not raised", "wrong type", "wrong value", "wrong gradient", "cut gradient")


HEAD = """# Torch's operations, measured

Look up here whether an operation of torch works on a `tjt.Tensor`. Torch tests itself with OpInfo,
a database of operations and sample inputs. Here every operation runs twice, on plain torch tensors
and on `tjt.Tensor`s of the same numbers. The run compares values, dtypes, sizes and the gradients
of a random cotangent.

| column | meaning |
| --- | --- |
| right | everything equals torch's result; if torch raises, so do we |
| refused | tanjax raises and names the missing feature |
| raises | another error |
| wrong | a value, dtype, size or gradient differs, or wrong input does not raise |
| cut | torch has a gradient and tanjax has none |

A case is one sample input in one dtype:

- float32 and float64 forward and backward, int64, bool and complex64 forward;
- the in-place and the `out=` variant of the first sample;
- each of the database's error inputs.

Numbers may differ by 2e-5 in float32 and 1e-9 in float64 of the largest entry, or of 0.01. If
float32 differs by more, torch in float64 judges. For random and undefined results the run compares
dtypes and sizes.

*Names of core ATen* have this tag in torch. *Functions that reach core ATen* have other names, and
consist of core ATen and of operations that `torch.export` lowers to it. `--group more` measures the
rest of the database: special functions, factorizations, random numbers.

torch {torch}, JAX {jax}, Python {python}, on a CPU:

```text
python tests/support/torch_opinfo.py --group {group} --samples {samples} \\
    --json docs/torch_operations.json
python docs/generate_torch_table.py
```
"""


def counted(op):
    """Return the number of cases of an operation with each answer."""
    sums = {}
    for counts in op["counts"].values():
        for answer, n in counts.items():
            sums[answer] = sums.get(answer, 0) + n
    return sums


def total(ops):
    """Return the sums of `counted` over operations."""
    sums = {}
    for op in ops:
        for answer, n in counted(op).items():
            sums[answer] = sums.get(answer, 0) + n
    return sums


def cells(sums):
    """Return the cells of a row: cases, right, refused, raises, wrong and cut."""
    wrong = sum(sums.get(a, 0) for a in WRONG[:-1])
    raises = sums.get("raises", 0) + sums.get("too slow", 0)
    numbers = [
        sums.get("right", 0),
        sums.get("refused", 0),
        raises,
        wrong,
        sums.get("cut gradient", 0),
    ]
    return [str(sum(numbers)), *(str(n) if n else "" for n in numbers)]


def remark(op):
    """Return the worst case of an operation, in words."""
    order = (*REFUSED, *WRONG)
    found = sorted(op["wrong"], key=lambda w: order.index(w[2]))
    if not found:
        return ""
    mode, _, answer, words = found[-1]
    return f"{mode}: {answer}: {words}".replace("|", "\\|").replace("\n", " ")[:160]


def row(columns):
    """Return a line of a table."""
    return "| " + " | ".join(columns) + " |"


def page(data):
    """Return the text of the page."""
    ops = data["ops"]
    groups = {group: words for group, words in GROUPS.items() if _in(ops, group)}
    lines = [HEAD.format(**data["options"], **data["versions"])]
    lines += [
        "## Totals",
        "",
        row(["", "operations", "cases", "right", "refused", "raises", "wrong", "cut", "right, %"]),
    ]
    lines += [row(["---"] + ["---:"] * 8)]
    for group, words in groups.items():
        here = _in(ops, group)
        sums = total(here)
        share = 100 * sums.get("right", 0) / max(1, sum(sums.values()))
        lines.append(row([words, str(len(here)), *cells(sums), f"{share:.2f}"]))
    for group, words in groups.items():
        lines += [
            "",
            f"## {words}",
            "",
            row(["operation", "cases", "right", "refused", "raises", "wrong", "cut", "worst case"]),
        ]
        lines.append(row(["---"] + ["---:"] * 6 + ["---"]))
        for op in _in(ops, group):
            name = f"`{op['op']}`" + (f" ({op['variant']})" if op["variant"] else "")
            lines.append(row([name, *cells(counted(op)), remark(op)]))
    return "\n".join(lines) + "\n"


def _in(ops, group):
    return [op for op in ops if op["group"] == group]


def main():
    """Write the page; with `--check`, compare it with the committed page."""
    text = page(json.loads(DATA.read_text()))
    if "--check" not in sys.argv:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        sys.exit(f"{PAGE} is not what docs/generate_torch_table.py writes from {DATA}.")


if __name__ == "__main__":
    main()
