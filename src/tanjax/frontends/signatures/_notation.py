"""Helpers for the notation of the tables."""


def each(names: str, entry: str) -> dict[str, str]:
    """Return one entry for several names, separated by spaces."""
    return dict.fromkeys(names.split(), entry)
