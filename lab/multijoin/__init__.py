"""Joins of many windows by nested loops over main memory, tuple at a time (Golab & Ozsu 2003).

`algorithms` is the way in. No intermediate result is kept: a join is one nest of loops, and its order is all there is
to choose. Choosing it well is not done here.
"""
