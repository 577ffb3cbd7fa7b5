"""Arrow columns of arriving rows: key hashes, verdicts, parcels. Pure functions; no Spark, no plans, no files."""
