"""Integration views: joins over sources in different systems, computed once and then kept fresh by their changes."""
