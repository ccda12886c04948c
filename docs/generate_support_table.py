"""Write the page that says what every operation does on every array type, by asking the library.

python docs/generate_support_table.py           # write docs/pages/support_table.md
python docs/generate_support_table.py --check   # fail if the page is not what would be written
"""

import sys
from pathlib import Path

from tanjax.testing import _support

PAGE = Path(__file__).parent / "pages" / "support_table.md"


def page():
    """The text of the page, as `python -m tanjax rules --markdown` prints it."""
    return _support.support_markdown()


def main(arguments):
    text = page()
    if "--check" not in arguments:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        sys.exit(f"{PAGE.name} is stale: run `python docs/generate_support_table.py`.")


if __name__ == "__main__":
    main(sys.argv[1:])
