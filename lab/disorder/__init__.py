"""Three ways to handle rows out of order, tuple at a time: sorting, slack and punctuation (Li 2008).

The engine itself uses punctuation. Sorting and slack are here for comparison: counts of stored tuples and wrong
answers.
"""
