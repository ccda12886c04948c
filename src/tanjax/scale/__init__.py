"""The scale graph: SI physics in float32, bfloat16 and float16.

A value `v` with exponent `s` stands for `v · 2^s`. The graph of a program relates exponents to each
other, and a plan chooses them. See `tanjax.jit` and `tanjax.scale_graph`.
"""

from ._agreed import agreed as agreed
from ._call import run as run, scaled_call as scaled_call
from ._plan import (
    Plan as Plan,
    plan as plan,
    seen_right as seen_right,
)
from .graph._build import build as build
from .graph._graph import (
    Magnitude as Magnitude,
    Node as Node,
    ScaleGraph as ScaleGraph,
    Use as Use,
    Value as Value,
)
from .graph._literals import trace as trace
from .laws._register import register_law as register_law
from .numbers._interval_record import Record as Record, span as span
from .numbers._wide import Wide as Wide
from .replay._replay import replay as replay
from .windows import (
    Windows as Windows,
    extremes as extremes,
    find as find,
    flagged as flagged,
    limits_of as limits_of,
    magnitudes_in as magnitudes_in,
)
