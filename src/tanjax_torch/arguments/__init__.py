"""Dtypes, promotion, random keys, and arguments as keys of a cache."""
