"""The model card: what a folder to hand on says about its model, as `README.md` in Hugging Face's form."""

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minibert.json_files import read_json
from minibert.model.config import BertConfig
from minibert.reports import results
from minibert.tasks.stored import OPTIONS_FILE
from minibert.terminal import counted, printable, printable_text

CARD = "README.md"
PRETRAINED = "training.json"
# What Hugging Face calls what the heads are for, what asks such a model, and with which text.
PURPOSES = {
    "pretraining": ("fill-mask", "fill-mask", "The [MASK] is here."),
    "classify": ("text-classification", "classify", "a text"),
    "multilabel": ("text-classification", "classify", "a text"),
    "regress": ("text-classification", "classify", "a text"),
    "tag": ("token-classification", "tag", "a sentence"),
    "span": ("question-answering", "answer --file text.txt", "a question"),
    "choice": ("multiple-choice", "predict --data DIR --out answers", ""),
    "none": ("feature-extraction", "features --out vectors.npy", "a text"),
}
PIPELINES = ("fill-mask", "text-classification", "token-classification", "feature-extraction")
LIMITS = (  # of all
    "It repeats what is wrong, old or unfair in the text that it and the model before it learnt from; nobody "
    "has looked for that.",
    "It has no licence of its own: whoever publishes it chooses one that the text and the model before it "
    "allow, and adds `license` above.",
)
Parts = tuple[list[str], list[str], dict[str, float], list[str]]  # training, results, metrics, limits
UNFINISHED = "Its training was not finished, and nothing was measured."
LENGTH = {"steps": int, "tokens": int, "training_seconds": float}


@dataclass(frozen=True)
class Exported:
    """What is handed on."""

    name: str  # of its folder
    config: BertConfig
    parameters: int  # how many numbers
    head: str  # its kind, or "none"
    labels: tuple[str, ...] = ()
    for_transformers: bool = True  # which loads the format
    is_step: bool = False  # on the way of its run, whose report is not about it
    pool: str | None = None  # by which sentence-transformers makes vectors, if it does
    pair: bool = False  # it reads pairs of texts


def model_card(run: Path, model: Exported) -> str:
    """Write the card of a model from its run: what it learnt from, for how long, how well, and its limits.

    Paths are named by their last part only, and no text of the user's is quoted. Where the folder is no run,
    or one that is not finished, the card says what can be told from the model alone. Raise InputError when
    the run's options or its report are damaged.
    """
    name = printable(model.name)
    head = "none" if model.head == "pretraining" and model.config.is_decoder else model.head
    task, command, text = PURPOSES[head]
    if (run / OPTIONS_FILE).exists():
        training, found, metrics, limits = _finetuned(run)
    elif (run / PRETRAINED).exists():
        training, found, metrics, limits = _pretrained(run, model.is_step)
    else:
        training, found, metrics, limits = [], [], {}, ["What it learnt from is not known from its folder."]
    fields: dict[str, Any] = {"tags": ["bert", "minibert"], "pipeline_tag": task}
    if model.pool:
        fields |= {"library_name": "sentence-transformers", "pipeline_tag": "sentence-similarity"}
    elif model.for_transformers:
        fields |= {"library_name": "transformers"}
    if metrics:
        finite = [{"type": name, "value": value} for name, value in metrics.items() if math.isfinite(value)]
        dataset = {"type": "dev", "name": training[0].partition(": ")[2].strip(".")}
        measured = {"task": {"type": task}, "dataset": dataset, "metrics": finite}
        fields["model-index"] = [{"name": name, "results": [measured]}]
    config, labels = model.config, ", ".join(map(_code, model.labels))
    both = model.pair and command == "classify"
    given = f'{{"text": "{text}", "text_pair": "another text"}}' if both else f'"{text}"'
    quoted = json.dumps(name, ensure_ascii=False)
    python = "from minibert import Bert", f"Bert.from_pretrained({quoted})"
    if model.pool:
        encode = f'SentenceTransformer({quoted}).encode(["a text"])'
        python = "from sentence_transformers import SentenceTransformer", encode
    elif model.for_transformers and task in PIPELINES:
        python = "from transformers import pipeline", f'pipeline("{task}", {quoted})({given})'
    asked = f"minibert {command} --model {shlex.quote(name)}"
    asked += f' "{text}"' * bool(text) + ' "another text"' * both
    lines = [
        "---",
        *(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()),
        "---",
        "",
        f"# {name}",
        "",
        f"A BERT of {counted(config.L, 'layer')} with hidden size {config.H} and "
        f"{counted(config.A, 'head')}, {model.parameters / 1e6:.1f}M parameters, {config.V:,} pieces, and at "
        f"most {config.P} tokens in a text, for {task.replace('-', ' ')}.",
        *[f"Its outputs are {labels}."] * bool(labels),
    ]
    sections = {
        "Training": [f"- {line}" for line in training],
        "Results": found,
        "Use": ["```python", *python, "```", "", "```", asked, "```"],
        "Limits": [f"- {line}" for line in (*limits, *LIMITS)],
    }
    for title, section in sections.items():
        lines += ["", f"## {title}", "", *section] if section else []
    return printable_text("\n".join(lines)) + "\n"


