"""Write text as token shards, in one job or split over several.

Turns text into token shards: a folder with the vocabulary and the ids of all
tokens, about two bytes each. `minibert pretrain --shards` trains on it, however
large it is, on any number of machines; each machine reads only what it needs.
(`minibert pretrain CORPUS` does all of this by itself.)

N jobs, on any machines, can prepare a large corpus together. Each makes one
--part I/N: whole files, and about as many bytes as the other parts. Training
gives the same bytes for any N. A job that is started again keeps its part if
that is finished, and the files still have the same names and sizes.

With --show, it prints training instances as the model sees them: two spans with
masked words, each followed by the original word in braces.

examples:
  minibert data articles/ --vocab runs/books --out shards
  minibert data notes.txt --out shards --show 3 --seq-length 64
  minibert data enwiki.xml.bz2 --vocab vocabulary --out shards

a large corpus in 16 parts (a job array of a batch system can replace the loop):
  minibert vocab articles/ --vocab-size 30000 --out vocabulary
  for i in $(seq 16); do
    minibert data articles/ --vocab vocabulary --out shards --part $i/16 &
  done; wait
  minibert pretrain --shards shards --size base --steps 1000000

a single large file would all be in one part, so split it first, between lines:
  split -n l/64 --additional-suffix=.txt articles.txt articles/
"""

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.base.files import require_folder
from minibert.base.terminal import counted, emit, json_text, printable
from minibert.cli.shared.flags import (
    JSON,
    KEEP_ACCENTS,
    QUIET,
    SEGMENTED,
    add_column,
    add_corpus,
    add_flag,
    add_layout,
    add_switches,
)

NEXT_SENTENCE = {0: "  (B follows A)", 1: "  (B is from elsewhere)", -1: ""}


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage line.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert data [CORPUS ...] --out DIR [--vocab PATH] [--part I/N] [...]"
    add_corpus(parser)
    text = "a vocab.txt, or a folder with one (default: learn it as pretrain does; not with --part)"
    add_flag(parser, "--vocab PATH", text)
    text = "keep case and accents, also with --vocab"
    parser.add_argument("--cased", dest="lower_case", action="store_false", help=text)
    add_switches(parser, keep_accents=KEEP_ACCENTS, segmented=SEGMENTED)
    add_flag(parser, "--out DIR", "the folder to write, or to continue", required=True)
    add_flag(parser, "--part I/N", "make only part I of N, such as 2/16, in a folder of its own in --out")
    add_layout(parser)
    add_column(parser)
    add_switches(parser, quiet=QUIET, json=JSON)
    group = parser.add_argument_group("training instances to look at")
    add_flag(group, "--show N", "number of instances to print", 0)
    add_flag(group, "--seq-length N", "tokens in each printed instance", 32)
    text = "single spans, as with pretrain --no-nsp"
    group.add_argument("--no-nsp", dest="next_sentence", action="store_false", help=text)
    add_flag(group, "--seed N", "seed of the printed instances", 0)


def run(arguments: Namespace) -> None:
    """Write token shards, or one part of them, and print instances.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When --show, --seed, --part, the text, the vocabulary or the folder can't be used.
    """
    from minibert.base.options import MOST
    from minibert.data.corpus import embedded_corpus, find_files, layouts_text, sentences
    from minibert.data.instances import InstanceOptions
    from minibert.data.marks import MarkCounts
    from minibert.data.shards.joined import missing_parts
    from minibert.data.shards.parts import Part, finished_part, parts_in, plan_part, write_part
    from minibert.data.shards.store import TokenShards
    from minibert.pretraining.preparation import watched

    part = Part.parse(arguments.part or "1/1")
    out = Path(arguments.out)
    if not 0 <= arguments.show <= MOST:
        raise InputError(
            f"--show {arguments.show} is not a possible number of instances; give 0 to {MOST:,}."
        )
    if arguments.seed < 0:
        raise InputError(f"--seed {arguments.seed} is negative; give 0 or more.")
    if arguments.show and part.parts > 1:
        raise InputError(f"--show needs whole shards; leave it out with --part {part}.")
    options = InstanceOptions(seq_length=arguments.seq_length, next_sentence=arguments.next_sentence)
    files = find_files(arguments.corpus or embedded_corpus())
    tokenizer = _tokenizer(arguments, part, out)
    layout = arguments.layout
    if arguments.column != "text":
        layout += f" --column {arguments.column}"
    planned, part_files = plan_part(files, part, layout, tokenizer)
    made = finished_part(out, planned)
    existed = made is not None
    layouts: dict[str, int] = {}
    place = part.folder_in(out)
    if not made:
        require_folder(place)
        stream = sentences(part_files, arguments.layout, arguments.column) if part_files else None
        marks = MarkCounts(tokenizer.basic_tokenizer)
        shown = watched(stream, "writing shards", not arguments.quiet, marks=marks) if stream else ()
        made = write_part(shown, tokenizer, out, planned)
        if stream:
            layouts = stream.layouts_read
    shards = TokenShards(place, tokenizer) if made.documents else None
    facts: dict[str, Any] = {
        "folder": str(place),
        "part": str(part),
        "was_there": existed,
        "files": len(part_files),
        "documents": getattr(shards, "n_documents", 0),
        "sentences": getattr(shards, "n_sentences", 0),
        "tokens": getattr(shards, "n_tokens", 0),
        "bytes": sum(path.stat().st_size for path in place.glob("*.bin")),
        "missing_parts": missing_parts(parts_in(out)) if part.parts > 1 else "",
    }
    instances = _shown(out, tokenizer, options, arguments.show, arguments.seed)
    if arguments.json:
        emit(json_text(facts | {"instances": list(instances)}))
        return
    _report(facts, part, len(files), layouts_text(layouts) if layouts else "", out)
    for text in instances:
        emit(f"\n{printable(text)}")


