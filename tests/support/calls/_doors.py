"""The ways to call one function: `tanjax.numpy`, NumPy's protocols, an operator, `tj.lift`."""

import operator

import jax
import numpy as np

import tanjax as tj

from ._call import Q, face, raw

OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "true_divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "mod": operator.mod,
    "remainder": operator.mod,
    "divmod": divmod,
    "power": operator.pow,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "negative": operator.neg,
    "positive": operator.pos,
    "abs": operator.abs,
    "absolute": operator.abs,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "round": round,
}
MODULES = {"numpy": np, "linalg": np.linalg, "fft": np.fft}
METHODS = (
    "all any argmax argmin argsort astype clip conj conjugate copy cumprod cumsum diagonal dot max "
    "mean min nonzero prod ravel repeat reshape round searchsorted sort squeeze std sum swapaxes "
    "take trace transpose var"
)


def tanjax(call):
    """The function of the same name in tanjax."""
    return face(call)


def numpy(call):
    """NumPy's function, where it asks its arguments what to do."""
    module = MODULES.get(call.table)
    function = getattr(module, call.name, None) if module and call.numpy else None
    asks = isinstance(function, np.ufunc) or type(function).__name__ == "_ArrayFunctionDispatcher"
    return function if asks else None


def python(call):
    """Python's operator, or the method of the quantity."""
    if call.table != "numpy" or call.kwargs:
        return None
    if call.name in OPERATORS:
        return OPERATORS[call.name]
    if call.name in METHODS.split() and type(call.args[0]) is Q:
        return lambda x, *args: getattr(x, call.name)(*args)
    return None


def lifted(call):
    """JAX's own function, interpreted by `tj.lift`."""
    function = raw(call)

    def run(*args, **kwargs):
        leaves, treedef = jax.tree.flatten((args, kwargs), is_leaf=_is_quantity)
        places = [i for i, x in enumerate(leaves) if _is_quantity(x)]

        def plain(*quantities):
            new = list(leaves)
            for i, x in zip(places, quantities, strict=True):
                new[i] = x
            inner_args, inner_kwargs = treedef.unflatten(new)
            return function(*inner_args, **inner_kwargs)

        return tj.lift(plain)(*(leaves[i] for i in places))

    return run


def _is_quantity(x):
    return type(x) is tj.Unitful


DOORS = {"tanjax": tanjax, "NumPy": numpy, "Python": python, "lift": lifted}
