"""`python -m tanjax`: see `tanjax.testing`."""

import sys

from tanjax.testing._commands import main

if __name__ == "__main__":
    sys.exit(main())
