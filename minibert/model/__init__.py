"""BERT itself: its configuration, parameters, batches, encoder and heads; pure functions over an engine."""
