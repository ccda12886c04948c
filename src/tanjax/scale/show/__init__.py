"""Views of a planned program: rows, text, pictures."""
