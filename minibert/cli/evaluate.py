"""Measure a pre-training run, or a fine-tuned model on its task.

Measures a model. After pre-training: masked-LM loss, perplexity and accuracy at
[MASK], and next-sentence accuracy. For comparison, it gives the lowest loss
possible without any context, which is the unigram entropy (of these targets,
and of the whole text), and the loss with the words of the context shuffled.
After fine-tuning: the official metrics of the task, with 95% intervals; the
predictions of several models are averaged, as in predict.

examples:
  minibert evaluate --model runs/books
  minibert evaluate --model runs/books letters/*.txt --json
  minibert evaluate --model runs/sst2 --data glue/SST-2
  minibert evaluate --model runs/reviews --data new.csv --column text=review --column label=stars
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError
from minibert.base.model_names import CONFIG_FILE
from minibert.base.terminal import counted, emit, json_text
from minibert.cli.shared import flags
from minibert.cli.shared.measured import TRAINED_COLUMNS, add_measured, measured_as

TARGETS = 20000


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    text = "a run folder, RUN@STEP, or with CORPUS any Hugging Face BERT; repeat the flag to average "
    text += "several fine-tuned models"
    text += " (with CORPUS, by default english, the one in the package)"
    flags.add_flag(parser, "--model MODEL", text, action="append")
    masked = parser.add_argument_group("after pre-training")
    text = "text to evaluate on (default: the held-out documents); next sentences need several documents "
    text += "of several sentences"
    masked.add_argument("corpus", nargs="*", metavar="CORPUS", help=text)
    flags.add_flag(
        masked, "--seq-length N", "tokens in a sequence (default: the longest of the run, or else 128)"
    )
    flags.add_flag(masked, "--targets N", f"[MASK]s to score (default: {TARGETS})")
    flags.add_layout(masked, None)
    text = "print the loss of whole words in nats per byte, to compare models with different vocabularies"
    flags.add_switches(masked, per_byte=text)
    add_measured(parser.add_argument_group("after fine-tuning"), split=None, column=False)
    text = "after pre-training: the key (JSON lines) or column (tables) with the text (default: text); after "
    text += f"fine-tuning, NAME=COLUMN: a column of the table of --data, {TRAINED_COLUMNS}"
    flags.add_flag(parser, "--column NAME", text, action="append")
    vars(parser)["also_named"] = {"columns": "column"}
    flags.add_engine(parser)
    flags.add_switches(parser, json=flags.JSON)


def run(arguments: Namespace) -> None:
    """Measure a model and print its metrics.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When flags are for models of another kind, or several models can't be averaged.
    """
    from minibert.finetuning.models import is_finetuned

    arguments.model = arguments.model or [_default_model(arguments.corpus)]
    if all(map(is_finetuned, arguments.model)):
        _evaluate_task(arguments)
        return
    model = next(path for path in arguments.model if not is_finetuned(path))
    if len(arguments.model) > 1:
        raise InputError(f"'{model}' is not fine-tuned, so it can't be averaged with others; give it alone.")
    _refuse(arguments, f"'{model}' is not fine-tuned", "data split task dtype")
    if arguments.per_byte:
        _refuse(arguments, "--per-byte has its own windows", "seq_length targets")
        _evaluate_words(arguments, model)
    else:
        _evaluate_pieces(arguments, model)


def _default_model(corpus: Sequence[str]) -> str:
    """Return the model to measure if none is named: that in the package, on a text."""
    if not corpus:
        raise InputError("No model is named: give one with --model or, to measure english, a CORPUS.")
    for path in corpus:
        if (Path(path) / CONFIG_FILE).exists():
            raise InputError(f"'{path}' holds a model, but a text is expected; name the model with --model.")
    return flags.model_or_default(None)


def _evaluate_words(arguments: Namespace, model: str) -> None:
    """Print the loss of whole words, of a model that was only pre-trained."""
    from minibert.pretraining.predict import evaluate_words

    metrics = evaluate_words(model, tuple(arguments.corpus), **_text_and_engine(arguments))
    if arguments.json:
        emit(json_text(asdict(metrics)))
    else:
        words = counted(metrics.words, "word")
        emit(f"Loss of whole words  {metrics.nats_per_byte:.4f} nats per byte ({words})")


def _evaluate_pieces(arguments: Namespace, model: str) -> None:
    """Print masked-LM and next-sentence metrics, of a model that was only pre-trained."""
    from minibert.pretraining.predict import evaluate
    from minibert.reports.held_out import held_out_text

    corpus = tuple(arguments.corpus)
    held_out = evaluate(
        model,
        corpus,
        seq_length=arguments.seq_length,
        targets=TARGETS if arguments.targets is None else arguments.targets,
        show=not (arguments.json or arguments.quiet),
        **_text_and_engine(arguments),
    )
    metrics = held_out.to_dict()
    if corpus:
        metrics["corpus"] = corpus
    emit(json_text(metrics) if arguments.json else held_out_text(metrics, corpus))


def _text_and_engine(arguments: Namespace) -> dict[str, Any]:
    """Return how the text is read and what computes, as keyword arguments of both functions."""
    columns = arguments.column or ["text"]
    if len(columns) > 1:
        raise InputError(f"--column names {len(columns)} columns, and the text is in one; name that alone.")
    reading = {"layout": arguments.layout or "auto", "column": columns[0]}
    return reading | flags.selected(arguments, "engine threads")


def _refuse(arguments: Namespace, why: str, names: str) -> None:
    """Raise InputError if one of these flags was given."""
    values = flags.selected(arguments, names)
    given = [name for name, value in values.items() if value is not None and value is not False]
    if given:
        raise InputError(f"{why}; leave out {', '.join(map(flags.flag_of, given))}.")


def _evaluate_task(arguments: Namespace) -> None:
    """Print the official metrics of fine-tuned models on their task."""
    from minibert.finetuning.run import evaluate
    from minibert.reports.results import measured_text

    if arguments.corpus:
        what = f"'{arguments.model[0]}' holds a fine-tuned model, which is measured on its task"
        raise InputError(
            f"{what} and not on '{arguments.corpus[0]}'; leave that out, or give the task's data with --data."
        )
    _refuse(arguments, f"'{arguments.model[0]}' is fine-tuned", "per_byte seq_length targets layout")
    try:
        arguments.columns = list(map(flags.role_and_column, arguments.column or ()))
    except ArgumentTypeError as error:
        raise InputError(f"--column {error}.") from error
    arguments.split = arguments.split or "dev"
    show = not (arguments.json or arguments.quiet)
    report = evaluate(arguments.model, **measured_as(arguments), show=show)
    emit(json_text(report) if arguments.json else measured_text(report))
