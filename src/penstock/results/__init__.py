"""Committed results: how they are read, stored, expired and delivered."""
