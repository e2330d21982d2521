"""duplexmt: simultaneous machine translation with 2D grid attention over a pretrained decoder.

Equations are cited by their label in the paper *Dual-Stream Simultaneous Translation via 2D Grid Attention*;
`docs/equations.md` maps each label to the function that implements it and the test that proves it.
"""

__version__ = "0.1.0"
