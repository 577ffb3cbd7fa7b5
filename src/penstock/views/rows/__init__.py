"""Signed rows as Arrow tables: equal values, matches, terms, and the files that store them."""
