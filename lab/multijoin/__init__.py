"""Joins of many windows by nested loops over main memory, tuple at a time (Golab & Ozsu 2003).

Start with `algorithms`. No intermediate result is stored: a join is one nest of loops, and only its order can be
chosen. The choice of a good order is not made here.
"""
