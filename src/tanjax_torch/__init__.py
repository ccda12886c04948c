"""PyTorch on the same rules: tensors over our arrays, torch's autograd, its modules and graphs."""

from . import nn as nn, ops as ops
from .arguments._dtypes import DtypeError as DtypeError
from .arguments._keys import random_key as random_key
from .autograd import _functions as _functions
from .autograd._callback import callback as callback
from .autograd._wrap import make as make, wrap as wrap
from .compiler import _traced as _traced
from .compiler._compile import backend as backend
from .graphs._as_jax import (
    PureFunction as PureFunction,
    as_jax as as_jax,
    functional_call as functional_call,
)
from .graphs._fx import Interpreter as Interpreter
from .memory import _dispatch as _dispatch
from .table._decompositions import factories as factories
from .table._registry import implements as implements
from .tensor._conversions import (
    convert as convert,
    from_jax as from_jax,
    from_torch as from_torch,
    revert as revert,
    to_jax as to_jax,
    to_torch as to_torch,
)
from .tensor._lift import LiftWarning as LiftWarning
from .tensor._plain import TensorError as TensorError
from .tensor._tensor import Tensor as Tensor
