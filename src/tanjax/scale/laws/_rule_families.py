"""All files of NumPy rules, imported so that they fill the table.

    from . import _rule_families  # RULES is complete from here on

A new family is a new file and a line here.
"""

from __future__ import annotations

from . import (
    _numpy_rules as _numpy_rules,
    _numpy_rules_index as _numpy_rules_index,
    _numpy_rules_integer as _numpy_rules_integer,
    _numpy_rules_linalg as _numpy_rules_linalg,
    _numpy_rules_random as _numpy_rules_random,
    _numpy_rules_reduce as _numpy_rules_reduce,
    _numpy_rules_rounding as _numpy_rules_rounding,
    _numpy_rules_shape as _numpy_rules_shape,
    _numpy_rules_special as _numpy_rules_special,
    _numpy_rules_spread as _numpy_rules_spread,
    _numpy_rules_window as _numpy_rules_window,
)
