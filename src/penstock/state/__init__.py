"""Durable state: runs and their slices, the manifest, the registry, and what to expire or compact. Runs no jobs."""
