"""From text to training instances: corpus readers, token shards, spans, pairs and masks.

Read `corpus` first, then `shards/store` and `instances`, the fast twin of `core/pairs.py` and
`core/masks.py`. Beside them are the readers of the official files of tasks, such as `glue` and `squad`, and
of custom tables (`tables`).
"""
