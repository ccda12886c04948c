"""placeholder until the random numbers land"""
import contextlib, contextvars, jax, torch
_KEY = contextvars.ContextVar("key", default=None)
@contextlib.contextmanager
def random_key(key):
    box=[key]; token=_KEY.set(box)
    try: yield
    finally: _KEY.reset(token)
def next_key(generator=None):
    box=_KEY.get()
    if box is None: return jax.random.key(int(torch.randint(2**31-1,(),generator=generator)))
    box[0], k = jax.random.split(box[0]); return k
