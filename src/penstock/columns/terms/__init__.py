"""The functions of terms over columns, each equal to Spark's in ANSI mode (decision 0012).

A function takes the call and its arguments' values, and returns data and where it raised; NULL arguments are masked by
the caller. It does not know which rows are evaluated: it must accept any value and only report which ones raise.
"""

from penstock.columns.terms import arithmetic, casts, patterns, strings, times

FUNCTIONS = {
    **arithmetic.FUNCTIONS, **casts.FUNCTIONS, **times.FUNCTIONS, **strings.FUNCTIONS, **patterns.FUNCTIONS,
}  # fmt: skip
