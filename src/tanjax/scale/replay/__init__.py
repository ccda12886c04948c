"""Run a program at its exponents, hidden from XLA's simplifier."""
