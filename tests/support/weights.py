"""The weight of Python files: lines of code, long functions, functions used once."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator

LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text: str, tree: ast.Module) -> int:
    """Return the number of lines that are not blank, a comment or part of a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        is_owner = isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS))
        if is_owner and ast.get_docstring(node, clean=False) is not None:
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def used_once(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the private functions of a module that it names once after it defines them."""
    uses = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    for node in tree.body:
        is_private = isinstance(node, FUNCTIONS) and re.match("_[^_]", node.name)
        if is_private and uses[node.name] == 1:
            yield node
