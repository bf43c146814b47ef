"""Train a BERT on text, or on the books in the package.

Pre-trains a BERT as in the paper, to predict masked words, and whether one span
of text follows another. It learns a vocabulary, writes the text as token
shards, trains, evaluates the model on held-out documents, and leaves a folder
that `transformers` can load. report.html shows the loss, the speed and the
settings, also during training; explorer.html, written at the end unless the
model is large, lets you type and look inside the model (see minibert show).
A small model that has read texts of 128 tokens is compared with the one in the
package on held-out words. With --model, held-out text is measured before the
first step, too: the report says what the further training has changed.

Progress goes to the error stream: losses (and accuracies), the speed, and what
share of the machine's peak rate of floating-point operations that is. The
report at the end goes to the standard output. Ctrl-C saves the run; --resume
continues exactly where it stopped, with the options that it was started with.

examples:
  minibert pretrain --minutes 8
  minibert pretrain articles/ more.txt.gz --size mini --steps 9000 --out runs/articles
  minibert pretrain news.jsonl.zst --column body --minutes 60
  minibert pretrain --out runs/articles --resume --steps 40000
  minibert pretrain --size 3-192-3 --save-every 1000 --keep 0
  minibert pretrain wiki/ --size large --out runs/128 --optimizer lamb --seq-length 128 \
--batch-size 65536 --accumulate 1024 --steps 7038 --lr 6e-3 --warmup 0.2843
  minibert pretrain wiki/ --size large --out runs/512 --model runs/128 --optimizer lamb \
--seq-length 512 --batch-size 32768 --accumulate 2048 --steps 1563 --lr 4e-3 --warmup 0.128
  minibert pretrain --shards shards --size base --steps 100000
  minibert pretrain --shards shards --size base --engine jax --dtype auto --steps 100000
  minibert pretrain --shards shards --size large --engine jax --fsdp --coordinator node0:9876 \
--processes 4 --process-id 0
"""

import re
import shlex
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minibert.base.bundled_models import DEFAULT, bundled_folder
from minibert.base.errors import InputError
from minibert.base.options import PRETRAINING_FILE
from minibert.base.terminal import emit, json_text
from minibert.cli.shared import accelerators, flags
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.recipes import FURTHER, NEW_HEAD_RATE, RECIPES, SCHEDULES
from minibert.training.runlog import logger

MOST_EXPLORED = 8_000_000  # most parameters for which an explorer is written (about 20 MB) without asking
LEAST_COMPARED = 128  # tokens in the longest sequence of a run that is compared with the model in the package
OPTIMIZERS = """
large batches, --optimizer lamb (You et al. 2020):
  A step of LAMB moves each weight matrix by --lr times the norm of the matrix,
  whatever the norm of its gradient. With thousands of sequences in a step there
  are few steps, which need high rates: LAMB still trains at rates that are too
  high for AdamW, which fell behind beyond 16,384 sequences. (If tuned for each
  batch size, Adam does as well: Nado et al. 2021.) For four times as many
  sequences, double --lr, and raise --warmup, as there are fewer steps.
  --accumulate makes any batch fit into memory. The default --lr is ten times
  AdamW's; that is near the best for tiny with 256 sequences, although AdamW
  learns faster there.
  The two examples below with --optimizer lamb are NVIDIA's published run of
  BERT-large, planned as by You et al.: 65,536 sequences of 128 tokens, then
  32,768 of 512, with a new warm-up from the weights of the first. After the
  warm-up, NVIDIA's rate falls with a square root; here it falls linearly, as
  in the paper.

runs of a minute or two, --optimizer muon (Jordan et al. 2024):
  With Muon, the loss falls below that of guesses without context in fewer
  steps; each step takes 10 to 20% longer with 2-128-4. That model was 0.04 nats
  per byte ahead of AdamW after two minutes, and no longer ahead after eight.
"""


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage and epilog.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert pretrain [CORPUS ... | --shards DIR] [--out DIR] [--size NAME] [...]"
    defaults = f"defaults by --size:\n{_recipe_table()}\n"
    parser.epilog = f"{defaults}{OPTIMIZERS}{accelerators.HELP}{accelerators.MANY}\n{parser.epilog}"
    flags.add_corpus(parser)
    options = PretrainOptions
    group = parser.add_argument_group("the run")
    flags.add_flag(group, "--out DIR", "the run folder (default: runs/ and the name of the text)")
    flags.add_switches(group, resume="continue the run in --out (default: the latest in runs/)")
    flags.add_config(group, PRETRAINING_FILE)
    flags.add_options(group.add_mutually_exclusive_group(), options, "minutes steps")
    flags.add_options(group, options, "seed")
    flags.add_engine(group, default=None)
    flags.add_options(group, options, "evaluations checkpoint_steps checkpoint_seconds keep")
    text = "when training ends or is stopped, print the time and speed of each operation, and write them to "
    text += "trace.json in the run folder, with a timeline of the first steps in trace-events.json"
    flags.add_switches(group, trace=text, quiet=flags.QUIET_REPORT, json=flags.JSON_REPORT)
    group = parser.add_argument_group("text and vocabulary")
    flags.add_layout(group, default=None)
    flags.add_options(group, options, "column shards vocab vocab_size lower_case keep_accents segmented")
    flags.add_options(group, options, "held_out")
    group = parser.add_argument_group("model")
    flags.add_options(group, options, "size model hidden_act max_positions extend_positions dropout")
    flags.add_options(group, options, "attention_dropout unigram_bias dtype")
    optimizer = parser.add_argument_group("batches and optimizer")
    flags.add_options(optimizer, options, "seq_length batch_size accumulate")
    flags.add_optimizer(optimizer, "by size", lamb="for thousands of sequences in a step, see below")
    flags.add_options(optimizer, options, "learning_rate")
    accelerators.add_processes(accelerators.add_accelerators(parser, options))
    group = parser.add_argument_group("what to predict (section 3.1 and Table 8 of the paper)")
    flags.add_options(group, options, "masked_lm_prob mask_rates max_predictions_per_seq whole_word_mask")
    flags.add_options(group, options, "dupe_factor short_seq_prob next_sentence left_to_right")
    flags.add_others(optimizer, parser, options)


