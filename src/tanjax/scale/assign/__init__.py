"""Which exponents: rows, conversions, and the integer program."""
