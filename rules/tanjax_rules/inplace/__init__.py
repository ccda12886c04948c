"""In-place functions as examples: optimisers that write to parameters and moments."""

from . import optimisers as optimisers