def run(arguments: Namespace) -> None:
    """Pre-train, and print the report.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When an option, the text or the folder can't be used.
    """
    from minibert.api.runs import run_folder
    from minibert.pretraining.run import pretrain, report_text

    began = time.monotonic()
    given = flags.given_fields(PretrainOptions, arguments)
    text = given.get("corpus") or filter(None, [given.get("shards")])
    folder = run_folder(arguments.out, arguments.resume, text)
    stored = folder / PRETRAINING_FILE
    options = PretrainOptions.resumed(stored, **given) if arguments.resume else PretrainOptions(**given)
    is_stored = arguments.config and Path(arguments.config).resolve() == stored.resolve()
    if is_stored:
        what = f"--config {arguments.config} would be overwritten by the run in --out {folder}"
        raise InputError(f"{what}; choose another --out.")
    accelerators.join_processes(arguments, options.engine)
    report = pretrain(
        options,
        folder,
        began=began,
        resume=arguments.resume,
        show=not arguments.quiet,
        trace=arguments.trace,
        go_on=f"minibert pretrain --resume --out {shlex.quote(str(folder))}",
    )
    if not report:
        return
    page = _explorer(folder, report["parameters"])
    if arguments.json:
        emit(json_text(report | {"explorer": page}))
        return
    text = report_text(report)
    if page:
        text += f"\nExplorer: {page} (open it in a browser, and type)"
    emit("\n".join([text, *_beside_bundled(report, options)]))


def _explorer(folder: Path, parameters: int) -> str | None:
    """Write the page in which the model runs, unless it is too large for one; return its path."""
    from minibert.explorer import show

    if parameters > MOST_EXPLORED:
        return None
    try:
        show(folder).save(folder / "explorer.html")
    except InputError as error:  # such as a weight beyond float16; no reason to lose the report
        logger.info(f"No explorer was written: {error}")
        return None
    return str(folder / "explorer.html")


def _beside_bundled(report: Mapping[str, Any], options: PretrainOptions) -> list[str]:
    """Return a line that compares a small new model with the one in the package, or none."""
    from minibert.pretraining.predict import compare_words

    is_small = report["parameters"] <= MOST_EXPLORED
    reads_words = report["trained_length"] >= LEAST_COMPARED and not report["left_to_right"]
    losses = None
    try:
        bundled = bundled_folder(DEFAULT)
        if bundled and is_small and reads_words:
            losses = compare_words(report["folder"], bundled, threads=options.threads)
    except InputError as error:  # such as a held-out text without words; no reason to lose the report
        logger.info(f"It was not compared with {DEFAULT}: {error}")
    if losses is None:
        return []
    ours, theirs = losses
    line = f"Loss on {ours.words:,} held-out words: {ours.nats_per_byte:.3f} nats per byte; "
    line += f"that of {DEFAULT}, the BERT in the package: {theirs.nats_per_byte:.3f}"
    if not (options.corpus or options.shards):
        line += " (it was trained on these books, too)"
    return [f"{line}."]


def _recipe_table() -> str:
    """List the recipes, one line per size. Without zeros before decimal points they fit into 80 columns."""

    def compact(value: Any) -> str:
        return re.sub(r"\b0\.", ".", str(value))

    lines = [f"  {'size':<7} {'--lr':<5} --batch-size {'--warmup':<8} --dropout --seq-length"]
    for size, recipe in (RECIPES | {"further": FURTHER}).items():
        rate = compact(recipe.learning_rate)
        warmup = compact(recipe.warmup)
        dropout = compact(recipe.dropout)
        lengths = compact(recipe.seq_length or "*")
        lines.append(f"  {size:<7} {rate:<5} {recipe.batch_size:<12} {warmup:<8} {dropout:<9} {lengths}")
    lines.append("  further: with --model and no --size. Dropout is the model's; --lr is this")
    lines.append("           if it is as wide as base, else a fifth of that of its size, and at")
    lines.append(f"           least {NEW_HEAD_RATE:g} if it has no masked-LM head")
    lines.append("  any other L-H-A: like the size with the nearest H, then the nearest L")
    lines.append("  *: by the number of tokens that the run will read")
    for schedule in SCHEDULES:
        lines.append(f"     from {schedule.tokens / 1e6:>3g} million: {compact(schedule.lengths)}")
    return "\n".join(lines)
