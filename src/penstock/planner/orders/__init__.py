"""Probe orders of a join of several streams, and when to change them: pure functions of counted rows, no Spark.

A join of n positions has n probe orders, one for the delta of each (Golab & Ozsu 2003, Wang 2013). `graph` says which
orders are legal, `statistics` and `sizes` how many rows they make, `cost` and `loops` what that costs, `search` which
is the cheapest, `ranges` for how long it stays so, and `modes` decides, once a period, which orders to keep.
"""
