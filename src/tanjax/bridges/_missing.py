"""The error for a bridge whose library is not installed."""


def missing(library: str, extra: str = "ecosystem") -> ImportError:
    """Return the error for a bridge without its library; raise it from the original one."""
    return ImportError(
        f"tanjax.bridges.{library} needs {library}, which is not installed.\n"
        f"Hint: `pip install {library}`, or `pip install tanjax[{extra}]`."
    )
