"""Compiled and vectorized work on Arrow columns: bits, sort, probe, filter. Pure functions; no Spark, no files."""
