"""Teach a trained BERT a task: GLUE, SQuAD, NER, SWAG, your own.

Fine-tunes a trained BERT for a task, as in the paper: adds one output layer,
trains all layers together, evaluates on dev after every epoch and keeps the
best epoch. `transformers` can load the resulting folder, which also has a
report.html to look at. Several batch sizes, learning rates, numbers of epochs
or restarts make a sweep over all combinations; the run folder itself then holds
the best run.

Progress goes to the error stream, and the report to the standard output. Ctrl-C
saves the run; --resume continues exactly where it stopped, with the options
that it was started with.

examples:
  minibert finetune sst2 --data glue/SST-2 --model runs/books --out runs/sst2
  minibert finetune rte --data glue --model minilm --out runs/rte --lr 5e-5,4e-5,3e-5,2e-5 --restarts 5
  minibert finetune classify --data reviews.csv --column text=review --split-dev 0.1 --model minilm --out r
  minibert finetune rte --data glue --also mnli=glue --also-examples 9000 --model minilm --out runs/both
  minibert finetune --resume --out runs/sst2
"""

import os
import shlex
import time
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path

from minibert.base.errors import InputError
from minibert.base.terminal import counted, emit, json_text
from minibert.cli.shared import accelerators, flags
from minibert.finetuning.options import (
    FEATURE_BASED,
    MUON_BELOW,
    PAPER_RATE,
    PAPER_WIDTH,
    RECIPES,
    USUAL_OPTIMIZER,
    FinetuneOptions,
    rate_for_width,
)
from minibert.tasks.registry import TASKS

TASK_TABLE = "\n".join(f"  {name:<16}{task.about}" for name, task in TASKS.items())
RECIPE_TABLE = "\n".join(
    f"  {name:<16}{counted(recipe.epochs, 'epoch')}, batches of {recipe.batch_size}, "
    f"--lr {recipe.learning_rate:g}"
    for name, recipe in {**RECIPES, "feature-based": FEATURE_BASED}.items()
)
WIDTHS = "\n".join(
    f"  {width:<16}{rate_for_width(PAPER_RATE, width):<16g}{rate_for_width(PAPER_RATE, width, 'muon'):g}"
    for width in (768, 512, 384, 256, 192, 128)
)
NARROW = f"""\
These rates are for AdamW and models of width {PAPER_WIDTH} and more. Models narrower
than {MUON_BELOW} are trained with Muon unless --optimizer is given. Without --lr, the
rate goes with the width. In place of {PAPER_RATE:g}:
  width           adamw           muon
{WIDTHS}
"""


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage and epilog.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    words = "TASK --data DIR [--model MODEL] --out DIR [--lr RATES] [...]"
    parser.usage = f"minibert finetune {words}"
    recipes = f"recipes: 3 epochs, batches of 32, --lr 5e-05, except for\n{RECIPE_TABLE}\n{NARROW}"
    parser.epilog = f"tasks:\n{TASK_TABLE}\n\n{recipes}\n{accelerators.HELP}\n{parser.epilog}"
    parser.add_argument("task", nargs="?", metavar="TASK", help="the task; see below")
    options = FinetuneOptions
    group = parser.add_argument_group("the run")
    text = "a pre-training run or RUN@STEP, a Hugging Face BERT, or a fine-tuned model to train further"
    flags.add_any_model(group, text)
    flags.add_flag(group, "--out DIR", "the run folder", required=True)
    flags.add_switches(group, resume="continue the run in --out")
    flags.add_config(group, "finetune.json")
    flags.add_options(group, options, "epochs patience max_steps seed restarts")
    flags.add_engine(group, default=None)
    flags.add_options(group, options, "checkpoint_steps checkpoint_seconds keep")
    flags.add_switches(group, quiet=flags.QUIET_REPORT, json=flags.JSON_REPORT)
    group = parser.add_argument_group("data")
    text = "folder with the task's official files, or with train, dev and test tables; or one table"
    flags.add_flag(group, "--data PATH", text)
    text = "the columns of your own table: text, second, label (classify, multilabel, regress), words, "
    text += "tags (tag), question, context, answer, start (qa), id; COLUMN is a name or number. Also "
    text += "delimiter=';' and header=no; for tag, layout=words if each word is on a line of its own, or "
    text += "sentence=COLUMN if each word is a row and that column numbers the sentences. For multilabel, "
    text += "the column label has names separated by |, or a list in .jsonl. Repeat the flag for more"
    column = flags.role_and_column
    flags.add_flag(group, "--column NAME=COLUMN", text, dest="columns", type=column, action="append")
    text = "also train on the train file of another task with the same answers; dev remains that of TASK "
    text += "alone. For rte, neutral and contradiction in mnli and snli count as not_entailment. Repeat the "
    text += "flag for more"
    pair = partial(flags.named_pair, form="TASK=DIR, such as snli=pairs")
    flags.add_flag(group, "--also TASK=DIR", text, type=pair, action="append")
    flags.add_options(group, options, "also_examples train_examples dev_examples split_dev")
    flags.add_options(group, options, "max_length token_budget long stride pool most_windows")
    group = parser.add_argument_group("model, batches and optimizer")
    flags.add_options(group, options, "extend_positions dropout attention_dropout freeze feature_based width")
    flags.add_options(group, options, "bilstm class_weights sampling")
    flags.add_options(group, options, "span_weight dtype batch_size accumulate learning_rates")
    text = "for batches of hundreds of examples, with rates ten times AdamW's"
    flags.add_optimizer(group, USUAL_OPTIMIZER, lamb=text)
    accelerators.add_accelerators(parser, options)
    flags.add_others(group, parser, options)


