"""One thread for all contenders: imported first, for JAX reads these when it is imported.

Flags of XLA no longer do it: its CPU client has as many threads as `NPROC` says.
"""

import os

os.environ.setdefault("NPROC", "1")
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"
