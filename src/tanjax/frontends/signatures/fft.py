"""`jax.numpy.fft`: a transform is a sum, so it keeps the unit."""

from ._notation import each

TABLE = {
    **each("fft fft2 fftn rfft rfft2 rfftn hfft", "a: u -> u"),
    **each("ifft ifft2 ifftn irfft irfft2 irfftn ihfft", "a: u -> u"),
    **each("fftshift ifftshift", "x: U -> U"),
    **each("fftfreq rfftfreq", "d: u -> 1/u"),
}
