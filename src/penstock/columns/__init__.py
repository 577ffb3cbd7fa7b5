"""Arrow columns: types, terms, key hashes, codes, verdicts, parcels. Pure functions; no Spark, no plans, no files."""
