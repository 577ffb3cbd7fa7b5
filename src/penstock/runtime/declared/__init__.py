"""What people declare: streams, queries, choices; checked, registered, and compiled to a network."""
