"""Window aggregates over sorted rows and panes: partials, their merge, and the windows that progress closes."""
