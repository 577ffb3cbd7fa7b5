"""The engine's step without Spark, whatever source hands over the rows."""