def _pretrained(run: Path, is_step: bool) -> Parts:
    paths = dict.fromkeys(("shards", "model", "init_from"), str | None)  # the last in version 0.1
    numbers = {"learning_rate": float, "batch_size": int, "next_sentence": bool}
    options = read_json(run / PRETRAINED, {"corpus": tuple[str, ...], **paths, **numbers})
    text = ", ".join(map(_last, options["corpus"] or filter(None, [options.get("shards")])))
    training = [f"Text: {text or '16 English books in the public domain, which come with minibert'}."]
    if model := options.get("model") or options.get("init_from"):
        training.append(f"Begun from the weights of {_last(model)}.")
    if is_step or not (run / results.REPORT).exists():
        return training, [], {}, [UNFINISHED]
    fields = {"held_out": {"targets": int, **results.HELD_OUT}, "trained_length": int, **LENGTH}
    report = read_json(run / results.REPORT, fields)
    found, length = dict.fromkeys(results.HELD_OUT) | report["held_out"], report["trained_length"]
    predicted = "[MASK]s" if found["shuffled_loss"] is not None else "the next words"
    training += [
        f"Objective: predict {predicted}" + "; does one span follow another" * options["next_sentence"] + ".",
        _length(report) + f", in sequences of up to {length} tokens, {options['batch_size']:,} in a step; "
        f"learning rate {options['learning_rate']:g}.",
    ]
    (_, targets), *measured = results.held_out_rows(found)
    rows = [("measured on held-out documents", f"{targets} targets"), *measured]
    limits = ["Measured on documents of the text that it learnt from: on other text it does worse."]
    limits.append(f"It has seen no sequence of more than {length} tokens.")
    metrics = {name: found[name] for name in ("perplexity", "accuracy") if found[name] is not None}
    return training, _table(rows), metrics, limits


def _finetuned(run: Path) -> Parts:
    options = read_json(run / OPTIONS_FILE, {"model": str})
    begun = f"Begun from the weights of {_last(options['model'])}."
    if (report := results.load_report(run)) is None:
        return [begun], [], {}, [UNFINISHED]
    title = printable(report["title"]).replace("Your own table", "a table of the author's own")
    training = [
        f"Task: {title}.",
        begun,
        f"{_length(report)}; learning rate {report['learning_rate']:g}, seed {report['seed']}; epoch "
        f"{report['best_epoch']:g} was the best on dev.",
    ]
    metric = report["metric"]
    rows = [*[("", "model")] * (not results.has_head(report)), *results.metric_rows(report)]
    low, high = (results.metric_number(metric, end) for end in report["interval"])
    notes = [
        f"On {counted(report['examples'], 'example')} of dev. {results.metric_name(metric)}, "
        f"{results.interval_name(report)}: {low} to {high}.",
        *map(printable, results.remarks(report)),
    ]
    found = [*_table(rows), *(line for note in notes for line in ("", note))]
    limits = ["The epoch was chosen on the examples that it was measured on, which flatters it a bit."]
    return training, found, dict(report["scores"]), limits


def _length(report: dict[str, Any]) -> str:
    return f"{results.length_text(report)}, {report['training_seconds'] / 60:.1f} minutes"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows as a table, the first as its head."""
    lines = ["| " + " | ".join(printable(cell).replace("|", r"\|") for cell in row) + " |" for row in rows]
    return [lines[0], "|---|" + "---:|" * (len(rows[0]) - 1), *lines[1:]]


def _last(path: str) -> str:
    """Return the last part of a path, all that others are to see of it; the home folder is nobody's name."""
    whole = Path(path).absolute()
    return "a folder" if whole == Path.home() else _code(whole.name)


def _code(text: str) -> str:
    return "`" + printable(text).replace("`", "'") + "`"
