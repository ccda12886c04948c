"""Torch's autograd by JAX's pullbacks."""
