import importlib.util
import zlib

import tanjax as tj
from jax_session import collect as collect, float32 as float32, getkey as getkey
from tanjax.testing.pytest_plugin import CheckItem
from tanjax.transforms._making import said_of_powers

said_of_powers.set()  # tests of quantities that leave their dtype are many: one test looks at it
tj.rules.packs()  # before a test imports a module of theirs: each rule says from which one it is

collect_ignore = [] if importlib.util.find_spec("torch") else ["torch"]


def pytest_terminal_summary(terminalreporter):
    """Say in the summary that PyTorch's tests were not run."""
    if collect_ignore:
        said = "torch is not installed: tests/torch were NOT run (`make test-torch` does)"
        terminalreporter.write_sep("=", said, yellow=True)


def pytest_collection_modifyitems(items):
    """Mark the cases of the kit, and long tests with the pair on which `.ci/run` runs them.

    Tests of many seconds run first, so that no worker ends alone.
    """
    has = lambda item, *names: any(item.get_closest_marker(name) for name in names)
    for item in items:
        if isinstance(item, CheckItem):
            item.add_marker("core")
            if item.check.package == "tanjax_rules":
                item.add_marker("slow")
        draw = zlib.crc32(item.nodeid.encode())  # by its name: wherever it stands
        if isinstance(item, CheckItem) or (has(item, "slow") and not has(item, "docs")):
            item.add_marker("on_newest" if draw % 6 == 0 else "on_oldest")
        elif has(item, "core") and hasattr(item, "callspec") and draw % 3 == 0:
            item.add_marker("on_newest")
    items.sort(key=lambda item: not has(item, "processes", "docs"))
