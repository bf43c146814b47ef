"""`minibert pretrain`: its flags, and what they say about `PretrainOptions`.

The flags have no defaults of their own: what is not said stays None, and `PretrainOptions` and the recipe of
the size decide. That is also how --resume tells what was asked for from what was not.
"""

import argparse
import os
import re
import time
from itertools import count
from pathlib import Path
from typing import Any

from minibert.cli.accelerators import HELP as ACCELERATORS, add_accelerators, join_processes
from minibert.cli.flags import (
    BOTH_WAYS,
    OptionFlags,
    add_attention_dropout,
    add_corpus,
    add_engine,
    add_json,
    add_layout,
    add_optimizer,
    said_fields,
)
from minibert.config import GELU_FORMS, SIZES
from minibert.errors import InputError
from minibert.options import DTYPES
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.recipes import FURTHER, MINUTES, NEW_HEAD_RATE, RECIPES, SCHEDULES
from minibert.terminal import emit, json_text

RUNS = Path("runs")  # where run folders go that were given no name
FLAGS = OptionFlags(PretrainOptions, "by size")

DESCRIPTION = """
Pre-trains a BERT as in the paper: guess masked words, tell whether one span
follows another. It learns a vocabulary, writes the text as token shards,
trains, measures itself on documents that were held out, draws the loss curve,
and leaves a folder that `transformers` loads as it is.

Progress goes to the error stream: losses (accuracies), speed, and its share of
the machine's peak rate of floating-point operations. The report at the end goes
to the standard output. Ctrl-C saves; --resume continues exactly where the run
stopped, with the options it was started with.
"""
LARGE_BATCHES = """
large batches, --optimizer lamb (You et al. 2020):
  A step of LAMB moves each weight matrix by --lr times the norm of the matrix,
  whatever the norm of its gradient. Thousands of sequences in a step leave few
  steps, and these need high rates: LAMB still trains at rates that are too high
  for AdamW, which fell behind beyond 16,384 sequences. (Tuned for each batch
  size, Adam does as well: Nado et al. 2021.) For four times the sequences,
  double --lr; --warmup, a share of ever fewer steps, grows as well.
  --accumulate makes any batch fit into memory. The default --lr is ten times
  AdamW's, near the best for tiny with 256 sequences, though AdamW learns faster
  there.
  The two examples below with --optimizer lamb are NVIDIA's published run of
  BERT-large by the plan of You et al.: 65,536 sequences of 128 tokens, then
  32,768 of 512, warmed up anew from the weights of the first. After the warm-up
  NVIDIA's rate falls with a square root; here it falls in a straight line, as
  in the paper.
"""
EXAMPLES = """
examples:
  minibert pretrain --minutes 8
  minibert pretrain articles/ more.txt.gz --size mini --steps 9000 --out runs/articles
  minibert pretrain --out runs/articles --resume --steps 40000
  minibert pretrain wiki/ --size large --out runs/128 --optimizer lamb --seq-length 128 \
--batch-size 65536 --accumulate 1024 --steps 7038 --lr 6e-3 --warmup 0.2843
  minibert pretrain wiki/ --size large --out runs/512 --init-from runs/128 --optimizer lamb \
--seq-length 512 --batch-size 32768 --accumulate 2048 --steps 1563 --lr 4e-3 --warmup 0.128
  minibert pretrain --shards shards --size base --steps 100000
  minibert pretrain --shards shards --size base --backend jax --dtype auto --steps 100000
  minibert pretrain --shards shards --size large --backend jax --fsdp --coordinator node0:9876 \
--processes 4 --process-id 0
"""


def add_pretrain(commands: Any) -> None:
    """The command's parser."""
    parser = commands.add_parser(
        "pretrain",
        usage="minibert pretrain [CORPUS ... | --shards FOLDER] [--out DIR] [--size NAME] [...]",
        description=DESCRIPTION,
        epilog=f"defaults by --size:\n{_recipe_table()}\n{LARGE_BATCHES}{ACCELERATORS}{EXAMPLES}",
    )
    parser.set_defaults(run=run_pretrain)
    add_corpus(parser)
    _run_flags(parser.add_argument_group("the run"))
    _text_flags(parser.add_argument_group("text and vocabulary"))
    _model_flags(parser.add_argument_group("model"))
    _batch_flags(parser.add_argument_group("batches and optimizer"))
    add_accelerators(parser)
    _instance_flags(parser.add_argument_group("what is predicted (section 3.1 and Table 8 of the paper)"))


