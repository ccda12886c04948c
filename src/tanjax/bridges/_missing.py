"""What to say when the library of a bridge is not installed."""


def missing(library: str) -> ImportError:
    """The error for a bridge without its library; raise it from the original one."""
    return ImportError(
        f"tanjax.bridges.{library} needs {library}, which is not installed.\n"
        f"Hint: `pip install {library}`, or all bridges with `pip install tanjax[ecosystem]`."
    )
