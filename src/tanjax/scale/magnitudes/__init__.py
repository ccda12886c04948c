"""A program run on its numbers, or bounded, and what plain JAX loses."""
