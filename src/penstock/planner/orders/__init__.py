"""Probe orders of a join of several streams, and when to change them: pure functions of counts, without Spark.

A join of n positions has n probe orders, one for the delta of each (Golab & Ozsu 2003, Wang 2013). `graph` defines the
legal orders, `statistics` and `sizes` how many rows they make, `cost` and `loops` what that costs; `search` finds the
cheapest, `ranges` tells for how long it stays so, and `modes` decides, once per period, which orders to keep
(decision 0019).
"""
