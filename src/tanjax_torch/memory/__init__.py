"""How torch reaches an entry, and memory: views, writes, sizes and strides."""
