"""Committed results: how they are read, kept, expired and delivered."""
