"""The tensor over an array of JAX, and conversions to and from torch and JAX."""
