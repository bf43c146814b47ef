"""`minibert finetune`, `predict`, `classify`, and `evaluate` where the folder holds a fine-tuned model."""

import argparse
import shlex
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from minibert.cli.accelerators import HELP as ACCELERATORS, add_accelerators, join_processes
from minibert.cli.flags import (
    OptionFlags,
    add_attention_dropout,
    add_engine,
    add_json,
    add_optimizer,
    said_fields,
)
from minibert.cli.lines import STANDARD_INPUT, refuse_file, text_lines
from minibert.errors import InputError
from minibert.finetuning.options import FEATURE_BASED, RECIPES, SWEEP, FinetuneOptions
from minibert.finetuning.registry import TASKS
from minibert.finetuning.task import SPLITS
from minibert.options import DTYPES
from minibert.terminal import emit, json_text, printable

FLAGS = OptionFlags(FinetuneOptions, "by task")
TASK_TABLE = "\n".join(f"  {name:<15}{task.about}" for name, task in TASKS.items())
RECIPE_TABLE = "\n".join(
    f"  {name:<15}{recipe.epochs:g} epochs, batches of {recipe.batch_size}, --lr {recipe.learning_rate:g}"
    for name, recipe in {**RECIPES, "feature-based": FEATURE_BASED}.items()
)
DTYPE_HELP = "precision: float32, float64, bfloat16, or auto for the fastest"
FILES_INSTEAD = (
    "use minibert predict --model RUN --data FILE --out DIR for the rows of a table, or "
    "minibert classify RUN < FILE for lines of text"
)
MODEL_HELP = "a pre-training run, a Hugging Face BERT, or a fine-tuned model to train further"


def add_finetune(commands: Any) -> None:
    """The parser of `minibert finetune`."""
    parser = commands.add_parser(
        "finetune",
        usage="minibert finetune TASK --data DIR --model RUN --out DIR [--lr RATES] [--restarts N] [...]",
        description="""
Fine-tunes a trained BERT for a task, as in the paper: one new output layer,
everything trained together, measured on dev after every epoch, the best epoch
kept. Leaves a folder that `transformers` loads, with report.html to look at.
Several learning rates or restarts make a sweep, whose best run is kept in the
run folder itself.

Progress goes to the error stream, the report to the standard output. Ctrl-C
saves; --resume continues exactly where the run stopped, with the options it was
started with.
""",
        epilog=f"""tasks:
{TASK_TABLE}

recipes: 3 epochs, batches of 32, --lr 5e-05, except for
{RECIPE_TABLE}
{ACCELERATORS}
examples:
  minibert finetune sst2 --data glue/SST-2 --model runs/books --out runs/sst2
  minibert finetune rte --data glue --model minilm --out runs/rte --lr 5e-5,4e-5,3e-5,2e-5 --restarts 5
  minibert finetune classify --data reviews.csv --column text=review --split-dev 0.1 --model minilm --out r
  minibert finetune --resume --out runs/sst2
""",
    )
    parser.set_defaults(run=run_finetune)
    parser.add_argument("task", nargs="?", metavar="TASK", help="what to learn; see below")
    _run_flags(parser.add_argument_group("the run"))
    _data_flags(parser.add_argument_group("data"))
    _training_flags(parser.add_argument_group("model, batches and optimizer"))
    add_accelerators(parser)


def _run_flags(group: Any) -> None:
    group.add_argument("--model", metavar="RUN", help=MODEL_HELP)
    group.add_argument("--out", metavar="DIR", required=True, help="the run folder")
    group.add_argument("--resume", action="store_true", help="continue the run in --out")
    FLAGS.number(group, "--epochs", float, "passes over the examples")
    group.add_argument("--max-steps", type=int, metavar="N", help="stop after this many steps at the latest")
    FLAGS.number(group, "--seed", int, "seed of everything that is drawn at random")
    FLAGS.number(group, "--restarts", int, "runs for every learning rate, each with the next seed")
    add_engine(group, default=None)
    FLAGS.number(
        group, "--save-every", int, "steps between checkpoints; 0: only by --save-seconds", "checkpoint_steps"
    )
    FLAGS.number(group, "--save-seconds", float, "seconds between checkpoints", "checkpoint_seconds")
    FLAGS.number(group, "--keep", int, "checkpoints to keep; 0: all")
    group.add_argument("--quiet", action="store_true", help="show no progress, only the report")
    add_json(group)


