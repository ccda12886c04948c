"""PyTorch on the same rules: tensors over our arrays, torch's autograd, its modules and graphs."""

from . import (
    _dispatch as _dispatch,
    _functions as _functions,
    _traced as _traced,
    nn as nn,
    ops as ops,
)
from ._as_jax import (
    PureFunction as PureFunction,
    as_jax as as_jax,
    functional_call as functional_call,
)
from ._callback import callback as callback
from ._compile import backend as backend
from ._conversions import (
    convert as convert,
    from_jax as from_jax,
    from_torch as from_torch,
    revert as revert,
    to_jax as to_jax,
    to_torch as to_torch,
)
from ._decompositions import factories as factories
from ._dtypes import DtypeError as DtypeError
from ._fx import Interpreter as Interpreter
from ._keys import random_key as random_key
from ._lift import LiftWarning as LiftWarning
from ._plain import TensorError as TensorError
from ._registry import implements as implements
from ._tensor import Tensor as Tensor
from ._wrap import make as make, wrap as wrap
