"""What a downstream task is: its files, features, head, metrics and submissions."""
