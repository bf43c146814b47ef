"""Score predictions as the official scorers do: SQuAD, CoNLL, GLUE.

Scores predictions of any origin by the rules of the official scorers, and
prints what these print: evaluate-v1.1.py and evaluate-v2.0.py for SQuAD,
conlleval for tagged words; for GLUE, the metrics of its leaderboard. 95%
intervals follow: Wilson's for a share of the examples, otherwise from 1,000
bootstrap samples of the examples.
`minibert score squad --help` and so on describe the files.

examples:
  minibert score squad dev-v1.1.json predictions.json
  minibert score squad dev-v2.0.json predictions.json --null-odds null_odds.json
  minibert score conll tagged.txt
  minibert score glue mrpc MRPC/dev.tsv MRPC.tsv --json
"""

import math
from argparse import SUPPRESS, ArgumentParser, Namespace
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.base.files import LARGEST_WHOLE
from minibert.base.json_files import finite, read_json
from minibert.base.terminal import counted, emit, json_text
from minibert.cli.shared.flags import JSON, add_flag, add_switches
from minibert.data.glue import TASKS, GlueTask, read_file
from minibert.data.lines import numbered_lines, rows, shown
from minibert.tasks import metrics
from minibert.tasks.metrics import entities, squad
from minibert.tasks.metrics.intervals import Statistic, lowest_of, mean_of

BOUNDARY = "-X-"  # in the first column, it separates sentences, as an empty line does
Percentages = dict[str, tuple[float, float, float]]  # by name: a percentage, and the ends of its 95% interval
Scored = tuple[str, dict[str, Any], str, Percentages]  # title, values for JSON, the official scorer's text


def add(parser: ArgumentParser) -> None:
    """Add the three kinds of predictions, each with its flags.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert score {squad,conll,glue} FILE [...]"
    kinds = parser.add_subparsers(prog="minibert score", metavar="KIND", required=True, help=SUPPRESS)
    parser = kinds.add_parser("squad", help="answers", description="Exact match and F1 of answers.")
    parser.set_defaults(score=run_squad)
    parser.add_argument("gold", metavar="GOLD", help="questions with their answers: the official JSON")
    parser.add_argument("predictions", metavar="PREDICTIONS", help='JSON: {"id": "answer", ...}')
    text = 'JSON: {"id": how likely there is no answer, ...}; also finds the best thresholds (2.0)'
    add_flag(parser, "--null-odds FILE", text)
    text = "if the odds are above T, predict that there is no answer (default: 1)"
    add_flag(parser, "--threshold T", text, type=float)
    text = "version of the rules (default: auto, recognised from GOLD)"
    parser.add_argument("--version", choices=squad.VERSIONS, default=squad.AUTO, help=text)

    about = """
Precision, recall and F1 of tagged chunks. A single FILE has the gold tag and
the predicted tag in its last two columns, as conlleval expects. With two files,
FILE has the gold tag in its last column, and PREDICTIONS the predicted tag;
-DOCSTART- is then not counted as a word.
"""
    parser = kinds.add_parser("conll", help="tagged words", description=about)
    parser.set_defaults(score=run_conll)
    text = "a word on each line, columns separated by spaces or tabs"
    parser.add_argument("gold", metavar="FILE", help=text)
    parser.add_argument("predictions", nargs="?", metavar="PREDICTIONS", help="a second such file")

    about = """
