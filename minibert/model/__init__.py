"""Additions to the core's BERT: LSTMs, windows of long texts, more heads and their batches."""
