"""Integration views: joins over sources in different systems, computed once and then maintained by their changes."""
