"""A planned program to be looked at: rows, text, pictures."""
