"""The functions of terms over whole columns, each equal to Spark's in ANSI mode: `tests/spark/test_terms.py` compares them all.

A function takes the call and the values of its arguments and gives its data, and where computing them raised; where an argument is
NULL it is not asked. It knows nothing of rows that are not to be computed: it must stand any value, and only say which raise.
"""

from penstock.columns.terms import arithmetic, casts, patterns, strings, times

FUNCTIONS = {
    **arithmetic.FUNCTIONS, **casts.FUNCTIONS, **times.FUNCTIONS, **strings.FUNCTIONS, **patterns.FUNCTIONS,
}  # fmt: skip
