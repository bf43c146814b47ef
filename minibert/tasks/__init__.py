"""Downstream tasks: their files, features, heads, metrics and submissions."""
