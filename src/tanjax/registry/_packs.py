"""Rule packs: rules that entry points name, without an import by the user.

A pack is a module named in the entry-point group `tanjax.rules`. Packs load at the first rule
lookup: the shipped ones first, the others by distribution and entry name. The order therefore never
depends on the installation. A pack that fails is rolled back and skipped with one warning. Set
`TANJAX_DISABLE_PACKS` to a comma-separated list of `distribution:entry` to leave packs out.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
import warnings
from importlib import metadata

from tanjax._errors import RulePackError, RulePackWarning, outside

from ._table import Journal

GROUP = "tanjax.rules"
SHIPPED = ("factorizations", "inplace", "linalg", "matrix_functions")


@dataclasses.dataclass(frozen=True)
class Pack:
    """A rule pack that was found, with its source and its loading error, if any."""

    distribution: str
    version: str
    name: str
    module: str
    error: str = ""

    @property
    def origin(self) -> str:
        """The name that error messages give as the origin of its registrations."""
        return f"{self.distribution}:{self.name}"


_LOADED: list[Pack] = []
_STATE = {"loaded": False}


def packs() -> tuple[Pack, ...]:
    """Return the packs that were found, in loading order; `error` says why one was skipped."""
    load_packs()
    return tuple(_LOADED)


def find_packs() -> list[Pack]:
    """Return the packs that the entry points name, in loading order, without importing any."""
    found = {}
    for entry in metadata.entry_points(group=GROUP):
        dist = entry.dist
        name, version = (dist.name, dist.version) if dist else ("unknown", "")
        pack = Pack(name, version, entry.name, entry.value)
        found[pack.origin] = pack
    for name in SHIPPED:  # also without an installation, from a source tree on the path
        found.setdefault(f"tanjax:{name}", Pack("tanjax", "", name, f"tanjax_rules.{name}"))
    names = os.environ.get("TANJAX_DISABLE_PACKS", "").split(",")
    disabled = {name.strip() for name in names if name.strip()}
    if disabled - set(found):
        warnings.warn(
            f"TANJAX_DISABLE_PACKS names {', '.join(sorted(disabled - set(found)))}, which is no "
            f"installed rule pack.\nHint: the packs are {', '.join(sorted(found))}.",
            RulePackWarning,
            stacklevel=outside(),
        )
    order = sorted(
        found.values(), key=lambda p: (p.distribution != "tanjax", p.distribution, p.name)
    )
    return [p for p in order if p.origin not in disabled]


def load_packs() -> None:
    """Load every pack once."""
    if _STATE["loaded"]:
        return
    _STATE["loaded"] = True  # before loading: packs call operations while they load
    for pack in find_packs():
        _LOADED.append(load_pack(pack))


def load_pack(pack: Pack) -> Pack:
    """Load one pack; on failure undo its registrations and warn.

    Its modules leave `sys.modules` too, so that another pack can import them and register.
    """
    before = set(sys.modules)
    try:
        with Journal(pack.origin):
            importlib.import_module(pack.module)
    except Exception as error:
        if pack.distribution == "tanjax":
            raise RulePackError(
                f"the shipped rule pack {pack.module} does not load: {error}"
            ) from error
        warnings.warn(
            f"rule pack {pack.origin} (version {pack.version}, module {pack.module}) is skipped: "
            f"{type(error).__name__}: {error}\n"
            f"Hint: set TANJAX_DISABLE_PACKS={pack.origin} to leave it out without this warning.",
            RulePackWarning,
            stacklevel=2,
        )
        roots = tuple(f"{entry.value}." for entry in metadata.entry_points(group=GROUP))
        for name in set(sys.modules) - before:
            if f"{name}.".startswith(roots):
                del sys.modules[name]
        return dataclasses.replace(pack, error=f"{type(error).__name__}: {error}")
    return pack
