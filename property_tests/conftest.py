import os

from hypothesis import HealthCheck, settings

from jax_session import float32 as float32, getkey as getkey

# No deadline: the first example of a test pays for JAX's compilation.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "local"))
