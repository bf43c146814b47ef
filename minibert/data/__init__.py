"""From text to training instances: corpus readers, token shards, spans, pairs and masks."""

from minibert.data.corpus import embedded_corpus, find_files, sentences, split_sentences
from minibert.data.instances import InstanceOptions, Instances, Position, split_documents
from minibert.data.shards.joined import open_shards
from minibert.data.shards.store import TokenShards, write_shards

__all__ = [
    "InstanceOptions",
    "Instances",
    "Position",
    "TokenShards",
    "embedded_corpus",
    "find_files",
    "open_shards",
    "sentences",
    "split_documents",
    "split_sentences",
    "write_shards",
]
