"""The choice of exponents: rows, conversions, and the integer program."""
