"""Aggregates over skewed groups, tuple at a time: dense groups as partials, sparse ones as rows (Li 2008, 6.3)."""
