"""`jax.numpy`."""

from . import _numpy_elementwise, _numpy_reductions, _numpy_shapes

TABLE = _numpy_elementwise.TABLE | _numpy_reductions.TABLE | _numpy_shapes.TABLE
