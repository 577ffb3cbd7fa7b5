"""How a view is computed whole and maintained."""