def run(arguments: Namespace) -> None:
    """Fine-tune, and print the report.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When task or data is missing, or flags contradict each other.
    """
    from minibert.finetuning.run import finetune
    from minibert.reports.results import report_text
    from minibert.tasks.stored import OPTIONS_FILE
    from minibert.training.runlog import logger

    began = time.monotonic()
    given = flags.given_fields(FinetuneOptions, arguments)
    if arguments.resume:
        options = FinetuneOptions.resumed(Path(arguments.out) / OPTIONS_FILE, **given)
    else:
        task = given.get("task", "")
        if task not in TASKS and os.path.exists(task):
            advice = f"for a table of your own: minibert finetune classify --data {shlex.quote(task)}"
            raise InputError(f"'{task}' is a file or folder, not a task; {advice}.")
        needed = {"task": "TASK", "data": "--data"}
        missing = ", ".join(word for name, word in needed.items() if name not in given)
        if missing:
            raise InputError(f"A new run needs {missing}; to resume a run, give --resume and its --out.")
        given["model"] = flags.model_or_default(given.get("model"))
        options = FinetuneOptions(**given)
    # Checked here because the options can't tell a default from the same value given explicitly.
    if "width" in given and not options.feature_based:
        raise InputError("--width sets the size of the LSTMs of --feature-based; give that as well.")
    no_effect_on_lstms = {
        "span_weight": "which predicts no spans",
        "attention_dropout": "whose LSTMs have no attention",
    }
    for name, why in no_effect_on_lstms.items():
        if name in given and options.feature_based:
            raise InputError(
                f"{flags.flag_of(name)} has no effect with --feature-based, {why}; leave it out."
            )
    out = Path(arguments.out)
    show = not arguments.quiet
    try:
        report = finetune(options, out, resume=arguments.resume, show=show, began=began)
    except KeyboardInterrupt:
        if show and (out / OPTIONS_FILE).exists():
            logger.info(f"Resume with: minibert finetune --resume --out {shlex.quote(str(out))}")
        raise
    emit(json_text(report) if arguments.json else report_text(report))
