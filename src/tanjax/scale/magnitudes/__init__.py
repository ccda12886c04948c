"""The magnitudes of a program, by a run on numbers or by bounds, and the losses of plain JAX."""
