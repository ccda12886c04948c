import importlib.util

import tanjax as tj
from jax_session import collect as collect, float32 as float32, getkey as getkey
from tanjax.testing.pytest_plugin import CheckItem

tj.rules.packs()  # before a test imports a module of theirs: each rule says from which one it is

collect_ignore = [] if importlib.util.find_spec("torch") else ["bridges/torch"]


def pytest_terminal_summary(terminalreporter):
    """Say in the summary that PyTorch's tests were not run."""
    if collect_ignore:
        said = "torch is not installed: tests/bridges/torch were NOT run (`make test-torch` does)"
        terminalreporter.write_sep("=", said, yellow=True)


def pytest_collection_modifyitems(items):
    """Mark the cases of the kit. Run tests of many seconds first, so that no worker ends alone."""
    rules = 0
    for item in items:
        if isinstance(item, CheckItem):
            item.add_marker("core")
            if item.check.package == "tanjax_rules":
                item.add_marker("slow")
                item.add_marker(("odd", "even")[rules % 2])
                rules += 1
    is_long = lambda item: item.get_closest_marker("processes") or item.get_closest_marker("docs")
    items.sort(key=lambda item: not is_long(item))
