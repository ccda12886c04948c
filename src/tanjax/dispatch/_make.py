"""`quantity`, as users call it; lower layers know it as `as_quantity`, beside the unchecked one."""

from tanjax.arrays import as_quantity

quantity = as_quantity
