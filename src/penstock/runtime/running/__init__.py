"""A running engine: Spark's query beneath it, when steps come, what it says of itself, what others ask of it."""
