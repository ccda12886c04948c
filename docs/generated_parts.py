"""Generated parts of pages, between `<!-- name -->` and `<!-- end of name -->`."""

import operator
import re
import sys


def renewed(page, parts):
    """Return the text of a page with new text in its generated parts."""
    text = page.read_text()
    for name, part in parts.items():
        marks = rf"(<!-- {name} -->\n\n).*?(\n<!-- end of {name} -->)"
        text, count = re.subn(marks, lambda m, part=part: m[1] + part + m[2], text, flags=re.DOTALL)
        assert count == 1, f"{page.name} has no place for {name}"
    return text


def write_or_check(page, text, arguments, stale=operator.ne):
    """Write a page; with `--check`, only exit with an error if the committed page is stale."""
    if "--check" not in arguments:
        page.write_text(text)
    elif stale(text, page.read_text()):
        sys.exit(f"{page.name} is stale: run `python docs/generate_{page.stem}.py`.")