The metrics of GLUE's leaderboard. The index of a prediction is the id of its
row in GOLD or, if these ids do not match, the number of the row, from 0.
"""
    parser = kinds.add_parser("glue", help="the tasks of GLUE", description=about)
    parser.set_defaults(score=run_glue)
    parser.add_argument("task", metavar="TASK", type=str.lower, choices=TASKS, help=", ".join(TASKS))
    parser.add_argument("gold", metavar="GOLD", help="the official file with labels, such as dev.tsv")
    text = "a submission: index, a tab, prediction; with a header"
    parser.add_argument("predictions", metavar="PREDICTIONS", help=text)
    for kind in kinds.choices.values():
        add_switches(kind, json=JSON)


def run(arguments: Namespace) -> None:
    """Print the metrics of one kind of predictions.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.
    """
    title, official, text, percentages = arguments.score(arguments)
    if arguments.json:
        intervals = {name: [low, high] for name, (_, low, high) in percentages.items()}
        emit(json_text(finite(official | {"intervals": intervals})))
        return
    if text:
        emit(text + "\n")
    emit(f"{title}; in percent, with 95% intervals")
    for name, (value, low, high) in percentages.items():
        emit(f"  {name:<9}{value:8.3f}  {low:.3f} to {high:.3f}")


def run_squad(arguments: Namespace) -> Scored:
    """Score answers.

    Parameters
    ----------
    arguments : Namespace
        `gold`, `predictions`, `null_odds`, `threshold` and `version`.

    Returns
    -------
    Scored

    Raises
    ------
    InputError
        When the threshold is NaN, or given without null odds, or a file can't be read.
    """
    from minibert.data.squad import read

    if arguments.threshold is not None and not arguments.null_odds:
        raise InputError("--threshold is for null odds; give their file with --null-odds as well.")
    threshold = 1.0 if arguments.threshold is None else arguments.threshold
    if math.isnan(threshold):
        raise InputError("--threshold nan is not a number; give one to compare the null odds with.")
    questions: list[Any] = read(arguments.gold, listed=True)
    how: dict[str, Any] = {"advice": 'give an object {"id": ...}', "largest": LARGEST_WHOLE, "streams": True}
    predictions = read_json(arguments.predictions, **how)
    odds = read_json(arguments.null_odds, **how) if arguments.null_odds else None
    version = squad.version_of(questions, arguments.version)
    official = squad.score(questions, predictions, odds, threshold, version)
    scores = squad.question_scores(questions, predictions, version)
    if odds is not None:
        scores = squad.with_threshold(scores, questions, predictions, odds, threshold)

    statistics: dict[str, Statistic] = {name: mean_of(values) for name, values in scores._asdict().items()}
    percentages = _with_intervals(official, statistics, len(questions))
    n_missing = sum(question.id not in predictions for question in questions)
    title = f"SQuAD {version}, {counted(len(questions), 'question')}"
    text = squad.official_text(official)
    return title, official | {"version": version, "missing": n_missing}, text, percentages


def run_conll(arguments: Namespace) -> Scored:
    """Score tags.

    Parameters
    ----------
    arguments : Namespace
        `gold`, and `predictions` if they are in a second file.

    Returns
    -------
    Scored
    """
    if arguments.predictions:
        gold, predicted = _tags_of_two(arguments.gold, arguments.predictions)
    else:
        gold, predicted = _tags_of_one(arguments.gold)
    official = entities.conlleval(gold, predicted)
    counts = entities.sentence_counts(gold, predicted)

    def f1(rows: np.ndarray) -> float:
        return entities.f1_of(counts[rows]) / 100

    percentages = _with_intervals(official, {"f1": f1}, len(counts))
    return counted(len(counts), "sentence"), official, entities.report(official), percentages


def _tags_of_one(file: str) -> tuple[list[Any], list[Any]]:
    """Read the gold and predicted tags of each sentence from the last two columns of a file."""
    sentences: list[list[list[str]]] = [[]]
    width = 0
    for number, line in numbered_lines(file):
        columns = [column for column in line.replace("\t", " ").split(" ") if column]
        if not columns or columns[0] == BOUNDARY:
            sentences.append([])
            continue
        width = width or len(columns)
        if len(columns) < 3 or len(columns) != width:
            widths = f"{counted(len(columns), 'column')}, not {max(3, width)}"
            advice = "give a word, its gold tag and its predicted tag; there may be columns in between."
            raise InputError(f"{widths}; {advice}", where=f"{file}, line {number}")
        sentences[-1].append(columns[-2:])
    filled = [sentence for sentence in sentences if sentence]
    if not filled:
        raise InputError(f"{file} has no line with tags; give a file of tagged words.")
    gold = [[gold_tag for gold_tag, _ in sentence] for sentence in filled]
    predicted = [[tag for _, tag in sentence] for sentence in filled]
    return gold, predicted


def _tags_of_two(gold_file: str, predicted_file: str) -> tuple[list[Any], list[Any]]:
    """Read the gold and predicted tags of each sentence from the last columns of two files.

    IOB1 is converted to BIO in both files, or in neither if a tag is of another scheme, because the accuracy
    compares tags literally.
    """
    from minibert.data.ner import is_entity_tag, read, to_bio

    names = (gold_file, predicted_file)
    files = [read(name, entities=False) for name in names]
    for number, (gold, predicted) in enumerate(zip_longest(*files), start=1):
        if gold is None or predicted is None or gold.words != predicted.words:
            what = f"{_shown(gold)} in {gold_file} and {_shown(predicted)} in {predicted_file}"
            raise InputError(f"Sentence {number:,} is {what}; give the same sentences in the same order.")
    columns: list[Any] = []
    for name, sentences in zip(names, files, strict=True):
        tags = [sentence.tags for sentence in sentences]
        if None in tags:
            raise InputError(f"{name} has one column, words without a tag; give a file with tags.")
        columns.append(tags)
    sentence_tags = chain.from_iterable(columns)
    if all(is_entity_tag(tag) for tag in chain.from_iterable(sentence_tags)):
        columns = [[list(to_bio(sentence)) for sentence in tags] for tags in columns]
    return columns[0], columns[1]


def _shown(sentence: Any) -> str:
    return "absent" if sentence is None else repr(" ".join(sentence.words)[:60])


def run_glue(arguments: Namespace) -> Scored:
    """Score labels.

    Parameters
    ----------
    arguments : Namespace
        `task`, `gold` and `predictions`.

    Returns
    -------
    Scored
    """
    task = TASKS[arguments.task]
    examples = read_file(task.name, arguments.gold)
    gold = np.array([_number(example.label, task) for example in examples])
    predicted = np.array(_matched(arguments, task, [example.id for example in examples]))

    def metric_of(name: str) -> Statistic:
        if name == "accuracy":
            return mean_of(gold == predicted)
        metric = metrics.METRICS[name].compute
        return lambda rows: float(metric(gold[rows], predicted[rows]))

    statistics = {name: metric_of(name) for name in task.metrics}
    if len(statistics) == 2:
        first, second = statistics.values()
        statistics["mean"] = lambda rows: (first(rows) + second(rows)) / 2
    all_rows = np.arange(len(gold))
    values = {name: 100 * statistic(all_rows) for name, statistic in statistics.items()}
    official = {"task": task.name, "total": len(gold)} | values
    percentages = _with_intervals(values, statistics, len(gold))
    return f"{task.title}, {counted(len(gold), 'example')}", official, "", percentages


def _with_intervals(values: dict[str, Any], statistics: dict[str, Statistic], count: int) -> Percentages:
    """Return values, in percent, with intervals from their statistics, which are fractions.

    Statistics have the names of their metrics; "mean" is the mean of the others, and its least value theirs.
    """
    percentages = {}
    for name, statistic in statistics.items():
        lowest = min(map(lowest_of, statistics)) if name == "mean" else lowest_of(name)
        low, high, _ = metrics.interval(statistic, count, lowest)
        percentages[name] = values[name], 100 * low, 100 * high
    return percentages


def _matched(arguments: Namespace, task: GlueTask, ids: list[str]) -> list[float]:
    """Return the predictions in the order of the gold examples, which have these ids."""
    labels = _submission(arguments.predictions, task)
    numbers = [str(number) for number in range(len(ids))]
    for order in (ids, numbers):
        if len(order) == len(labels) and labels.keys() == set(order):
            return [labels[index] for index in order]
    what = f"{arguments.predictions} has {len(labels):,} predictions, {arguments.gold} {len(ids):,} examples"
    advice = "their indices do not match: every example needs one, under its id or its number from 0."
    raise InputError(f"{what}; {advice}")


def _submission(file: str, task: GlueTask) -> dict[str, float]:
    """Read the prediction for each index from a file for GLUE's server; labels become numbers."""
    table = rows(file)
    _, header = next(table, (0, []))
    if [name.strip().lower() for name in header] != ["index", "prediction"]:
        advice = "the columns index and prediction are expected."
        raise InputError(f"{file} begins with {shown(header) or 'nothing'}; {advice}")
    labels: dict[str, float] = {}
    for line, row in table:
        place = f"{file}, line {line}"
        if len(row) != 2:
            columns = counted(len(row), "column")
            raise InputError(f"{columns}; give an index, a tab and a prediction.", where=place)
        index, label = row
        if index in labels:
            problem = f"the index {index[:60]!r} has a prediction already"
            raise InputError(f"{problem}; give one each.", where=place)
        number = _number(label, task)
        if not math.isfinite(number):
            expected = f"one of {', '.join(task.labels)}" if task.labels else "a number"
            problem = f"{label[:60]!r} is not a prediction for {task.title}"
            raise InputError(f"{problem}; give {expected}.", where=place)
        labels[index] = number
    return labels


def _number(label: Any, task: GlueTask) -> float:
    """Return the index of a label, or the value of a score; NaN if it is neither."""
    if task.labels:
        if label not in task.labels:
            return math.nan
        return task.labels.index(label)
    try:
        return float(label)
    except ValueError:
        return math.nan
