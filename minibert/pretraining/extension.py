"""Words of one's own in a trained BERT: new pieces behind its vocabulary, with rows begun from old ones.

A new piece w that takes the place of the old pieces p_1 ... p_k begins with

    E_w = (1 / k) sum_i E_{p_i}
    b_w = log c_w  +  (1 / k) sum_i (b_{p_i} - log c_{p_i})

E is the embedding, tied to the output, and b the output bias. c_w counts w in the text that pieces are
learned from, as the longer vocabulary cuts it, c_p counts p in it as the old one does, one added to each: a
trained bias is a log-frequency and what training has made of it, so w gets its own frequency and the mean of
its pieces' rest. For words without a text b_w is the least b_{p_i}: a word is no more frequent than its
rarest piece. All other numbers stay: hidden states of texts without new pieces, and the logits of old pieces,
are what they were.
"""

import dataclasses
from collections.abc import Iterable, Sequence
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
PIECES = 500  # that are learned where nobody says how many
HELD_OUT = 50  # of so many lines of the text that pieces are learned from, one is only measured on
SHOWN = 10  # pieces and words in a report


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
    """Give a trained BERT further pieces, and leave a model's folder `out` behind to be trained further.

    Return what `extension.json` in the folder holds; `report_text` makes it readable. Raise InputError when
    the model is fine-tuned, a word can't be a new piece, nothing can be learned, or `out` is taken.

    Parameters
    ----------
    model : a pre-training run, RUN@STEP, or a BERT of Hugging Face's or Google's.
    words : a file with one word a line, of which those that are pieces already are left out; or
    learn_from : files, folders or globs, from which pieces are learned as `minibert vocab` learns them.
    n : how many to learn; 500 when left out.
    special_tokens : strings that are one piece wherever they stand in a text, such as "[DRUG]"; with words,
        with pieces that are learned, or alone.
    measure_on : other text, on which vocabularies and models are measured, before and after. When left out,
        lines of `learn_from` that are held out tell how long words are, and no model is measured.
    engine, threads : what measures the models.
    show : progress, on the error stream.
    """
    out = Path(out)
    if isinstance(special_tokens, str):
        raise InputError("$special_tokens is one string; give a list.", special_tokens=special_tokens)
    special_tokens = list(special_tokens)
    if words is not None and learn_from:
        raise InputError("Both words and learn_from say where new pieces come from; give one of them.")
    if words is None and not learn_from and not special_tokens:
        raise InputError("Nothing says which pieces are new; give --words, --learn-from or --special-token.")
    if not learn_from and n is not None:
        what = "$n says how many pieces to learn, and there is no text to learn from"
        raise InputError(f"{what}; leave it out.", n=n)
    if n is not None and n < 1:
        raise InputError("$n asks for no piece; give at least 1.", n=n)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists and is not empty; choose another --out.")
    require_folder(out)
    config, params, loaded = load(model)
    if params.head.kind != "pretraining":
        what = f"{model} was fine-tuned and has no masked-LM head, by which new pieces learn what they mean"
        raise InputError(f"{what}; extend the model that it was fine-tuned from, then fine-tune that.")
    tokenizer = read_tokenizer(model)
    basic = tokenizer.basic_tokenizer
    check_vocabulary(config, tokenizer)
    counted = None
    special = extending.checked_special_tokens(tokenizer, special_tokens)
    pieces, known = special, []
    if words is not None:
        lines = ((f"{words}, line {number}", line.strip()) for number, line in numbered_lines(words))
        found = extending.checked_words(tokenizer, ((where, word) for where, word in lines if word))
        pieces, known = special + found.pieces, found.known
        if known:
            left_out = f"{counted_text(len(known), 'word')} of {words} left out, as the vocabulary has"
            warn(f"{left_out} {'it' if len(known) == 1 else 'them'} already: {some_of(known)}.")
        if found.repeated:
            warn(f"{counted_text(found.repeated, 'word')} of {words} left out that stood further up already.")
    elif learn_from:
        no_words: dict[str, Any] = {"special_tokens": [*tokenizer.special_tokens, *special_tokens]}
        counted = count_corpus(learn_from, basic, show, held_out=HELD_OUT, threads=threads, **no_words)
        pieces = special + extending.learn_pieces(tokenizer, counted.words, PIECES if n is None else n)
    longer = extending.extended(tokenizer, pieces, special_tokens)
    if lone := extending.lone_characters(tokenizer):
        some = f"{len(lone):,} characters, such as {printable(lone[0])!r}, have no ## piece of their own"
        warn(f"{some}: words in which one follows a new piece become [UNK].")
    grown = _grown(params, tokenizer, longer, [one.replaces for one in pieces], counted and counted.words)
    heard = counted and counted.held_out
    if measure_on:
        no_words = {"special_tokens": longer.special_tokens}
        heard = count_corpus(measure_on, basic, show, threads=threads, **no_words).words
    report: dict[str, Any] = {
        "pieces_added": len(pieces),
        "vocab_size": longer.vocab_size,
        "pieces": [one.piece for one in pieces],
        "special_tokens": list(longer.additional_special_tokens),
        "known": known,
        "were_unknown": sum(one.replaces == [tokenizer.unk_id] for one in pieces),
        "measured": _measured(tokenizer, longer, heard) if heard else None,
    }
    guesses = not config.is_decoder and "cls.predictions.bias" not in loaded.missing

    def fill(folder: Path) -> None:
        save_hf(folder, grown.config, grown, omit=loaded.missing)
        longer.save_pretrained(folder, config.P)
        if measure_on and guesses:
            text = tuple(map(str, measure_on))
            losses = [evaluate_words(one, text, engine=engine, threads=threads) for one in (model, folder)]
            report["measured"]["nats_per_byte"] = [loss.nats_per_byte for loss in losses]
        atomic_json(folder / REPORT, report)

    write_folder_atomically(out, fill)
    return report


