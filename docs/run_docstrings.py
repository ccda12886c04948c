"""Run the examples in the docstrings of every module of the packages named as arguments."""

import doctest
import importlib
import pkgutil
import sys
import warnings

FACE_OF_TORCH = "tanjax.bridges.torch"  # needs PyTorch, and has no examples
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_package(name: str) -> doctest.TestResults:
    """Return the failed and attempted examples of a package and of all modules in it."""
    package = importlib.import_module(name)
    found = (info.name for info in pkgutil.walk_packages(package.__path__, name + "."))
    names = [name, *(n for n in found if not n.endswith("__main__") and n != FACE_OF_TORCH)]
    results = [doctest.testmod(importlib.import_module(name), optionflags=FLAGS) for name in names]
    return doctest.TestResults(sum(r.failed for r in results), sum(r.attempted for r in results))


if __name__ == "__main__":
    warnings.simplefilter("error")
    totals = [run_package(name) for name in sys.argv[1:]]
    print(f"{sum(t.attempted for t in totals)} examples, {sum(t.failed for t in totals)} failed")
    sys.exit(any(t.failed for t in totals))
