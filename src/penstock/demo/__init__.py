"""A minute of fire watch: generated sensors, seven queries over them, and a summary anyone can read."""
