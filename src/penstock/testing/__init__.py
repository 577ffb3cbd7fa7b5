"""The engine in one process, without Spark: for tests, which hand over its rows. It is no second engine to deploy, and has no other source."""
