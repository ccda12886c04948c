"""The operations of torch on our arrays, a family in each file."""
