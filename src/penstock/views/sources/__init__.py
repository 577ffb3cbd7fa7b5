"""Sources of views: the interface for maintenance, and sources whose changes are found by comparison."""
