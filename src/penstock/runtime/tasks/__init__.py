"""A step in a Python worker: receive, probe, aggregate, write, and what travels to and from it."""
