"""The model card: `README.md` of an exported model, in Hugging Face's form."""

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from minibert.base.bundled_models import ATTRIBUTIONS, FOLDER
from minibert.base.errors import InputError
from minibert.base.json_files import fits, parse_json, read_json, schema_error
from minibert.base.options import PRETRAINING_FILE
from minibert.base.terminal import counted, duration, printable, printable_text
from minibert.core.config import BertConfig
from minibert.reports import results
from minibert.reports.held_out import METRIC_TYPES, held_out_rows
from minibert.tasks.stored import OPTIONS_FILE

CARD = "README.md"
# Kind of head -> Hugging Face's name of its task, the command that queries such a model, and texts to ask it.
PURPOSES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "pretraining": ("fill-mask", "fill-mask", ("The [MASK] is here.",)),
    "classify": ("text-classification", "classify", ("a text",)),
    "multilabel": ("text-classification", "classify", ("a text",)),
    "regress": ("text-classification", "classify", ("a text",)),
    "tag": ("token-classification", "tag", ("a sentence",)),
    "span": ("question-answering", "answer", ("a question", "the text that the answer stands in")),
    "choice": ("multiple-choice", "predict --data DIR --out answers", ()),
    "none": ("feature-extraction", "features --out vectors.npy", ("a text",)),
}
CHOICES = "DIR is the folder with the files of the task, as `minibert finetune` takes them."
NO_VOCABULARY = (
    "Its vocabulary is not in the folder, and nothing can be asked without it: put the `vocab.txt` that it "
    "was trained with beside the weights, with its `tokenizer_config.json`."
)
RENEWED = ("pipeline_tag", "library_name")  # fields above a card that depend on how the model is used
METRICS = "model-index: "  # beginning of the line with the measured metrics
# In Markdown, they begin HTML, an entity, a link, code, or an escape.
_ACTING = re.compile(r"[<&\[`\\]")
_HEADING = re.compile(r"^# .*$", re.MULTILINE)
_ABOUT = re.compile(r"^A BERT of \d.*$", re.MULTILINE)  # the sentence below the heading
_USE = re.compile(r"^## Use\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PIPELINES = ("fill-mask", "text-classification", "token-classification", "feature-extraction")
LIMITS = (  # limits of every model
    "It repeats what is wrong, old or unfair in the text that it and the model before it learnt from; nobody "
    "has looked for that.",
    "It has no licence of its own: whoever publishes it chooses one that the text and the model before it "
    "allow, and adds `license` above.",
)
UNFINISHED = "Its training was not finished, and nothing was measured."
LENGTH = {"steps": int, "tokens": int, "training_seconds": float}


class About(NamedTuple):
    """What a card says about the training of a model."""

    training: Sequence[str] = ()  # sentences
    results: Sequence[str] = ()  # lines of Markdown
    metrics: Mapping[str, float] = MappingProxyType({})  # for the fields above the card
    limits: Sequence[str] = ()  # sentences, besides the limits of every model


@dataclass(frozen=True)
class Exported:
    """What a card has to know about an exported model."""

    name: str  # name of its folder
    config: BertConfig
    parameters: int  # number of parameters
    head: str  # kind of its head, or "none"
    labels: tuple[str, ...] = ()
    for_transformers: bool = True  # whether Hugging Face's transformers loads the format
    is_step: bool = False  # whether it is an intermediate checkpoint, to which the run's report doesn't apply
    pool: str | None = None  # how sentence-transformers pools its vectors, if it can load the model
    pair: bool = False  # whether it reads pairs of texts
    vocabulary: bool = True  # whether its vocabulary is in the folder
    choices: str = ""  # for a model that chooses among endings: its task, if no file in the folder says it


def is_minibert_card(card: str) -> bool:
    """Return whether minibert wrote a card, so that the next export may renew it.

    Parameters
    ----------
    card : str
        Text of a `README.md`.

    Returns
    -------
    bool
        Decided by the tags above the card; False if the text ends within these fields.
    """
    return re.match(r'---\ntags: \["bert", "minibert"\]\n(.*\n)*?---\n', card) is not None


def renewed(before: str, card: str) -> str:
    """Renew the instructions for use in one of minibert's cards, and leave everything else as it is.

    Parameters
    ----------
    before : str
        The old card, for which `is_minibert_card` is true; its author may have added to it.
    card : str
        A new card from `model_card`, for a folder of another name or format.

    Returns
    -------
    str
        The old card with name, description and instructions of the new one.
    """
    _, old_fields, old_text = before.split("---\n", 2)
    _, new_fields, new_text = card.split("---\n", 2)
    lines = _renewed_fields(old_fields.splitlines(), new_fields.splitlines())
    title = _HEADING.search(new_text)
    if title:
        name = re.sub(r"\\([<&\[`\\])", r"\1", title[0].removeprefix("# "))  # as `_literal` found it
        lines = [_named(line, name) for line in lines]
    text = old_text
    for pattern in (_HEADING, _ABOUT, _USE):
        old, new = pattern.search(text), pattern.search(new_text)
        if old and new:
            text = text[: old.start()] + new[0] + text[old.end() :]
    fields = "".join(f"{line}\n" for line in lines)
    return f"---\n{fields}---\n{text}"


def _renewed_fields(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the old lines above a card, with the new ones for `RENEWED` after those of the tags."""

    def field_of(line: str) -> str:
        return line.partition(":")[0]

    new_lines = {field_of(line): line for line in new}
    lines: list[str] = []
    for line in old:
        if field_of(line) not in RENEWED:
            lines.append(line)
        if field_of(line) == "tags":
            lines += [new_lines[name] for name in RENEWED if name in new_lines]
    return lines


def _named(line: str, name: str) -> str:
    """Rename the model in a line above a card, if it is the line of metrics."""
    if not line.startswith(METRICS):
        return line
    with suppress(ValueError):
        models = parse_json(line.removeprefix(METRICS))
        if fits(models, list[dict[str, Any]]):  # otherwise somebody has replaced it: leave it alone
            renamed = [model | {"name": name} for model in models]
            return METRICS + json.dumps(renamed, ensure_ascii=False)
    return line


def model_card(run: Path, model: Exported) -> str:
    """Write the card of a model: what it was trained on, for how long, how well it does, and its limits.

    Of paths, the card shows only the last part, and it quotes none of the user's texts. If the folder is not
    that of a finished run, the card says what is known from the model alone.

    Parameters
    ----------
    run : Path
        Folder of the model, which may be that of the run that trained it.
    model : Exported
        What is known from the model itself.

    Returns
    -------
    str
        The text of a `README.md`.

    Raises
    ------
    InputError
        When the run's options or its report are damaged.
    """
    name = printable(model.name)
    head = "none" if model.head == "pretraining" and model.config.is_decoder else model.head
    task, _, _ = PURPOSES[head]
    if (run / OPTIONS_FILE).exists():
        about = _finetuned(run)
    elif (run / PRETRAINING_FILE).exists():
        about = _pretrained(run, model.is_step)
    else:
        about = About(limits=["What it learnt from is not known from its folder."])
    fields: dict[str, Any] = {"tags": ["bert", "minibert"], "pipeline_tag": task}
    if model.pool:
        fields["library_name"] = "sentence-transformers"
        fields["pipeline_tag"] = "sentence-similarity"
    elif model.for_transformers:
        fields["library_name"] = "transformers"
    if about.metrics:
        finite = [{"type": name, "value": x} for name, x in about.metrics.items() if math.isfinite(x)]
        dataset = {"type": "dev", "name": about.training[0].partition(": ")[2].strip(".")}
        result = {"task": {"type": task}, "dataset": dataset, "metrics": finite}
        fields["model-index"] = [{"name": name, "results": [result]}]
    config = model.config
    lines = [
        "---",
        *(f"{field}: {json.dumps(value, ensure_ascii=False)}" for field, value in fields.items()),
        "---",
        "",
        f"# {_literal(model.name)}",
        "",
        f"A BERT of {counted(config.L, 'layer')} with hidden size {config.H} and "
        f"{counted(config.A, 'head')}, {model.parameters / 1e6:.1f}M parameters, {config.V:,} pieces, and at "
        f"most {config.P} tokens in a text, for {task.replace('-', ' ')}.",
    ]
    labels = ", ".join(map(_code, model.labels))
    if labels:
        lines.append(f"Its outputs are {labels}.")
    sections: dict[str, Sequence[str]] = {
        "Training": [f"- {line}" for line in about.training],
        "Results": about.results,
        "Use": _use(name, head, model),
        "Limits": [f"- {line}" for line in (*about.limits, *LIMITS)],
    }
    for title, section in sections.items():
        if section:
            lines += ["", f"## {title}", "", *section]
    return printable_text("\n".join(lines)) + "\n"


def _use(name: str, head: str, model: Exported) -> list[str]:
    """Return the instructions for use, in Python and on the command line."""
    if not model.vocabulary:
        return [NO_VOCABULARY]
    task, command, texts = PURPOSES[head]
    argument = f'"{texts[0]}"' if texts else ""
    if model.pair and command == "classify":
        texts += ("another text",)
        argument = f'{{"text": "{texts[0]}", "text_pair": "{texts[1]}"}}'
    quoted = json.dumps(name, ensure_ascii=False)
    if model.pool:
        python = [
            "from sentence_transformers import SentenceTransformer",
            f'SentenceTransformer({quoted}).encode(["a text"])',
        ]
    elif model.for_transformers and task in PIPELINES:
        python = ["from transformers import pipeline", f'pipeline("{task}", {quoted})({argument})']
    else:
        python = ["from minibert import Bert", f"Bert.from_pretrained({quoted})"]
    path = f"./{name}" if name.startswith("-") else name  # "-name" would be read as a flag
    command_line = f"minibert {command} --model {shlex.quote(path)}"
    for text in texts:
        command_line += f' "{text}"'
    if model.choices and head == "choice":
        command_line += f" --task {model.choices}"
    use = ["```python", *python, "```", "", "```", command_line, "```"]
    if head == "choice":
        use += ["", CHOICES]
    return use


def _pretrained(run: Path, is_step: bool) -> About:
    """Describe a pre-training; raise InputError if its files are damaged."""
    paths = dict.fromkeys(("shards", "model"), str | None)
    numbers = {"learning_rate": float, "batch_size": int, "next_sentence": bool}
    options = read_json(run / PRETRAINING_FILE, {"corpus": tuple[str, ...], **paths, **numbers})
    sources = options["corpus"]
    if not sources and options.get("shards"):
        sources = [options["shards"]]
    text = ", ".join(map(_last, sources))
    if not text:
        text = "16 English books in the public domain, which come with minibert"
    training = [f"Text: {text}."]
    if model := options.get("model"):
        training.append(_begun(model))
    if is_step or not (run / results.REPORT).exists():
        return About(training, limits=[UNFINISHED])
    report = read_json(run / results.REPORT, {"trained_length": int, "left_to_right": bool | None, **LENGTH})
    held_out = report.get("held_out", {})
    length = report["trained_length"]
    if held_out is None:  # nothing was measured
        left_to_right = report.get("left_to_right", False)
    else:
        if wrong := schema_error(held_out, {"targets": int, **METRIC_TYPES}):
            path = run / results.REPORT
            advice = "resume the run to write it again."
            raise InputError(f"{path} can't be read: in 'held_out' {wrong}; {advice}")
        held_out = dict.fromkeys(METRIC_TYPES) | held_out
        left_to_right = held_out["shuffled_loss"] is None
    objective = "predict the next words" if left_to_right else "predict [MASK]s"
    if options["next_sentence"]:
        objective += "; does one span follow another"
    training.append(f"Objective: {objective}.")
    batches = f"in sequences of up to {length} tokens, {options['batch_size']:,} in a step"
    training.append(f"{_length(report)}, {batches}; learning rate {options['learning_rate']:g}.")
    where = "In this training, it" if model else "It"
    seen = f"{where} has seen no sequence of more than {length} tokens."
    if held_out is None:
        return About(training, limits=["It was not measured on held-out text.", seen])
    (_, targets), *measured = held_out_rows(held_out)
    rows = [("measured on held-out documents", f"{targets} targets"), *measured]
    limits = ["Measured on documents of the text that it learnt from: on other text it does worse.", seen]
    metrics = {name: held_out[name] for name in ("perplexity", "accuracy") if held_out[name] is not None}
    return About(training, _table(rows), metrics, limits)


def _finetuned(run: Path) -> About:
    """Describe a fine-tuning; raise InputError if its files are damaged."""
    options = read_json(run / OPTIONS_FILE, {"model": str})
    begun = _begun(options["model"])
    report = results.load_report(run)
    if report is None:
        return About([begun], limits=[UNFINISHED])
    title = _literal(report["title"]).replace("Your own table", "a table of the author's own")
    training = [
        f"Task: {title}.",
        begun,
        f"{_length(report)}; learning rate {report['learning_rate']:g}, seed {report['seed']}; epoch "
        f"{report['best_epoch']:g} was the best on dev.",
    ]
    metric = report["metric"]
    rows = results.metric_rows(report)
    if not results.has_head(report):
        rows = [("", "model"), *rows]
    low, high = (results.metric_number(metric, end) for end in report["interval"])
    notes = [
        f"On {counted(report['examples'], 'example')} of dev. {_literal(results.metric_name(metric))}, "
        f"{results.interval_name(report)}: {low} to {high}.",
        *map(_literal, results.remarks(report)),
    ]
    measured = _table(rows)
    for note in notes:
        measured += ["", note]
    limits = ["The epoch was chosen on the examples that it was measured on, which flatters it a bit."]
    return About(training, measured, report["scores"], limits)


def _begun(model: str) -> str:
    """Say which weights a training began with and, for those of the package, what they had learnt from."""
    path = Path(model)
    begun = f"Begun from the weights of {_last(model)}."
    if path.name in ATTRIBUTIONS and path.parent.name == FOLDER.name:
        begun += f" {ATTRIBUTIONS[path.name]}"
    return begun


def _length(report: dict[str, Any]) -> str:
    """Write how many steps and tokens a training took, and how long."""
    return f"{results.length_text(report)}, {duration(report['training_seconds'])}"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Write rows as a Markdown table, the first of them as its header."""
    lines = []
    for row in rows:
        cells = [_literal(cell).replace("|", r"\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    rule = "|---|" + "---:|" * (len(rows[0]) - 1)
    lines.insert(1, rule)
    return lines


def _last(path: str) -> str:
    """Return the last part of a path, which others may see; "a folder" for the user's home folder."""
    absolute = Path(path).absolute()
    if absolute == Path.home():
        return "a folder"
    return _code(absolute.name)


def _literal(text: str) -> str:
    """Write a text in Markdown so that it is shown as it is: nothing in it is HTML or a link."""
    return _ACTING.sub(r"\\\g<0>", printable(text))


def _code(text: str) -> str:
    """Write a name as code in Markdown."""
    return "`" + printable(text).replace("`", "'") + "`"
