"""Committed results: how they are read, kept, given up and delivered."""
