"""Check every hand-written gradient against the complex step."""
