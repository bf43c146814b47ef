"""From text to training instances: corpus readers, token shards, spans, pairs and masks.

Beside them the readers of the official files of tasks, and of custom tables.
"""
