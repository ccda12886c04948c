"""Write the page about every operation on every array type, from the registry.

python docs/generate_support_table.py           # write docs/pages/support_table.md
python docs/generate_support_table.py --check   # fail if the page is stale
"""

import sys
from pathlib import Path

from generated_parts import write_or_check

from tanjax.testing import _support

PAGE = Path(__file__).parent / "pages" / "support_table.md"

if __name__ == "__main__":
    write_or_check(PAGE, _support.support_markdown(), sys.argv[1:])
