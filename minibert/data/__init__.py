"""From text to training instances: corpus readers, token shards, spans, pairs and masks."""
