"""Measurements: each module is one command, `python -m benchmarks.<name>`, whose last line is one line of JSON."""
