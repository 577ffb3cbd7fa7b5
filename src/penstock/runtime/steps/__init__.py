"""The step on the driver: what it asks of its tasks, its one job, its commit, and what it has moved and taught."""
