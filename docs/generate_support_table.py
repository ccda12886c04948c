"""Write the page that says what every operation does on every array type, by asking the library.

python docs/generate_support_table.py           # write docs/pages/support_table.md
python docs/generate_support_table.py --check   # fail if the page is not what would be written
"""

import sys
from pathlib import Path

from generated_parts import write_or_check

from tanjax.testing import _support

PAGE = Path(__file__).parent / "pages" / "support_table.md"

if __name__ == "__main__":
    write_or_check(PAGE, _support.support_markdown(), sys.argv[1:])
