"""Show the results of a run: metrics, pictures, a page."""