def _data_flags(group: Any) -> None:
    group.add_argument(
        "--data", metavar="DIR", help="folder of the task's official files, or of train, dev and test tables"
    )
    _add_columns(group)
    group.add_argument(
        "--train-examples",
        type=int,
        metavar="N",
        help="learn from N examples, always the same; from more to keep documents whole (default: all)",
    )
    group.add_argument(
        "--dev-examples",
        type=int,
        metavar="N",
        help="measure on N examples, chosen in the same way (default: all)",
    )
    group.add_argument(
        "--split-dev",
        type=float,
        metavar="SHARE",
        help="where only one file has labels, dev or train: measure on this share of it, and of each class, "
        "learn from the rest",
    )
    FLAGS.number(group, "--max-length", int, "most tokens in a sequence, [CLS] and [SEP] included")
    FLAGS.number(group, "--token-budget", int, "tokens in a batch when measuring")


def _add_columns(group: Any) -> None:
    group.add_argument(
        "--column",
        dest="columns",
        type=_column,
        action="append",
        metavar="NAME=COLUMN",
        help="what is where in your own table: text, second, label (classify, regress), words, tags (tag), "
        "question, context, answer, start (qa), id; COLUMN is a name or number. Also delimiter=';', "
        "header=no, and layout=words where each word has a line (tag). Repeat the flag for more",
    )


def _training_flags(group: Any) -> None:
    FLAGS.number(
        group,
        "--dropout",
        float,
        "dropout rate of embeddings, sublayers, attention and before the output layer",
    )
    add_attention_dropout(group)
    group.add_argument(
        "--freeze", type=int, metavar="N", help="leave the embeddings and the lowest N layers as they are"
    )
    group.add_argument(
        "--feature-based",
        metavar="LAYERS",
        help="leave the model as it is and train LSTMs on these layers: embeddings, second-to-last, "
        "last, sum-last-4, concat-last-4, sum-all (ner, tag)",
    )
    FLAGS.number(group, "--width", int, "units of these LSTMs in each direction")
    FLAGS.number(
        group,
        "--span-weight",
        float,
        "weight of the losses of start and end: 0.5 for their mean, 1 for their sum",
    )
    FLAGS.choice(group, "--dtype", DTYPES, DTYPE_HELP)
    FLAGS.number(group, "--batch-size", int, "examples in a step")
    FLAGS.number(group, "--accumulate", int, "micro-batches in a step: the same result in less memory")
    group.add_argument(
        "--lr",
        dest="learning_rates",
        type=_rates,
        metavar="RATES",
        help="the highest learning rate, or several to try in turn: the paper's are "
        + ",".join(f"{rate:.0e}".replace("e-0", "e-") for rate in SWEEP)
        + " (default: by task)",
    )
    add_optimizer(group, "adamw", "for batches of hundreds of examples, with rates ten times AdamW's")
    FLAGS.number(
        group, "--warmup", float, "share of the steps in which the rate rises; then it falls to zero"
    )
    FLAGS.number(group, "--weight-decay", float, "weight decay of everything but biases and LayerNorm")
    FLAGS.number(group, "--clip-norm", float, "largest norm of the gradient; 0: no limit")
    FLAGS.number(group, "--beta1", float, "decay of the mean of gradients")
    FLAGS.number(group, "--beta2", float, "decay of the mean of their squares")
    FLAGS.number(group, "--adam-eps", float, "added to the root of the mean of squares")


