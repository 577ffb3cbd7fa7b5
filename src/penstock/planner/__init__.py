"""From registered queries to one shared plan: pure functions of (queries, statistics), no Spark, no files."""
