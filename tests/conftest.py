import importlib.util

from jax_session import float32 as float32, getkey as getkey

collect_ignore = [] if importlib.util.find_spec("torch") else ["bridges/torch"]


def pytest_terminal_summary(terminalreporter):
    """What was not run is said where the results are read."""
    if collect_ignore:
        said = "torch is not installed: tests/bridges/torch were NOT run (`make test-torch` does)"
        terminalreporter.write_sep("=", said, yellow=True)
