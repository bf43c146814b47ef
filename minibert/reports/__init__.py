"""What is shown of a run once it is over: metrics, pictures, a page."""
