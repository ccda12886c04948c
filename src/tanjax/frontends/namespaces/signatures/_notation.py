"""How the tables are written."""


def each(names: str, entry: str) -> dict[str, str]:
    """One entry for several names, separated by spaces."""
    return dict.fromkeys(names.split(), entry)
