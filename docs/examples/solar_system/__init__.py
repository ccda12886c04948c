"""The data, the physics and the picture of the example `solar_system.py`."""
