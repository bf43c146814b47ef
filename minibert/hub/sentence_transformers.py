"""What sentence-transformers wants beside a Hugging Face folder: vectors that are the mean of all tokens."""

import json
from pathlib import Path

from minibert.files import atomic_text

POOLING = "1_Pooling"
KINDS = (("Transformer", ""), ("Pooling", POOLING))


def save_modules(folder: Path, hidden_size: int, max_length: int) -> None:
    """Write files with which `SentenceTransformer(folder)` loads a BERT that reads `max_length` tokens."""
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(KINDS)
    ]
    (folder / POOLING).mkdir(exist_ok=True)
    for name, content in (
        ("modules.json", modules),
        ("sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False}),
        ("config_sentence_transformers.json", {"similarity_fn_name": "cosine"}),
        (
            f"{POOLING}/config.json",
            {"word_embedding_dimension": hidden_size, "pooling_mode_mean_tokens": True},
        ),
    ):
        atomic_text(folder / name, json.dumps(content, indent=2) + "\n")
