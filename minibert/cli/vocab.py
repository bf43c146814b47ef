"""Learn a WordPiece vocabulary, or measure one on a text.

Learns a WordPiece vocabulary. It begins with characters, and repeatedly joins
two neighbouring pieces: those that raise the likelihood of the text most, or
the most frequent ones, as in byte-pair encoding. Writes vocab.txt,
tokenizer_config.json and tokenizer.json, which `transformers` and `tokenizers`
read as well, and a report on lines that were held out.

examples:
  minibert vocab --out vocabulary
  minibert vocab articles/ --vocab-size 30000 --cased --out vocabulary
  minibert vocab --report-on bert-base-uncased/vocab.txt articles/
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError, warn
from minibert.base.files import atomic_json, require_folder, write_folder_atomically
from minibert.base.model_names import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, VOCABULARY_FILE
from minibert.base.terminal import emit, json_text
from minibert.cli.shared import flags

OTHER = {"likelihood": "frequency", "frequency": "likelihood"}
REPORT = "vocab-report.json"
WRITTEN = (VOCABULARY_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, REPORT)
# In a folder with one of these files, the vocabulary belongs to a run, a model (Hugging Face's or
# TensorFlow's), or token shards, whole or in parts.
OWNERS = "training.json config.json bert_config.json *.index meta.json part.json */part.json".split()
LEARNING = {  # defaults of flags for learning, which are None if not given
    "vocab_size": 8192, "alphabet_limit": 1000, "min_frequency": 2, "unused": 0, "user_token": [],
    "objective": "likelihood",
}  # fmt: skip


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage line.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert vocab [CORPUS ...] (--out DIR | --report-on PATH) [--vocab-size N] [...]"
    flags.add_corpus(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    flags.add_flag(where, "--out DIR", "the folder to write into")
    flags.add_flag(where, "--report-on PATH", "measure this vocabulary on the text instead of learning one")
    group = parser.add_argument_group("learning")
    for name, text in (
        ("vocab_size", "pieces to learn"),
        ("alphabet_limit", "number of characters to keep: the most frequent ones"),
        ("min_frequency", "rarer pairs of neighbours are never joined"),
        ("unused", "reserved pieces [unused0], [unused1], ..."),
    ):
        flags.add_flag(group, f"{flags.flag_of(name)} N", f"{text} (default: {LEARNING[name]})")
    text = "a piece that the vocabulary must have: a word (in lower case, unless --cased) or, beginning with "
    text += "a punctuation mark, a special token like [ENTITY]; repeat the flag for more"
    flags.add_flag(group, "--user-token PIECE", text, action="append")
    text = "join the neighbours that raise the likelihood of the text most, or the most frequent ones"
    flags.add_flag(group, "--objective", f"{text} (default: {LEARNING['objective']})", choices=tuple(OTHER))
    group.add_argument("--cased", dest="lower_case", action="store_false", help="keep case and accents")
    flags.add_switches(group, keep_accents=flags.KEEP_ACCENTS, segmented=flags.SEGMENTED)
    group = parser.add_argument_group("text and report")
    text = "share of the lines to hold out for the report, rounded to one line in n; 0: learn from all lines"
    flags.add_flag(group, "--held-out SHARE", text, 0.02)
    flags.add_switches(group, no_comparison="don't also learn by the other objective, for comparison")
    flags.add_column(group)
    strict = "stop at the first byte that is not UTF-8"
    flags.add_switches(group, strict=strict, quiet=flags.QUIET, json=flags.JSON)
    flags.add_core(parser)


def run(arguments: Namespace) -> None:
    """Learn or measure a vocabulary, and print the report.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When flags contradict each other, or the folder or the text can't be used.
    """
    from minibert.data.marks import MarkCounts
    from minibert.pretraining.preparation import count_corpus, learn_tokenizer
    from minibert.tokenizer import Tokenizer, text_rules
    from minibert.tokenizer.report import report_text, vocabulary_report

    given = [name for name in LEARNING if getattr(arguments, name) is not None]
    if given and arguments.report_on:
        have = "has" if len(given) == 1 else "have"
        names = " and ".join(map(flags.flag_of, given))
        what = f"--report-on learns no vocabulary, so {names} {have} no effect"
        raise InputError(f"{what}; leave that out, or learn one with --out.")
    for name in LEARNING.keys() - given:
        setattr(arguments, name, LEARNING[name])
    rules = text_rules(False, arguments.keep_accents, arguments.segmented)
    if arguments.report_on:
        given_rules = text_rules(not arguments.lower_case, arguments.keep_accents, arguments.segmented)
        tokenizer = Tokenizer.from_pretrained(arguments.report_on, core=arguments.core, **given_rules)
        basic = tokenizer.basic_tokenizer
        special = list(tokenizer.special_tokens)
    else:
        out = Path(arguments.out)
        _require_free(out)
        basic, special = _rules_to_learn_by(arguments, rules)
    share = arguments.held_out
    if share and not 5e-10 <= share <= 0.5:
        raise InputError(f"--held-out {share:g} is not a possible share; give 0, or from 5e-10 to 0.5.")
    marks = MarkCounts(basic)
    how = flags.selected(arguments, "core strict threads column")
    how["special_tokens"] = special
    how["held_out"] = round(1 / share) if share else 0  # one line in so many
    how["marks"] = marks
    counted = count_corpus(arguments.corpus, basic, not arguments.quiet, **how)
    marks.warn()
    if counted.n_invalid:
        warn(flags.invalid_text(counted.n_invalid))

    def learn(objective: str, size: int) -> Tokenizer:
        learning = flags.selected(arguments, "core alphabet_limit min_frequency unused")
        learning["objective"] = objective
        learning["user_tokens"] = arguments.user_token
        shown = not arguments.quiet
        return learn_tokenizer(counted.words, size, arguments.lower_case, shown, rules, **learning)

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
    if arguments.json:
        emit(json_text(report))
    else:
        file = arguments.report_on or out / VOCABULARY_FILE
        emit(f"{tokenizer.vocab_size:,} pieces in {file}\n{report_text(report)}")


def _require_free(out: Path) -> None:
    """Raise InputError if a folder can't be written into, or has a vocabulary that must not be replaced."""
    owners = [path.name for name in OWNERS for path in out.glob(name)]
    if owners:
        what = f"'{out}' holds the {owners[0]} of a model or of token shards"
        raise InputError(f"{what}, whose vocabulary would be replaced; choose another --out.")
    existing = [name for name in WRITTEN if (out / name).exists()]
    if existing:
        advice = "remove it, or choose another --out."
        raise InputError(f"'{out}' already holds a vocabulary ({', '.join(existing)}); {advice}")
    require_folder(out)


def _rules_to_learn_by(arguments: Namespace, rules: dict[str, Any]) -> tuple[Any, list[str]]:
    """Return the splitter of text into words, and the special tokens of the vocabulary."""
    from minibert.pretraining.preparation import special_tokens
    from minibert.tokenizer import SPECIAL_TOKENS, BasicTokenizer
    from minibert.tokenizer.learner import first_pieces

    first_pieces(arguments.unused, arguments.user_token)  # invalid ones are found before counting
    lower_case = arguments.lower_case
    special = [*SPECIAL_TOKENS, *special_tokens(arguments.user_token, lower_case, rules)]
    return BasicTokenizer(lower_case, **rules), special


def _save(tokenizer: Any, report: dict[str, Any], out: Path) -> None:
    """Write the vocabulary and its report; a new folder appears completely or not at all."""

    def fill(folder: Path) -> None:
        tokenizer.save_pretrained(folder)
        atomic_json(folder / REPORT, report)

    if out.exists() and any(out.iterdir()):
        fill(out)
    else:
        write_folder_atomically(out, fill)