def _grown(
    old: Parameters, short: Tokenizer, longer: Tokenizer, replaced: list[list[int]], words: WordCounts | None
) -> Parameters:
    """Return the parameters with rows for new pieces, which first take those that only pad the old ones."""
    vocab_size = max(old.config.V, longer.vocab_size)
    new = Parameters(dataclasses.replace(old.config, vocab_size=vocab_size), dtype=old.flat.dtype)
    for name, value in old.items():
        new[name][tuple(map(slice, value.shape))] = value
    word, bias = new["embeddings.word"], new["mlm.output_bias"]
    rest = bias[: short.vocab_size].astype(np.float64)
    if words is not None:
        rest -= np.log(1 + segmented(short, words).piece_counts)
        log_counts = np.log(1 + segmented(longer, words).piece_counts)
    for number, replaces in enumerate(replaced, start=short.vocab_size):
        word[number] = word[replaces].mean(axis=0, dtype=np.float64)
        own = rest[replaces]
        bias[number] = own.min() if words is None else log_counts[number] + own.mean()
    return new


def _measured(tokenizer: Tokenizer, longer: Tokenizer, words: WordCounts) -> dict[str, Any]:
    """Return what two vocabularies make of some words, before and after, and which words are cut anew."""
    both = [segmented(one, words) for one in (tokenizer, longer)]
    changed = extending.changed_words(tokenizer, longer, words)
    return {
        "words": words.total(),
        "pieces_per_word": [int(one.piece_counts.sum()) / one.n_words for one in both],
        "unknown_words": [one.n_unknown / one.n_words for one in both],
        "cut_anew": sum(one["times"] for one in changed) / words.total(),
        "of_several_pieces": [one for one in changed if len(one["after"]) > 1][:SHOWN],
    }


def report_text(report: dict[str, Any]) -> str:
    """Format a report as a person reads it."""
    shown = " ".join(map(printable, report["pieces"][:SHOWN])) + " …" * (len(report["pieces"]) > SHOWN)
    lines = [f"{report['pieces_added']:,} pieces added, {report['vocab_size']:,} in all: {shown}"]
    if report["were_unknown"]:
        lines.append(f"{report['were_unknown']:,} of them were [UNK], and begin with its row.")
    if measured := report["measured"]:
        lines.append(f"On {measured['words']:,} words not learned from".ljust(40) + "  before   after")
        titles = {"pieces_per_word": "pieces a word", "unknown_words": "share of words that are [UNK]"}
        for name, title in (titles | {"nats_per_byte": "loss of whole words, nats per byte"}).items():
            if name in measured:
                lines.append(f"  {title:<38}{measured[name][0]:>8.4f}{measured[name][1]:>8.4f}")
        several = ", these into several pieces:" if measured["of_several_pieces"] else "."
        lines.append(f"{measured['cut_anew']:.2%} of the words are cut anew{several}")
        for one in measured["of_several_pieces"]:
            cut = f"{' '.join(one['before'])} -> {' '.join(one['after'])}"
            lines.append(f"  {printable(one['word'])} ({one['times']:,}): {printable(cut)}")
    return "\n".join(lines)
