"""The check of prose finds what it refuses, in Markdown and in Python, and nothing else."""

import pytest
from check_prose import findings, paragraphs_of_markdown, paragraphs_of_python

pytestmark = pytest.mark.docs


@pytest.mark.parametrize(
    "text",
    [
        "What is lost is said.",
        "Whether a type keeps its structure.",
        "An operation that nobody has taught a type.",
        "The matrix becomes dense.",
        "word " * 36 + "end.",
    ],
)
def test_a_sentence_without_an_agent_or_an_end_is_found(text):
    assert list(findings(text))


def test_questions_code_and_tables_are_left_alone():
    page = "What does it cost?\n\n```python\nnobody = 1\n```\n\n| nobody |\n\nYou call `nobody`.\n"
    assert not [f for _, text in paragraphs_of_markdown(page) for f in findings(text)]


def test_docstrings_comments_and_errors_are_read():
    source = """'What a cast loses here.'
# nobody knows
raise ValueError("write what is there again")
"""
    found = [line for line, text in paragraphs_of_python(source) if list(findings(text))]
    assert sorted(found) == [1, 2, 3]
