"""Numbers in a wide range, what a dtype holds of them, and bounds of them."""
