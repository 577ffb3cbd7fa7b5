"""Published algorithms taken literally, one tuple at a time, with operation counters. Never on the Spark path.

It is for comparing ideas, not for answering queries: its figures are counts of a simulation and are labelled so.
"""
