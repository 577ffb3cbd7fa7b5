"""The adapter to Spark: sources, exchange, the streaming query, sinks, analysis, the session, and Java."""
