"""One thread for all contenders. Import this first, as JAX reads these variables at import.

Flags of XLA no longer suffice: its CPU client has `NPROC` threads.
"""

import os

os.environ.setdefault("NPROC", "1")
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"
