"""PostgreSQL tables as sources: what the server answers, what it records of changes, and whether that is all."""
