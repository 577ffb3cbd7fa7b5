"""Durable bytes: the store and what is true of its files (names, seals, faults, secrets), for streams and views alike."""
