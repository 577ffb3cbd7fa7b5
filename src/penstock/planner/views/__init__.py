"""Plans for integration views (Liu 2005): how to compute a join over many sources, and how to maintain it. No Spark."""
