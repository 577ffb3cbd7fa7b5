"""The engine under pressure: skewed keys, state larger than memory, more input than it can answer, slow stores.

Each module with a name in `CASES` of `cases` measures one of these; it is measured alone with `--only`.
"""