def run_finetune(arguments: argparse.Namespace) -> int:
    """Start a run or a sweep, or go on with one."""
    from minibert.finetune import OPTIONS_FILE, finetune, report_text
    from minibert.runlog import say

    began = time.monotonic()
    said = said_fields(FinetuneOptions, arguments)
    if arguments.resume:
        options = FinetuneOptions.resumed(Path(arguments.out) / OPTIONS_FILE, **said)
    elif lacking := [name for name in ("task", "data", "model") if name not in said]:
        words = ", ".join(name.upper() if name == "task" else f"--{name}" for name in lacking)
        raise InputError(f"minibert finetune needs {words} too, or --resume with the --out of a run.")
    else:
        options = FinetuneOptions(**said)
    _check_used(options, said)
    join_processes(arguments, options.backend)
    out, show = Path(arguments.out), not arguments.quiet
    try:
        report = finetune(options, out, resume=arguments.resume, show=show, began=began)
    except KeyboardInterrupt:
        if show and (out / OPTIONS_FILE).exists():
            say(f"Go on with: minibert finetune --resume --out {shlex.quote(str(out))}")
        raise
    emit(json_text(report) if arguments.json else report_text(report))
    return 0


def _check_used(options: FinetuneOptions, said: dict[str, Any]) -> None:
    """Raise InputError when something was said that nothing depends on."""
    if "width" in said and not options.feature_based:
        raise InputError("--width is of the LSTMs of --feature-based; say which layers they read, too.")
    if "span_weight" in said and options.feature_based:
        raise InputError(
            "--span-weight has no effect on --feature-based, which finds no spans; leave it out."
        )
    if "attention_dropout" in said and options.feature_based:
        raise InputError(
            "--attention-dropout has no effect on --feature-based, whose LSTMs do not attend; leave it out."
        )


