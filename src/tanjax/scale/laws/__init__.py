"""What every primitive does to numbers, bounds and exponents."""
