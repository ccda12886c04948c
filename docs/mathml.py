"""A MkDocs hook: convert formulas to MathML in the build, so that browsers need no script."""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[\[(](.*?)\\[\])]</\1>', re.DOTALL)


def to_mathml(formula: re.Match[str]) -> str:
    display = "block" if formula[1] == "div" else "inline"
    return convert(html.unescape(formula[2]), display=display)


def on_page_content(content: str, **_: object) -> str:
    return FORMULA.sub(to_mathml, content)
