"""Learning a vocabulary, and writing shards; a process for each, so that its peak of memory is its own."""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def minibert(path: str, pieces: int, objective: str, threads: int) -> dict[str, Any]:
    """Count a file and learn from it."""
    from minibert.tokenizer import BasicTokenizer, learn_vocab
    from minibert.tokenizer.counting import count_files

    began, used = time.perf_counter(), time.process_time()
    counted = count_files([path], BasicTokenizer(compat="hf-fast"), threads=threads, core="c")
    counting = time.perf_counter() - began
    vocab = learn_vocab(counted.words, pieces, objective=objective, core="c")
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "counting": counting,
        "cores": (time.process_time() - used) / seconds,
        "peak": peak_memory(),
        "words": len(counted.words),
        "vocab": vocab,
    }


def hugging_face(path: str, pieces: int, threads: int) -> dict[str, Any]:
    """Hugging Face's WordPieceTrainer on the same file; the environment says how many threads it takes."""
    import tokenizers

    assert os.environ["RAYON_NUM_THREADS"] == str(threads)
    learner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    learner.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    learner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=pieces,
        min_frequency=2,
        limit_alphabet=1000,
        special_tokens=SPECIAL_TOKENS,
        show_progress=False,
    )
    began, used = time.perf_counter(), time.process_time()
    learner.train([path], trainer)
    seconds = time.perf_counter() - began
    cores = (time.process_time() - used) / seconds
    return {"seconds": seconds, "cores": cores, "peak": peak_memory(), "vocab": sorted(learner.get_vocab())}


def shards(path: str, vocab: list[str]) -> dict[str, Any]:
    """Write the shards of a file of paragraphs. They take the threads that this process may use."""
    from minibert.data.corpus import sentences
    from minibert.data.shards.store import write_shards
    from minibert.tokenizer import Tokenizer

    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        began, used = time.perf_counter(), time.process_time()
        written = write_shards(
            sentences(path, "paragraphs"), Tokenizer(vocab, core="c"), Path(folder) / "shards"
        )
        seconds = time.perf_counter() - began
        return {
            "seconds": seconds,
            "cores": (time.process_time() - used) / seconds,
            "peak": peak_memory(),
            "bytes": Path(path).stat().st_size,
            "documents": written.n_documents,
            "tokens_bytes": (Path(folder) / "shards" / "tokens.bin").stat().st_size,
        }


def peak_memory() -> int:
    """Bytes this process had at most in memory."""
    if Path("/proc/self/status").exists():  # of this program alone, not of the one that started it
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
