"""The pytest plugin: every case of a rule pack becomes one test item.

pytest loads this module in every environment that has tanjax installed. So it imports nothing of
tanjax or JAX until you ask for cases, by `pytest --tanjax-check PACKAGE` or in the ini file::

    [tool.pytest.ini_options]
    tanjax_check_packages = ["my_rules"]

Each case runs [`check_operation`][tanjax.testing.check_operation]; each array that the package
yields from `arrays()` runs [`check_array_type`][tanjax.testing.check_array_type]. A package
without cases is an error of collection, as it would otherwise look like a package that passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tanjax.testing import Check


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--tanjax-check` and the ini option `tanjax_check_packages`."""
    group = parser.getgroup("tanjax", "checks of tanjax rule packs")
    group.addoption(
        "--tanjax-check",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="run the cases of the rules of this package as tests (may be repeated)",
    )
    parser.addini(
        "tanjax_check_packages", "packages whose rule cases run as tests", type="args", default=[]
    )


class CheckItem(pytest.Item):
    """One case of a rule pack, or one array of a registered type."""

    check: Check

    def runtest(self) -> None:
        for text in self.check.run().warnings:
            self.add_report_section("call", "tanjax", f"warning: {text}")

    def reportinfo(self) -> tuple[str, int | None, str]:
        return self.check.package, None, f"tanjax check: {self.check.name}"


class CheckPackage(pytest.Collector):
    """The cases of one package."""

    def collect(self) -> Iterator[CheckItem]:
        from tanjax.testing import checks_of

        for number, check in enumerate(checks_of(self.name)):
            item = CheckItem.from_parent(self, name=f"{number}:{check.name}")
            item.check = check
            yield item


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Append the cases of the requested packages."""
    named = [*config.getoption("--tanjax-check"), *config.getini("tanjax_check_packages")]
    for package in list(dict.fromkeys(named)):
        collector = CheckPackage.from_parent(session, name=package)
        try:
            items.extend(collector.collect())
        except Exception as error:
            raise pytest.UsageError(
                f"--tanjax-check {package}: {type(error).__name__}: {error}"
            ) from error
