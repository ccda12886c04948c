"""The ways to call one function: `tanjax.numpy`, NumPy's protocols, an operator, `tj.lift`."""

import operator

import jax
import numpy as np

import tanjax as tj

from ._call import Q, face, raw

# NumPy's name and the one of the module `operator`.
SPELT = """
    add:add subtract:sub multiply:mul divide:truediv true_divide:truediv floor_divide:floordiv
    mod:mod remainder:mod power:pow pow:pow matmul:matmul negative:neg positive:pos abs:abs
    absolute:abs equal:eq not_equal:ne less:lt less_equal:le greater:gt greater_equal:ge"""
OPERATORS = {name: getattr(operator, o) for name, o in (p.split(":") for p in SPELT.split())}
OPERATORS |= {"divmod": divmod, "round": round}
MODULES = {"numpy": np, "linalg": np.linalg, "fft": np.fft}
METHODS = (
    "all any argmax argmin argsort astype clip conj conjugate copy cumprod cumsum diagonal dot max "
    "mean min nonzero prod ravel repeat reshape round searchsorted sort squeeze std sum swapaxes "
    "take trace transpose var"
)


def tanjax(call):
    """Return the function of the same name in tanjax."""
    return face(call)


def numpy(call):
    """Return NumPy's function, if it dispatches on its arguments."""
    module = MODULES.get(call.table)
    function = getattr(module, call.name, None) if module and call.numpy else None
    asks = isinstance(function, np.ufunc) or type(function).__name__ == "_ArrayFunctionDispatcher"
    return function if asks else None


def python(call):
    """Return Python's operator, or the method of the quantity."""
    if call.table != "numpy" or call.kwargs:
        return None
    if call.name in OPERATORS:
        return OPERATORS[call.name]
    if call.name in METHODS.split() and type(call.args[0]) is Q:
        return lambda x, *args: getattr(x, call.name)(*args)
    return None


def lifted(call):
    """Return JAX's own function, interpreted by `tj.lift`."""
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
    return type(x) is tj.Quantity


DOORS = {"tanjax": tanjax, "NumPy": numpy, "Python": python, "lift": lifted}
