"""Ways to live with rows out of order, tuple at a time: sorting first, guessing how long to wait, or being told (Li 2008).

The engine itself only does the last. What sorts or guesses is here to be compared with: counts of tuples held and of wrong answers.
"""
