"""Graphs and modules of torch as functions of JAX."""
