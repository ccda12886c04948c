from jax_session import float32 as float32, getkey as getkey
