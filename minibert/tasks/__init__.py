"""Downstream tasks: their files, features, heads, metrics and submissions.

Read `task` first, the interface, then `sentences`, which implements it for GLUE. Their files are read by
`data`, and models for them are trained by `finetuning`; `registry` has all tasks by name.
"""
