"""Layer 6: operations, natural rules, `wrap_natural_pullback`, rule packs."""

from ._declaration import Rule as Rule
from ._natural import wrap_natural_pullback as wrap_natural_pullback
from ._operation import (
    Operation as Operation,
    inspecting as inspecting,
    lowering as lowering,
    operation as operation,
    operations as operations,
)
from ._packs import Pack as Pack, load_pack as load_pack, load_packs as load_packs, packs as packs
from ._resolution import Resolution as Resolution
from ._rule_api import (
    align as align,
    as_custom_vjp as as_custom_vjp,
    constant as constant,
    frule as frule,
    rrule as rrule,
)
