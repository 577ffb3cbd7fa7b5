"""The step on Spark: ingest, exchange, sinks, progress, recovery, sources; and the Java it runs on."""