def run_pretrain(arguments: argparse.Namespace) -> int:
    """Start a run, or go on with one."""
    from minibert.pretrain import pretrain, report_text

    began = time.monotonic()
    said = said_options(arguments)
    text = arguments.corpus or [arguments.shards] * bool(arguments.shards)
    folder = run_folder(arguments.out, arguments.resume, text)
    if arguments.resume:
        options = PretrainOptions.resumed(folder / "training.json", **said)
    else:
        options = PretrainOptions(**said)
    join_processes(arguments, options.backend)
    report = pretrain(
        options,
        folder,
        resume=arguments.resume,
        show=not arguments.quiet,
        began=began,
        trace=arguments.trace,
    )
    if report:
        emit(json_text(report) if arguments.json else report_text(report))
    return 0


def said_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of `PretrainOptions` that the command line says something about."""
    return said_fields(PretrainOptions, arguments)


def run_folder(out: str | None, resume: bool, corpus: list[str]) -> Path:
    """The folder that was named; otherwise a free one in `runs/`, or the latest one there to go on with."""
    if out is not None:
        return Path(out)
    if not resume:
        names = (_name(corpus) + (f"-{number}" if number > 1 else "") for number in count(1))
        return next(RUNS / name for name in names if not (RUNS / name).exists())
    started = sorted(RUNS.glob("*/training.json"), key=lambda path: path.stat().st_mtime)
    if not started:
        raise InputError("There is no run in runs/ to go on with; name its folder with --out.")
    return started[-1].parent


def _name(corpus: list[str]) -> str:
    """What a text is called: the first file or folder of it without suffixes; a glob is its folder."""
    parts = Path(os.path.abspath(corpus[0])).parts[1:] if corpus else ()  # "." has a name, too
    names = [part.split(".")[0] for part in parts if not set(part) & set("*?[]")]
    return next(filter(None, reversed(names)), "books")


def _run_flags(group: Any) -> None:
    group.add_argument(
        "--out", metavar="DIR", help="the run folder (default: runs/ and the name of the text)"
    )
    group.add_argument(
        "--resume", action="store_true", help="continue the run in --out (default: the latest in runs/)"
    )
    length = group.add_mutually_exclusive_group()
    length.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="how long the command may take; the speed is measured first, and again on the way, so that the "
        f"schedule ends when the time does (default: {MINUTES:g})",
    )
    length.add_argument("--steps", type=int, metavar="N", help="number of updates, instead of --minutes")
    FLAGS.number(group, "--seed", int, "seed of everything that is drawn at random")
    add_engine(group, default=None)
    FLAGS.number(group, "--evaluations", int, "how often the held-out text is measured during training")
    FLAGS.number(
        group, "--save-every", int, "steps between checkpoints; 0: only by --save-seconds", "checkpoint_steps"
    )
    FLAGS.number(group, "--save-seconds", float, "seconds between checkpoints", "checkpoint_seconds")
    FLAGS.number(group, "--keep", int, "checkpoints to keep; 0: all")
    group.add_argument(
        "--trace",
        action="store_true",
        help="when training ends or is stopped, print the time and speed of each operation; also written "
        "to trace.json in the run folder",
    )
    group.add_argument("--quiet", action="store_true", help="show no progress, only the report")
    add_json(group)


def _text_flags(group: Any) -> None:
    add_layout(group, default=None)
    group.add_argument(
        "--shards",
        metavar="FOLDER",
        help="a folder that `minibert data` wrote, in one part or more, in place of CORPUS; its vocabulary "
        "is used. The folder is read where it is, and must not be moved",
    )
    group.add_argument(
        "--vocab", metavar="PATH", help="a vocab.txt or a folder with one (default: learn one)"
    )
    FLAGS.number(group, "--vocab-size", int, "pieces to learn")
    FLAGS.constant(group, "--cased", "lower_case", False, "keep case and accents, with --vocab too")
    FLAGS.number(group, "--held-out", float, "share of the documents that is kept for measuring")


def _model_flags(group: Any) -> None:
    group.add_argument(
        "--size",
        choices=tuple(SIZES),
        metavar="NAME",
        help="tiny, mini, small, medium, base, large, or L-H-A as in the paper's Table 6 (default: tiny)",
    )
    group.add_argument(
        "--init-from",
        metavar="FOLDER",
        help="a trained BERT to train further, Hugging Face's too; its shape and vocabulary are used, and "
        "--size only chooses defaults",
    )
    FLAGS.choice(group, "--hidden-act", GELU_FORMS, "gelu: with the error function; gelu_new: with tanh")
    FLAGS.number(
        group, "--max-positions", int, "the longest sequence the model can ever read; at least --seq-length"
    )
    FLAGS.number(group, "--dropout", float, "dropout rate of embeddings, sublayers and attention")
    add_attention_dropout(group)
    group.add_argument(
        "--unigram-bias",
        action=BOTH_WAYS,
        help="start the output bias at the log-frequencies of the pieces instead of zero (default: by size)",
    )
    FLAGS.choice(
        group,
        "--dtype",
        DTYPES,
        "precision: float32 or float64 throughout; bfloat16 for products and activations, with weights, sums "
        "and losses in float32 (engines cpp and jax); auto: the faster one, bfloat16 on processors with "
        "AMX or (AMD) AVX512-BF16 and with jax on a GPU or TPU",
    )


def _batch_flags(group: Any) -> None:
    group.add_argument(
        "--seq-length",
        metavar="LENGTHS",
        help="tokens in a sequence: 128, or lengths with their shares of the steps, like the paper's "
        "128:0.9,512:0.1 (default: by size, and by how many tokens the run will read, see below)",
    )
    FLAGS.number(
        group, "--batch-size", int, "sequences in a step at the longest length; more where they are shorter"
    )
    FLAGS.number(group, "--accumulate", int, "micro-batches in a step: the same result in less memory")
    add_optimizer(group, "by size", "for thousands of sequences in a step, see below")
    FLAGS.number(group, "--lr", float, "the highest learning rate", "learning_rate")
    FLAGS.number(
        group, "--warmup", float, "share of the steps in which the rate rises; afterwards it falls to zero"
    )
    FLAGS.number(group, "--weight-decay", float, "weight decay of everything but biases and LayerNorm")
    FLAGS.number(group, "--clip-norm", float, "largest norm of the gradient; 0: no limit")
    FLAGS.number(group, "--beta1", float, "decay of the mean of gradients")
    FLAGS.number(group, "--beta2", float, "decay of the mean of their squares")
    FLAGS.number(group, "--adam-eps", float, "added to the root of the mean of squares")


def _instance_flags(group: Any) -> None:
    FLAGS.number(group, "--masked-lm-prob", float, "share of the tokens to predict")
    group.add_argument(
        "--mask-rates",
        type=_rates,
        metavar="MASK,SAME,RND",
        help="shares of these that show [MASK], themselves, a random token (default: 0.8,0.1,0.1)",
    )
    group.add_argument(
        "--max-predictions-per-seq",
        type=int,
        metavar="N",
        help="most tokens to predict in a sequence (default: --masked-lm-prob of --seq-length)",
    )
    FLAGS.constant(group, "--whole-word-mask", "whole_word_mask", True, "mask all pieces of a word or none")
    FLAGS.number(
        group,
        "--dupe-factor",
        int,
        "0: new masks in every pass; N: N fixed copies in turn, as in Google's code",
    )
    FLAGS.number(group, "--short-seq-prob", float, "share of the instances that get a random shorter length")
    FLAGS.constant(group, "--no-nsp", "next_sentence", False, "without next-sentence prediction")
    FLAGS.constant(
        group, "--left-to-right", "left_to_right", True, "the paper's LTR ablation: predict every next word"
    )


def _rates(text: str) -> tuple[float, ...]:
    """`0.8,0.1,0.1` as numbers; that there are three and what they sum to is checked where they are used."""
    try:
        return tuple(float(rate) for rate in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not three numbers such as 0.8,0.1,0.1") from None


def _recipe_table() -> str:
    """The recipes, a line a size, within 80 columns: so numbers below one begin with their point."""
    lines = [f"  {'size':<7} {'--lr':<5} --batch-size {'--warmup':<8} --dropout --seq-length"]
    for size, recipe in (RECIPES | {"further": FURTHER}).items():
        rate, warmup, dropout, lengths = (
            re.sub(r"\b0\.", ".", f"{value}")
            for value in (recipe.learning_rate, recipe.warmup, recipe.dropout, recipe.seq_length or "*")
        )
        lines.append(f"  {size:<7} {rate:<5} {recipe.batch_size:<12} {warmup:<8} {dropout:<9} {lengths}")
    lines.append("  further: with --init-from and no --size, whatever the size of that model;")
    lines.append(f"           --lr {NEW_HEAD_RATE:g} where that has no masked-LM head")
    lines.append("  *: by the tokens that the run will read")
    for schedule in SCHEDULES:
        lengths = re.sub(r"\b0\.", ".", schedule.lengths)
        lines.append(f"     from {schedule.tokens / 1e6:>3g} million: {lengths}")
    return "\n".join(lines)
