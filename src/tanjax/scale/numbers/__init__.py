"""Numbers in a wide range, what a dtype holds of them, and bounds of them."""

from ._extremes import ANYWHERE as ANYWHERE, Window as Window, is_on_host as is_on_host
from ._hosts import Spread as Spread, looked_at as looked_at
from ._in_row import InRow as InRow
from ._measure import begin as begin, inside as inside, is_finite as is_finite, measure as measure
