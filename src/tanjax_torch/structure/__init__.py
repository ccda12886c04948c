"""Structured arrays and units in tensors: operations, gradients, steps of optimisers."""
