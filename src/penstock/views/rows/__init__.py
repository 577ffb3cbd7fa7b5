"""Signed rows as Arrow tables: equal values, matches, terms, and the files they are kept in."""
