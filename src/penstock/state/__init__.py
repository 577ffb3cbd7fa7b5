"""Durable state: runs and their slices, the manifest, the registry, and what to purge or compact. Runs no jobs."""
