"""Which task serves which buckets: costs of buckets, and policies that change the map between two steps."""
