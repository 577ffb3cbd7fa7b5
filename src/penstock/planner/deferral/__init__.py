"""Which buckets put off their probes under pressure, and when: pure functions of measured loads (decision 0039)."""