def _report(facts: dict[str, Any], part: Any, n_files: int, layouts: str, out: Path) -> None:
    """Print what was written and, for parts, which ones are missing."""
    place = facts["folder"]
    if facts["was_there"]:
        emit(f"{place} already has them, from files of the same names and sizes and the same vocabulary:")
    if part.parts > 1:
        emit(f"Part {part}, {facts['files']:,} of {counted(n_files, 'file')}:")
    if facts["documents"]:
        counts = ", ".join(counted(facts[noun + "s"], noun) for noun in ("document", "sentence", "token"))
        emit(f"{counts}, {facts['bytes'] / facts['tokens']:.2f} bytes a token in {place}")
    else:
        emit(f"No text: no file has its middle in this part's share. {place} records that.")
    if layouts:
        emit(layouts)
    missing = facts["missing_parts"]
    if missing:
        emit(f"Still to be made: part {missing}.")
    elif part.parts > 1:
        emit(f"All {part.parts:,} parts are there: minibert pretrain --shards {shlex.quote(str(out))}")


def _tokenizer(arguments: Namespace, part: Any, out: Path) -> Any:
    """Load the tokenizer that was named or is in the folder, or learn one from the text."""
    from minibert.data.shards.parts import MANIFEST, require_free
    from minibert.pretraining.preparation import learn_vocabulary
    from minibert.tokenizer import Tokenizer, text_rules

    cased = text_rules(not arguments.lower_case, arguments.keep_accents, arguments.segmented)
    if arguments.vocab:
        return Tokenizer.from_pretrained(arguments.vocab, **cased)
    if part.parts > 1:
        advice = "learn it first with minibert vocab CORPUS --out DIR."
        raise InputError(f"--part {part} needs --vocab, as all parts share one vocabulary; {advice}")
    if (out / MANIFEST).exists():
        return Tokenizer.from_pretrained(out, **cased)
    require_free(out)  # before learning, which takes a while
    require_folder(out)
    learning = {"lower_case": arguments.lower_case, "show": not arguments.quiet, "column": arguments.column}
    rules = text_rules(False, arguments.keep_accents, arguments.segmented)
    return learn_vocabulary(arguments.corpus, **learning, **rules)


def _shown(out: Path, tokenizer: Any, options: Any, count: int, seed: int) -> Iterator[str]:
    """Yield training instances as text: pieces, those to predict followed by the original in braces."""
    from minibert.data.instances import Instances
    from minibert.data.shards.joined import open_shards

    if not count:
        return
    shards = open_shards(out, tokenizer)
    instances = Instances(shards, np.arange(shards.n_documents), tokenizer, options, seed)
    for sequence, _ in islice(instances.stream(), count):
        assert sequence is not None  # None is for other machines
        pieces = [tokenizer.vocab[piece] for piece in sequence.input_ids]
        for position, label in zip(sequence.masked_positions, sequence.masked_labels, strict=True):
            pieces[position] += "{" + tokenizer.vocab[label] + "}"
        remark = NEXT_SENTENCE[sequence.next_sentence_label]
        yield " ".join(pieces) + remark
