"""A hunt for wrong numbers: random programs, and random sequences of calls, against a reference.

`tj.jit` promises that nothing is made worse, that what plain JAX loses is found, that history does
not matter, and that nothing is silently wrong. No list of examples holds all programs, so random
ones are made, called several times with changing numbers, and every entry of every result is
compared with a run in a wide range. What is wrong is shrunk and printed as a script.

    python -m property_tests.soak --minutes 10 --dtype float16

Sharp edges. A clean run says that nothing was found, not that there is nothing.
"""

from ._generate import generate as generate
from ._judge import Band as Band, Reference as Reference
from ._programs import Program as Program
