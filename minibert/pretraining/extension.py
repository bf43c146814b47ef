"""Add words to a trained BERT: new pieces after its vocabulary, with rows initialised from old ones.

The rows of a new piece w that replaces the old pieces p_1 ... p_k are initialised by

    E_w = (1 / k) sum_i E_{p_i}
    b_w = log c_w  +  (1 / k) sum_i (b_{p_i} - log c_{p_i})

E is the embedding, tied to the output, and b the output bias. c_w is the count of w in the text that pieces
are learnt from, cut with the longer vocabulary; c_p is the count of p in it, cut with the old one; one is
added to each. A trained bias is a log-frequency plus a rest that training has added, so w gets its own
log-frequency and the mean of the rests of its pieces. For words without a text, b_w is the smallest b_{p_i}:
a word is at most as frequent as its rarest piece. All other parameters stay the same, and so do the hidden
states of texts without new pieces and the logits of old pieces.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError, warn
from minibert.base.files import atomic_json, require_folder, write_folder_atomically
from minibert.base.terminal import counted as counted_text, printable, some_of
from minibert.data.lines import numbered_lines
from minibert.hub import load, save_hf
from minibert.hub.vocabularies import check_vocabulary, read_tokenizer
from minibert.model.params import Parameters
from minibert.pretraining.predict import evaluate_words
from minibert.pretraining.preparation import count_corpus
from minibert.tokenizer import Tokenizer, WordCounts, extending
from minibert.tokenizer.report import segmented

REPORT = "extension.json"
PIECES = 500  # how many to learn by default
HELD_OUT = 50  # one in fifty lines of the text that pieces are learnt from is held out for measuring
SHOWN = 10  # at most, pieces and words in a report
MEASURED = {  # before and after; name in `extension.json` -> title in a report
    "pieces_per_word": "pieces a word",
    "unknown_words": "share of words that are [UNK]",
    "nats_per_byte": "loss of whole words, nats per byte",
}


def extend(
    model: str | Path,
    out: str | Path,
    *,
    words: str | Path | None = None,
    learn_from: Sequence[str | Path] = (),
    n: int | None = None,
    special_tokens: Iterable[str] = (),
    measure_on: Sequence[str | Path] = (),
    engine: str = "auto",
    threads: int | None = None,
    show: bool = True,
) -> dict[str, Any]:
    """Add pieces to a trained BERT, and write a model to the folder `out` for further training.

    Parameters
    ----------
    model : str or Path
        A pre-training run, RUN@STEP, or a BERT from Hugging Face or Google.
    out : str or Path
        The folder to write; it must not exist, or be empty.
    words : str or Path, optional
        A file with one word per line. Words that are already pieces, or are given as special tokens, are left
        out. Give either this or `learn_from`.
    learn_from : sequence of str or Path
        Files, folders or globs, from which pieces are learnt as by `minibert vocab`.
    n : int, optional
        How many pieces to learn; 500 by default.
    special_tokens : iterable of str
        Strings that are one piece wherever they occur in a text, such as "[DRUG]"; with `words`, with
        `learn_from`, or alone.
    measure_on : sequence of str or Path
        Other text, on which vocabularies and models are measured, before and after. By default, only the
        vocabularies are measured, on held-out lines of `learn_from`.
    engine : str, default "auto"
        The engine that measures the models.
    threads : int, optional
        Number of threads for measuring.
    show : bool, default True
        Whether to show progress on the error stream.

    Returns
    -------
    dict
        The content of `extension.json` in the folder; `report_text` formats it.

    Raises
    ------
    InputError
        When the model is fine-tuned, a word can't be a new piece, nothing can be learnt, or `out` is taken.
    """
    out = Path(out)
    if isinstance(special_tokens, str):
        raise InputError(f"{special_tokens=} is one string; give a list.", special_tokens=special_tokens)
    special_tokens = list(special_tokens)
    _check_arguments(out, words, learn_from, n, special_tokens)
    config, params, loaded = load(model)
    if params.head.kind != "pretraining":
        what = (
            f"'{model}' was fine-tuned and has no masked-LM head, from which new pieces learn their meaning"
        )
        raise InputError(f"{what}; extend the model that it was fine-tuned from, then fine-tune that.")
    tokenizer = read_tokenizer(model)
    check_vocabulary(config, tokenizer)
    count = partial(count_corpus, basic=tokenizer.basic_tokenizer, show=show, threads=threads)
    counted = None
    pieces = extending.checked_special_tokens(tokenizer, special_tokens)
    known: list[str] = []
    if words is not None:
        new_words = _words_of_file(words, tokenizer, special_tokens)
        pieces = pieces + new_words.pieces
        known = new_words.known
    elif learn_from:
        special = [*tokenizer.special_tokens, *special_tokens]
        counted = count(learn_from, special_tokens=special, held_out=HELD_OUT)
        most = PIECES if n is None else n
        pieces = pieces + extending.learn_pieces(tokenizer, counted.words, most, special=special_tokens)
    longer = extending.extended(tokenizer, pieces, special_tokens)
    _warn_of_lone_characters(tokenizer)
    replaced = [piece.replaces for piece in pieces]
    grown = _grown(params, tokenizer, longer, replaced, counted and counted.words)
    measured_words = counted and counted.held_out
    if measure_on:
        measured_words = count(measure_on, special_tokens=longer.special_tokens).words
    report = _report(tokenizer, longer, pieces, known, measured_words)
    fills_gaps = not config.is_decoder and "cls.predictions.bias" not in loaded.missing

    def fill(folder: Path) -> None:
        save_hf(folder, grown.config, grown, omit=loaded.missing)
        longer.save_pretrained(folder, config.P)
        if measure_on and fills_gaps:
            text = tuple(map(str, measure_on))
            before = evaluate_words(model, text, engine=engine, threads=threads)
            after = evaluate_words(folder, text, engine=engine, threads=threads)
            report["measured"]["nats_per_byte"] = [before.nats_per_byte, after.nats_per_byte]
        atomic_json(folder / REPORT, report)

    write_folder_atomically(out, fill)
    return report


def _report(
    tokenizer: Tokenizer,
    longer: Tokenizer,
    pieces: list[extending.NewPiece],
    known: list[str],
    words: WordCounts | None,
) -> dict[str, Any]:
    """Return the report of `extend`, for JSON; the loss of whole words is added later."""
    return {
        "pieces_added": len(pieces),
        "vocab_size": longer.vocab_size,
        "pieces": [piece.piece for piece in pieces],
        "special_tokens": list(longer.additional_special_tokens),
        "known": known,
        "were_unknown": sum(piece.replaces == [tokenizer.unk_id] for piece in pieces),
        "measured": _measured(tokenizer, longer, words) if words else None,
    }


def _check_arguments(
    out: Path,
    words: str | Path | None,
    learn_from: Sequence[str | Path],
    n: int | None,
    special_tokens: list[str],
) -> None:
    """Check, before a model is loaded, that the arguments of `extend` fit together."""
    if words is not None and learn_from:
        raise InputError("`words` and `learn_from` are both given; give one of them.")
    if words is None and not learn_from and not special_tokens:
        raise InputError("No new pieces are given; give `words`, `learn_from` or `special_tokens`.")
    if not learn_from and n is not None:
        what = f"{n=} says how many pieces to learn, and there is no text to learn them from"
        raise InputError(f"{what}; leave it out.", n=n)
    if n is not None and n < 1:
        raise InputError(f"{n=} asks for no piece; give at least 1.", n=n)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"'{out}' exists and is not empty; choose another `out`.")
    require_folder(out)


def _warn_of_lone_characters(tokenizer: Tokenizer) -> None:
    lone = extending.lone_characters(tokenizer)
    if lone:
        some = f"{len(lone):,} characters, such as {printable(lone[0])!r}, have no ## piece of their own"
        warn(f"{some}: words in which one follows a new piece become [UNK].")


def _words_of_file(file: str | Path, tokenizer: Tokenizer, special: list[str]) -> extending.NewWords:
    """Read new pieces from a file with one word per line; warn of words that are left out."""
    lines = ((f"{file}, line {number}", line.strip()) for number, line in numbered_lines(file))
    new_words = extending.checked_words(tokenizer, ((place, word) for place, word in lines if word), special)
    known = new_words.known
    if known:
        left_out = f"{counted_text(len(known), 'word')} of {file} left out, as the vocabulary has"
        pronoun = "it" if len(known) == 1 else "them"
        warn(f"{left_out} {pronoun} already: {some_of(known)}.")
    if new_words.repeated:
        repeated = counted_text(new_words.repeated, "word")
        warn(f"{repeated} of {file} left out as repeated.")
    return new_words


def _grown(
    old: Parameters,
    short: Tokenizer,
    longer: Tokenizer,
    replaced: list[list[int]],
    words: WordCounts | None,
) -> Parameters:
    """Return the parameters with rows for new pieces; rows that only pad the vocabulary are used first."""
    vocab_size = max(old.config.V, longer.vocab_size)
    new = Parameters(dataclasses.replace(old.config, vocab_size=vocab_size), dtype=old.flat.dtype)
    for name, value in old.items():
        corner = tuple(map(slice, value.shape))
        new[name][corner] = value
    word = new["embeddings.word"]
    bias = new["mlm.output_bias"]
    rest = bias[: short.vocab_size].astype(np.float64)
    if words is not None:
        rest -= np.log(1 + segmented(short, words).piece_counts)
        log_counts = np.log(1 + segmented(longer, words).piece_counts)
    for number, replaces in enumerate(replaced, start=short.vocab_size):
        word[number] = word[replaces].mean(axis=0, dtype=np.float64)
        rests = rest[replaces]
        bias[number] = rests.min() if words is None else log_counts[number] + rests.mean()
    return new


def _measured(tokenizer: Tokenizer, longer: Tokenizer, words: WordCounts) -> dict[str, Any]:
    """Compare how two vocabularies split words, and list words that are split differently."""
    both = [segmented(tokenizer, words), segmented(longer, words)]
    changed = extending.changed_words(tokenizer, longer, words)
    several = [word for word in changed if len(word["after"]) > 1]
    return {
        "words": words.total(),
        "pieces_per_word": [int(cut.piece_counts.sum()) / cut.n_words for cut in both],
        "unknown_words": [cut.n_unknown / cut.n_words for cut in both],
        "cut_anew": sum(word["times"] for word in changed) / words.total(),
        "of_several_pieces": several[:SHOWN],
    }


def report_text(report: dict[str, Any]) -> str:
    """Format a report for people to read.

    Parameters
    ----------
    report : dict
        The report that `extend` returns.

    Returns
    -------
    str
        Several lines of text.
    """
    shown = " ".join(map(printable, report["pieces"][:SHOWN]))
    if len(report["pieces"]) > SHOWN:
        shown += " …"
    added = counted_text(report["pieces_added"], "piece")
    lines = [f"{added} added, {report['vocab_size']:,} in all: {shown}"]
    unknown = report["were_unknown"]
    if unknown == 1:
        lines.append("1 of them was [UNK], and begins with its row.")
    elif unknown:
        lines.append(f"{unknown:,} of them were [UNK], and begin with its row.")
    measured = report["measured"]
    if measured:
        title = f"On {measured['words']:,} words not learnt from"
        lines.append(f"{title:<40}  before   after")
        for name, title in MEASURED.items():
            if name in measured:
                before, after = measured[name]
                lines.append(f"  {title:<38}{before:>8.4f}{after:>8.4f}")
        several = ", these into several pieces:" if measured["of_several_pieces"] else "."
        lines.append(f"{measured['cut_anew']:.2%} of the words are cut anew{several}")
        for word in measured["of_several_pieces"]:
            cut = f"{' '.join(word['before'])} -> {' '.join(word['after'])}"
            lines.append(f"  {printable(word['word'])} ({word['times']:,}): {printable(cut)}")
    return "\n".join(lines)
