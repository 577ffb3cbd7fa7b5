"""Window aggregates over skewed groups, tuple at a time: few dense groups as partials, many sparse ones as rows (Li 2008, 6.3)."""
