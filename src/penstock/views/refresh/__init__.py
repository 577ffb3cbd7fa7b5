"""How a view is computed whole and kept fresh."""
