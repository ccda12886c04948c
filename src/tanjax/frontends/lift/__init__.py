"""`lift`: unmodified JAX code on quantities and structured arrays, by walking its jaxpr."""

from ._lift import lift as lift
