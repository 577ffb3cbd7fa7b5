"""The engine's step without Spark: what is done with rows, whoever brings them."""
