"""PyTorch on these rules: the package `tanjax_torch`, by the name that the other bridges have."""

import sys
from typing import TYPE_CHECKING

from ._missing import missing

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise missing("torch", "torch") from error

import tanjax_torch

if TYPE_CHECKING:
    from tanjax_torch import *  # noqa: F403

sys.modules[__name__] = tanjax_torch
