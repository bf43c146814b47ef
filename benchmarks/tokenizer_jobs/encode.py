"""Encoding, minibert and Hugging Face's `tokenizers` by turns in one process."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tokenizers

from minibert.tokenizer import Tokenizer
from tokenizer_jobs import texts

SHORT = {
    "hello world": "hello world",
    "a sentence": "Call me Ishmael. Some years ago, never mind how long precisely.",
}


def hugging_face(vocab: list[str], lower_case: bool) -> tokenizers.Tokenizer:
    """BERT's tokenizer as `tokenizers` has it, put together from its parts."""
    ids = {piece: number for number, piece in enumerate(vocab)}
    model = tokenizers.models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100)
    built = tokenizers.Tokenizer(model)
    built.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower_case)
    built.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = [(token, ids[token]) for token in ("[SEP]", "[CLS]")]
    built.post_processor = tokenizers.processors.BertProcessing(*ends)
    return built


def batch(case: list, megabytes: float, rounds: int, threads: int) -> dict[str, Any]:
    """Seconds of every way to encode a text, after checking that ids are the same."""
    case = texts.Case(*case)
    vocab, lines = texts.vocab_of(case), texts.lines_of(case.name, megabytes)
    ours = Tokenizer(vocab, case.lower_case, compat="hf-fast", core="c")
    theirs = hugging_face(vocab, case.lower_case)
    lines, n_dropped, moved = agreeing(ours, theirs, lines)
    ways: dict[str, Callable[[], Any]] = {
        "minibert ids": lambda: ours.encode_batch(lines, threads=threads),
        "minibert offsets": lambda: ours.encode_batch(lines, offsets=True, threads=threads),
        "hf ids": lambda: theirs.encode_batch_fast(lines),
        "hf offsets": lambda: theirs.encode_batch(lines),
    }
    seconds, cores, ids = {way: [] for way in ways}, {way: [] for way in ways}, {way: set() for way in ways}
    for _ in range(rounds):
        for way, encode in ways.items():
            began, used = time.perf_counter(), time.process_time()
            encoded = encode()
            took, busy = time.perf_counter() - began, time.process_time() - used
            seconds[way].append(took)
            cores[way].append(busy / took)
            ids[way].add(len(encoded.ids) if way.startswith("minibert") else sum(map(len, encoded)))
            del encoded
    counts = set.union(*ids.values())
    if len(counts) != 1:
        raise SystemExit(f"the timed runs made different numbers of ids: {ids}")
    return {
        "title": case.title,
        "bytes": sum(len(line.encode()) for line in lines),
        "texts": len(lines),
        "texts_left_out": n_dropped,
        "ids": counts.pop(),
        "offsets_that_differ": moved,
        "threads": threads,
        "seconds": seconds,
        "cores": {way: statistics.median(found) for way, found in cores.items()},
    }


def agreeing(ours: Tokenizer, theirs: tokenizers.Tokenizer, lines: list[str]) -> tuple[list[str], int, int]:
    """The texts whose ids are the same, how many are not, and how many offsets of the former differ."""
    found = ours.encode_batch(lines, offsets=True)
    kept, moved = [], 0
    for line, own, other in zip(lines, found, theirs.encode_batch(lines), strict=True):
        if own.ids.tolist() == other.ids:
            kept.append(line)
            moved += int((own.offsets != np.array(other.offsets)).any(1).sum())
    if len(kept) < 0.99 * len(lines):
        raise SystemExit(f"only {len(kept)} of {len(lines)} texts have the same ids; nothing was timed")
    return kept, len(lines) - len(kept), moved


def both(ours: Tokenizer, theirs: tokenizers.Tokenizer, text: str) -> dict[str, dict[str, Callable]]:
    """What is done to one string: what for -> who -> a call."""
    return {
        "ids": {
            "minibert": lambda: ours.encode(text, add_special_tokens=False),
            "hf": lambda: theirs.encode(text, add_special_tokens=False).ids,
        },
        "[CLS] ids [SEP]": {"minibert": lambda: ours(text).ids, "hf": lambda: theirs.encode(text).ids},
    }


def short(rounds: int, calls: int) -> list[dict[str, Any]]:
    """Microseconds for one string from Python."""
    case = texts.cases()[0]
    vocab = texts.vocab_of(case)
    ours = Tokenizer(vocab, case.lower_case, compat="hf-fast", core="c")
    theirs = hugging_face(vocab, case.lower_case)
    found = []
    for name, text in SHORT.items():
        for what, ways in both(ours, theirs, text).items():
            if list(ways["minibert"]()) != ways["hf"]():
                raise SystemExit(f"{name} has different ids; nothing was timed")
            micros: dict[str, list[float]] = {peer: [] for peer in ways}
            for _ in range(rounds):
                for peer, call in ways.items():
                    micros[peer].append(seconds_of(call, calls) / calls * 1e6)
            title = f"`{name}`" if name == text else f"{name} of {len(text)} characters"
            found.append({"title": f"{title}, {what}", "micros": micros})
    return found


def seconds_of(call: Callable[[], Any], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - began
