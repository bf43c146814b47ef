"""Learn a WordPiece vocabulary, or measure one on a text.

Learns a WordPiece vocabulary. It begins with the characters and joins two
neighbouring pieces again and again: those that raise the likelihood of the
text most, or the most frequent ones as byte-pair encoding does. Writes
vocab.txt, tokenizer_config.json and tokenizer.json, which `transformers` and
`tokenizers` read as well, and a report on lines that were held out.

examples:
  minibert vocab --out vocabulary
  minibert vocab articles/ --vocab-size 30000 --cased --out vocabulary
  minibert vocab --report-on bert-base-uncased/vocab.txt articles/
"""

import argparse
from pathlib import Path
from typing import Any

from minibert.cli.shared import flags
from minibert.errors import InputError, warn
from minibert.files import atomic_json, require_folder, write_folder_atomically
from minibert.terminal import emit, json_text

OTHER = {"likelihood": "frequency", "frequency": "likelihood"}
REPORT = "vocab-report.json"
WRITTEN = ("vocab.txt", "tokenizer_config.json", "tokenizer.json", REPORT)
# In a folder with one of these the vocabulary belongs to a run, a model of Hugging Face's or TensorFlow's, or
# token shards, whole or in parts.
OWNERS = "training.json config.json bert_config.json *.index meta.json part.json */part.json".split()
LEARNING = {  # what the flags are where they are not given
    "vocab_size": 8192, "alphabet_limit": 1000, "min_frequency": 2, "unused": 0, "user_token": [],
    "objective": "likelihood",
}  # fmt: skip


def add(parser: Any) -> None:
    parser.usage = "minibert vocab [CORPUS ...] (--out DIR | --report-on PATH) [--vocab-size N] [...]"
    flags.add_corpus(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="DIR", help="the folder to write into")
    text = "learn nothing; measure this vocabulary on the text"
    where.add_argument("--report-on", metavar="PATH", help=text)
    group = parser.add_argument_group("learning")
    for name, text in (
        ("vocab_size", "pieces to learn"),
        ("alphabet_limit", "number of characters to keep, the most frequent ones"),
        ("min_frequency", "neighbours that are rarer are never joined"),
        ("unused", "reserved pieces [unused0], [unused1], ..."),
    ):
        flags.add_number(group, flags.flag_of(name), f"{text} (default: {LEARNING[name]})")
    text = "a piece that the vocabulary must have: a word as lower-casing leaves it, or, in ASCII and with a "
    text += "punctuation mark first, a special token like [ENTITY]; repeat the flag for more"
    group.add_argument("--user-token", action="append", metavar="PIECE", help=text)
    text = "join the neighbours that raise the likelihood of the text most, or the most frequent ones"
    text += f" (default: {LEARNING['objective']})"
    group.add_argument("--objective", choices=tuple(OTHER), help=text)
    flags.add_switches(group, cased="keep case and accents")
    group = parser.add_argument_group("text and report")
    text = "share of the lines only measured on, rounded to one line in n; 0: learn from all, measure nothing"
    flags.add_flag(group, "--held-out", text, 0.02, metavar="SHARE")
    text = "don't learn by the other objective to compare with"
    group.add_argument("--no-comparison", action="store_true", help=text)
    flags.add_column(group)
    flags.add_switches(group, strict="stop at the first byte that is not UTF-8")
    flags.add_quiet(group)
    flags.add_json(group)
    flags.add_core(parser)


def _fill_in(arguments: argparse.Namespace) -> None:
    """Give the learning flags their defaults; refuse them where nothing is learned."""
    given = [name for name in LEARNING if getattr(arguments, name) is not None]
    if given and arguments.report_on:
        what = f"--report-on learns nothing, which {' and '.join(map(flags.flag_of, given))} would be for"
        raise InputError(f"{what}; leave that out, or learn with --out.")
    for name in LEARNING.keys() - given:
        setattr(arguments, name, LEARNING[name])


def run(arguments: argparse.Namespace) -> None:
    from minibert.pretraining.preparation import count_corpus, learn_tokenizer, special_tokens
    from minibert.tokenizer import CASED, BasicTokenizer, Tokenizer
    from minibert.tokenizer.learner import first_pieces
    from minibert.tokenizer.report import report_text, vocabulary_report

    _fill_in(arguments)
    core: dict[str, Any] = {"core": arguments.core}
    if arguments.report_on:
        cased = CASED if arguments.cased else {}
        tokenizer = Tokenizer.from_pretrained(arguments.report_on, **core, **cased)
        basic = tokenizer.basic_tokenizer
    else:
        out = Path(arguments.out)
        if owners := [path.name for name in OWNERS for path in out.glob(name)]:
            found = f"{out} holds {owners[0]} of a model or of token shards"
            raise InputError(f"{found}, to which its vocabulary belongs; choose another --out.")
        if held := [name for name in WRITTEN if (out / name).exists()]:
            advice = "remove it, or choose another --out."
            raise InputError(f"{out} holds a vocabulary already ({', '.join(held)}); {advice}")
        require_folder(out)
        first_pieces(arguments.unused, arguments.user_token)  # bad ones are found before the counting
        special_tokens(arguments.user_token, not arguments.cased)
        basic = BasicTokenizer(not arguments.cased)
    how = core | {"strict": arguments.strict, "threads": arguments.threads, "column": arguments.column}
    held_out = _modulus(arguments.held_out)
    counted = count_corpus(arguments.corpus, basic, not arguments.quiet, held_out=held_out, **how)
    if counted.n_invalid:
        warn(flags.invalid_text(counted.n_invalid))

    def learn(objective: str, size: int) -> Tokenizer:
        names = ("alphabet_limit", "min_frequency", "unused")
        given = core | {name: getattr(arguments, name) for name in names}
        given |= {"objective": objective, "user_tokens": arguments.user_token}
        return learn_tokenizer(counted.words, size, not arguments.cased, not arguments.quiet, **given)

    others = {}
    if not arguments.report_on:
        tokenizer = learn(arguments.objective, arguments.vocab_size)
        if not arguments.no_comparison and len(counted.held_out):
            other = OTHER[arguments.objective]
            others[other] = learn(other, tokenizer.vocab_size)
    report = vocabulary_report(tokenizer, counted.words, counted.held_out, others, arguments.user_token)
    if not arguments.report_on:
        report = {"objective": arguments.objective, **report}
        _save(tokenizer, report, out)
    file = arguments.report_on or out / "vocab.txt"
    text = f"{tokenizer.vocab_size:,} pieces in {file}\n{report_text(report)}"
    emit(json_text(report) if arguments.json else text)


def _modulus(share: float) -> int:
    """Return n where one line of n is held out."""
    if share and not 5e-10 <= share <= 0.5:
        raise InputError(f"--held-out {share:g} is no share to measure on; give 0, or from 5e-10 to 0.5.")
    return round(1 / share) if share else 0


def _save(tokenizer: Any, report: dict[str, Any], out: Path) -> None:
    """Write the vocabulary and its report; a folder that is new appears whole or not at all."""

    def fill(folder: Path) -> None:
        tokenizer.save_pretrained(folder)
        atomic_json(folder / REPORT, report)

    if out.exists() and any(out.iterdir()):
        fill(out)
    else:
        write_folder_atomically(out, fill)
