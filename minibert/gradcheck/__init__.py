"""Every hand-written gradient against the complex step."""
