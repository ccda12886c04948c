"""A hunt for wrong numbers: random programs, and random sequences of calls, against a reference.

`tj.jit` promises to make no entry worse, to find the entries that plain JAX loses, to give the same
results after every history of calls, and never to be silently wrong. No list of examples holds all
programs. So the hunt makes random ones and calls each several times with changing numbers. It
compares every entry of every result with a run in a wide range. It shrinks each failure and prints
it as a script.

    python -m property_tests.soak --minutes 10 --dtype float16

Sharp edges. A clean run says that the hunt found no fault, not that there is none.
"""

from ._generate import generate as generate
from ._judge import Band as Band, Reference as Reference
from ._programs import Program as Program
