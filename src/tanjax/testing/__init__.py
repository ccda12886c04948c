"""Layer 10: the testing kit, for authors of array types and rules."""
