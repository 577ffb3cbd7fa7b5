"""Durable bytes: the store, and the names, seals, faults and secrets of its files, for streams and views alike."""