def add_predict(commands: Any) -> None:
    """The parser of `minibert predict`."""
    parser = commands.add_parser(
        "predict",
        description="""
Predicts a split with a fine-tuned model and writes the task's official files
(GLUE's for its server; predictions, n best and null odds of SQuAD), and every
prediction as a line of JSON. Several models are averaged, as in the paper's
ensembles. Where the split has labels, the official figures are printed. A table
of your own needs none; its texts stand beside the predictions.
""",
        epilog="""
examples:
  minibert predict --model runs/rte --data glue --split test --out submission
  minibert predict --model runs/a --model runs/b --data squad --split dev --out ensemble
  minibert predict --model runs/reviews --data new_reviews.csv --out answers
""",
    )
    parser.set_defaults(run=run_predict)
    parser.add_argument(
        "--model",
        action="append",
        required=True,
        metavar="RUN",
        help="a fine-tuned model; repeat the flag for more",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the files")
    add_measured(parser)
    parser.add_argument(
        "--majority",
        action="store_true",
        help="predict the most frequent class everywhere, as the paper does for WNLI",
    )
    add_engine(parser)
    add_json(parser)


def add_measured(parser: Any) -> None:
    """Which examples, and how; also of `minibert evaluate`."""
    parser.add_argument(
        "--data", metavar="DIR", help="folder of the task's files (default: those it was fine-tuned on)"
    )
    parser.add_argument("--split", choices=SPLITS, default="dev", help="which examples (default: dev)")
    parser.add_argument(
        "--task",
        metavar="TASK",
        help="another task whose answers mean the same, such as mnli-mm or ax for a model of mnli "
        "(default: the model's own)",
    )
    FLAGS.choice(parser, "--dtype", DTYPES, DTYPE_HELP)
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run_predict(arguments: argparse.Namespace) -> int:
    """Predict, and say what was written."""
    from minibert.finetune import predict, predicted_text

    report = predict(
        arguments.model,
        arguments.data,
        arguments.split,
        arguments.out,
        task=arguments.task,
        majority=arguments.majority,
        backend=arguments.backend,
        threads=arguments.threads,
        dtype=arguments.dtype or FinetuneOptions.dtype,
        show=not arguments.quiet,
    )
    emit(json_text(report) if arguments.json else predicted_text(report))
    return 0


def run_evaluate_task(arguments: argparse.Namespace) -> int:
    """Measure a fine-tuned model on its task, and print."""
    from minibert.finetune import evaluate, measured_text

    if arguments.corpus:
        raise InputError(
            f"{arguments.folder} holds a fine-tuned model, which is measured on its task and not on "
            f"{arguments.corpus[0]}; name a folder with --data, or nothing."
        )

    report = evaluate(
        [arguments.folder],
        arguments.data,
        arguments.split,
        task=arguments.task,
        backend=arguments.backend,
        threads=arguments.threads,
        dtype=arguments.dtype or FinetuneOptions.dtype,
        show=not (arguments.json or arguments.quiet),
    )
    emit(json_text(report) if arguments.json else measured_text(report))
    return 0


def add_classify(commands: Any) -> None:
    """The parser of `minibert classify`."""
    parser = commands.add_parser(
        "classify",
        description="""
Prints what a fine-tuned model says of a text, or of a pair of texts: every
class with its probability, or a number. Without TEXT it reads lines from the
standard input, with a tab between the two texts of a pair, and answers each at
once. A line that is not a text (or pair) gets an empty answer, and a message on
the error stream; the exit status is then 1.
""",
        epilog="""
examples:
  minibert classify runs/sst2 "a charming and often affecting journey"
  minibert classify runs/rte "Dana Reeve has died." "Dana Reeve lives." --json
  minibert classify runs/sst2 < reviews.txt
""",
    )
    parser.set_defaults(run=run_classify)
    parser.add_argument("folder", metavar="RUN", help="a fine-tuned model")
    parser.add_argument("text", nargs="?", metavar="TEXT", help="the text, or the first of a pair")
    parser.add_argument("second", nargs="?", metavar="SECOND", help="the second of a pair")
    add_engine(parser)
    add_json(parser)


def run_classify(arguments: argparse.Namespace) -> int:
    """Ask, and print."""
    from minibert.finetune import classify
    from minibert.finetuning.cuts import Cuts, warn_of_cuts
    from minibert.finetuning.models import Finetuned

    for text in (arguments.text, arguments.second):
        refuse_file(text, FILES_INSTEAD)
    model = Finetuned.from_pretrained(arguments.folder, arguments.backend, arguments.threads)
    given = arguments.text is not None
    cuts = Cuts(model.max_length)
    ask = partial(classify, arguments.folder, threads=arguments.threads, model=model, cuts=cuts)
    ask([])  # which complains of a model that has no classes
    status = 0
    for number, texts in enumerate([(arguments.text, arguments.second)] if given else _pairs(), start=1):
        found = None
        try:
            (found,) = ask([texts])
        except InputError as error:
            if given:
                raise
            emit(f"minibert: line {number:,}: {printable(str(error))}", file=sys.stderr)
            status = 1
        emit(json_text(found, indent=None) if arguments.json else _said(found, in_full=given), flush=True)
    warn_of_cuts({"": cuts}, model.config.P)
    return status


def _pairs() -> Iterator[tuple[str, str | None]]:
    """Texts and pairs of the standard input."""
    for line in text_lines(STANDARD_INPUT):
        first, tab, second = line.partition("\t")
        yield first, second if tab else None


def _said(found: dict[str, Any] | None, in_full: bool) -> str:
    """An answer as a person reads it: every class on a line of its own, or the chosen one in one line."""
    if found is None:
        return ""
    if "value" in found:
        return f"{found['value']:.3f}"
    chances = found["probabilities"]
    if not in_full:
        return f"{printable(found['label'])}\t{chances[found['label']]:.4f}"
    ordered = sorted(chances, key=lambda label: -chances[label])
    return "\n".join(f"{100 * chances[label]:6.2f}%  {printable(label)}" for label in ordered)


def _column(text: str) -> tuple[str, str]:
    """`text=review` as a pair."""
    name, sign, column = text.partition("=")
    if not sign or not name or not column:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COLUMN, such as text=review")
    return name, column


def _rates(text: str) -> tuple[float, ...]:
    """`5e-5,3e-5` as numbers; what they may be is checked where they are used."""
    try:
        return tuple(float(rate) for rate in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no learning rate, nor several between commas"
        ) from None
