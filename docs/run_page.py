"""Run the Python blocks of a Markdown page in order, as one script, and check their outputs.

A block marked `python` runs; a block that begins with `>>>` is a doctest. A block marked `output`
must equal the text printed since the previous `output` block, where `...` stands for any text. The
page fails at its first block that raises, warns or shows another output. Files that a page writes
to its folder disappear after the run.

    python docs/run_page.py README.md docs/pages/*.md
"""

import contextlib
import doctest
import io
import sys
import tempfile
import types
import warnings

from sybil import Document
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(path: str) -> int:
    """Run the blocks of a page and return their number; raise at the first wrong block."""
    printed = io.StringIO()

    def check_output(example):
        got = printed.getvalue()
        printed.seek(0)
        printed.truncate()
        expected = doctest.Example(source="", want=example.parsed)
        checker = doctest.OutputChecker()
        if not checker.check_output(expected.want, got, FLAGS):
            return checker.output_difference(expected, got, FLAGS)
        return None

    parsers = (
        PythonCodeBlockParser(doctest_optionflags=FLAGS),
        CodeBlockParser("output", check_output),
    )
    page = Document.parse(path, *parsers)
    # A registered module, because type hints, pickling and dataclasses look up names in it.
    module = sys.modules["page"] = types.ModuleType("page")
    page.namespace = vars(module)
    examples = list(page)
    folder = tempfile.TemporaryDirectory()
    with contextlib.redirect_stdout(printed), folder as scratch, contextlib.chdir(scratch):
        for example in examples:
            example.evaluate()
    return len(examples)


if __name__ == "__main__":
    warnings.simplefilter("error")
    for name in sys.argv[1:]:
        print(f"{name}: {run_page(name)} blocks")
