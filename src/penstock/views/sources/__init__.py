"""Sources of views: what maintenance asks of one, and those whose changes are found by comparing."""
