"""A program run at its exponents, and kept from XLA's simplifier."""
