import importlib.util

import tanjax as tj
from jax_session import collect as collect, float32 as float32, getkey as getkey

tj.rules.packs()  # before a test imports a module of theirs: each rule says from which one it is

# Tests of many seconds, in processes of their own: first, or one worker ends alone with them.
LONG = (
    "tests/library/test_signatures.py::test_every_call",
    "tests/scale/together/test_several_processes.py",
    "docs/test_docs.py",
)
collect_ignore = [] if importlib.util.find_spec("torch") else ["bridges/torch"]


def pytest_terminal_summary(terminalreporter):
    """What was not run is said where the results are read."""
    if collect_ignore:
        said = "torch is not installed: tests/bridges/torch were NOT run (`make test-torch` does)"
        terminalreporter.write_sep("=", said, yellow=True)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
