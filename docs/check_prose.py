"""Report sentences that a stranger reads twice: without an agent, or with too many words.

    python docs/check_prose.py                        # everything
    python docs/check_prose.py docs/pages src/tanjax/units

The check skips code, tables, headings and formulas of Markdown. In Python it reads docstrings,
comments and texts of four words and more (errors, hints). Each finding shows the place, the words
and the plain form.
"""

import ast
import inspect
import io
import pathlib
import re
import sys
import tokenize

# Files with texts that are code or tables: words to refuse, data, templates, names of functions.
NO_PROSE = (
    "docs/check_prose.py",
    "docs/test_prose.py",
    "property_tests/soak/_programs.py",
    "src/tanjax/units/_table.py",
    "tests/support/calls/_doors.py",
    "tests/support/calls/_lax.py",
)
EVERYTHING = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "src", "rules", "docs", "benchmarks"),
    *("tests/support", "property_tests/soak"),
)

# The longest sentence in words. The aim is 20 words; lists and names of functions may need more.
LONGEST = 35

DENIED = {
    r"\b(nobody|whoever|whatever|whomever)\b": "name the person or the thing",
    r"\b(of|by|for|in|with) (whom|whose)\b|\b(of|by|from) which\b": "start a second sentence",
    r"\bwhat (is|are|was|were|has|have|had|cannot|can|does not|do not|did not)\b": "name the thing",
    r"\b(is|are|be|being|was|were) such\b|\bsuch (is|are)\b": "name the property",
    r"\b(is|are|was|were|be) (said|told|spoken)\b": "warn, raise, print: say which",
    r"\b(is|are|was|were) looked at\b": "check, measure, run: say which",
    r"\bin silence\b|\bwithout a word\b": "silently, or: without a warning",
    r"\bdear(er|est|ly)?\b": "expensive",
    r"\bvisibly\b": "with a DensifyWarning",
    r"\b(becomes?|became|made|makes? (it|them|an?|the) ?\w*) dense\b": "densify",
    r"\bnumbers that (do not|don't|does not) fit\b": "overflow, underflow",
    r"\bbut for\b": "except, without",
    r"\b(thereby|wherein|therein|thereof|whereof|hence|likewise|thence|hitherto)\b": "plain words",
    r"\bgives? way\b": "falls back to",
    r"\bspeaks? of\b|\bknows? of\b": "uses, has, handles: say which",
    r"\bcannot be helped\b|\bneeds? no help\b": "overflow, underflow: say which",
    r"\banew\b": "again",
    r"\b(he|she|his|hers|himself)\b": "you, the caller, the author",
    r"\bthe more so\b|\ball the more\b|\bso much the\b": "say how much",
    r"\bword for word\b": "exactly",
    r"\bas it were\b|\bso to speak\b": "leave it out",
    r"\bnear at hand\b|\bat hand\b": "available, known",
    r"\bnot a few\b|\bno few\b|\ba few of them\b": "say how many",
    r"\bwho does not\b|\bwho do not\b|\bwho has\b|\bwho wants?\b": "if you ...",
    r"\bhave it that\b|\bit is that\b": "say it directly",
    r"\bin their stead\b|\bin its stead\b|\bin place of it\b": "instead",
    r"\bby far\b|\bby and large\b": "say how much",
    r"\bnone is\b|\bnone are\b|\bnone has\b": "no X is",
}
DENIED = {re.compile(pattern, re.IGNORECASE): instead for pattern, instead in DENIED.items()}
# A sentence that begins with a relative pronoun has no subject, unless it is a question.
HEADLESS = re.compile(r"(What|Whatever|Who|Whoever|Whether|Which|Whose)\b(?!.*\?$)", re.DOTALL)
END = re.compile(r"(?<=[.!?:;])[\"')*_]*\s+(?=[A-Z`*_\"'(\[$]|tanjax\b)")


def sentences(text):
    """Return the sentences of a paragraph, with inline code and formulas as one word each."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"``[^`]+``|`[^`]+`|\$[^$]+\$", "`c`", text)
    return [s.strip() for s in END.split(text) if s.strip()]


def findings(text):
    """Yield pairs of the words that a stranger reads twice and the words to write instead."""
    for sentence in sentences(text):
        if HEADLESS.match(sentence.lstrip("*_-(")):
            yield (
                " ".join(sentence.split()[:6]),
                "begin with a subject: the thing, you, tanjax, the function",
            )
        for pattern, instead in DENIED.items():
            if found := pattern.search(sentence):
                yield found[0], instead
        words = len(re.findall(r"[\w`$-]+", sentence))
        if words > LONGEST:
            yield " ".join(sentence.split()[:6]) + " ...", f"{words} words: make it two sentences"


def paragraphs_of_markdown(text):
    """Yield pairs of line and paragraph, without fences, tables, headings, HTML and formulas."""
    text = re.sub(
        r"^( *)(`{3,}|~{3,}).*?^\1\2 *$",
        lambda m: "\n" * m[0].count("\n"),
        text,
        flags=re.DOTALL | re.MULTILINE,
    )
    text = re.sub(
        r"\$\$.*?\$\$|<!--.*?-->", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL
    )
    paragraph, start = [], 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        new_item = re.match(r"\s*([-*+]|\d+\.) ", line)
        is_code = not paragraph and line.startswith("    ") and not new_item
        skipped = not line.strip() or is_code or re.match(r"\s*(#|\||<|:::|!!!|>>> )", line)
        if (skipped or new_item) and paragraph:
            yield start, "\n".join(paragraph)
            paragraph = []
        if not skipped:
            if not paragraph:
                start = number
            paragraph.append(re.sub(r"^\s*([-*+]|\d+\.) ", "", line))


def paragraphs_of_python(text):
    """Yield pairs of line and paragraph of docstrings, comments and longer texts."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and len(node.value.split()) > 3
            and not node.value.lstrip().startswith(".tanjax")  # a style sheet
        ):
            written = inspect.cleandoc(node.value)
            prose = re.sub(r"^\s*(>>>|\.\.\.) .*$", "", written, flags=re.MULTILINE)
            for start, paragraph in paragraphs_of_markdown(prose):
                yield node.lineno + start - 1, paragraph
    comment, start, before = [], 0, 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if (
            token.type == tokenize.COMMENT
            and "noqa" not in token.string
            and "type:" not in token.string
        ):
            if comment and token.start[0] != before + 1:
                yield start, "\n".join(comment)
                comment = []
            if not comment:
                start = token.start[0]
            comment.append(token.string.lstrip("# "))
            before = token.start[0]
    if comment:
        yield start, "\n".join(comment)


def files(arguments):
    """Yield the Markdown and Python files of the arguments, or of `EVERYTHING`."""
    for argument in map(pathlib.Path, arguments or EVERYTHING):
        for path in sorted(argument.rglob("*") if argument.is_dir() else [argument]):
            is_code = any(path.is_relative_to(name) for name in NO_PROSE)
            if path.suffix in (".md", ".py") and "site" not in path.parts and not is_code:
                yield path


def check(arguments):
    """Print every finding, and return the number of findings."""
    count = 0
    for path in files(arguments):
        read = paragraphs_of_markdown if path.suffix == ".md" else paragraphs_of_python
        for line, paragraph in read(path.read_text()):
            for words, instead in findings(paragraph):
                print(f"{path}:{line}: {words!r}: {instead}")
                count += 1
    return count


if __name__ == "__main__":
    sys.exit(1 if check(sys.argv[1:]) else 0)
