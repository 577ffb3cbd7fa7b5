"""Arrow columns of rows: types, terms, key hashes, codes, verdicts, parcels. Pure functions; no Spark, plans or files."""
