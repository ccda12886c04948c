"""`torch.compile`: the backend, and its tracing of our tensors."""
