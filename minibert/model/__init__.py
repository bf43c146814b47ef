"""Additions to the core's BERT: LSTMs, windows of long texts, more heads and their batches.

Read `ops` first, which every engine is a subclass of, then `params` and `heads`. A file that extends one of
`core` has the same name.
"""
