"""Declarations: streams and queries, checked and compiled once; and requests to change them."""
