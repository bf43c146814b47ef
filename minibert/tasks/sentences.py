"""Classify, or score, texts and pairs of texts: GLUE, its stand-ins, and custom tables.

The model reads `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]` and answers at [CLS] (Devlin et al.
2019, section 4.1). If there is not enough room, the end of the longer text is cut; with `long`, it is split
into windows instead.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from minibert.base.errors import InputError, warn
from minibert.base.files import atomic_text
from minibert.base.terminal import some_of
from minibert.core.batch import Feature, Sequence
from minibert.data import glue, stand_ins as pairs, tables
from minibert.data.glue import TextExample
from minibert.tasks import metrics, submissions
from minibert.tasks.custom_files import check_columns, custom_file, read_custom
from minibert.tasks.metrics.intervals import Statistic, mean_of
from minibert.tasks.task import (
    Classes,
    Examples,
    Labels,
    Mistake,
    Outputs,
    Predictions,
    Task,
    Tuned,
    softmax,
    surprise,
)
from minibert.tasks.truncation import with_marks
from minibert.tokenizer.written import WrittenTokens

UNLABELLED = {"label": None}  # arguments of `tables.read_texts` for a table without labels
COLUMNS = ("text", "second", "label", "id", "delimiter", "header")  # arguments of `tables.read_texts`
MOST_RARE = 5  # most classes that a warning names
ERRORS = ("r2", "rmse", "mae")  # names of metrics that, unlike correlations, notice a constant offset
BLOCK = 4096  # number of examples to tokenise together


class Sentences(Task):
    """What all tasks with one answer per text or pair share; `read` and `write` differ.

    A prediction is `{"label": name, "probabilities": {name: p}}`, or `{"value": x}` if the answer is a
    number.

    Parameters
    ----------
    name : str
        Name of the task.
    title : str
        A one-line description.
    """

    command = "classify"
    kind = "classify"
    numeric = False  # whether the answer is a number
    scored: tuple[str, ...]  # names of metrics in `tasks.metrics`; models are chosen by the first
    official: Labels = ()  # classes in the order of the outputs; () to take them from the data
    refuses_blanks = False  # whether an empty text is an error; in official files it is a warning

    def __init__(self, name: str, title: str) -> None:
        self.name = name
        self.title = title
        self.metric = self.scored[0]

    def labels(self, examples: Examples) -> Labels:
        """Name the classes in the order of the outputs.

        Returns
        -------
        tuple of str
            The official classes of the task, or else those of the examples, sorted; () for a number.

        Raises
        ------
        InputError
            When the classes are taken from the examples, and these have fewer than two.
        """
        if self.numeric or self.official or not examples:
            return self.official
        labels = {example.label for example in examples} - {None}
        if len(labels) < 2:
            problem = "no training example has a label"
            if labels:
                problem = f"every training example has the label {next(iter(labels))!r}"
            raise InputError(f"{problem}; give examples of at least two classes.")
        return in_order(labels)

    def names(self, example: TextExample) -> tuple[Any, ...]:
        """Return the class of an example, (None,) if it is unknown; () if the answer is a number."""
        return (example.label,) if self.kind == "classify" else ()

    def features(
        self,
        examples: Iterable[TextExample],
        tokenizer: Any,
        labels: Labels,
        max_length: int,
        training: bool,
    ) -> Iterator[Feature]:
        """Yield the sequence, or the windows, of each text or pair (Devlin et al. 2019, section 4.1).

        Yields
        ------
        Feature
            One for each example. Its label is the index of a class, or a number; None if it is unknown.

        Raises
        ------
        InputError
            When only some examples of a block have a second text; when a text is empty and the task does not
            allow that; when `training` and a label is missing or not in `labels`.
        """
        indices = {label: index for index, label in enumerate(labels)}
        source = iter(examples)
        done = 0
        blank = []  # ids of examples with an empty text
        written = WrittenTokens(tokenizer)
        while block := list(islice(source, BLOCK)):
            first = [example.first for example in block]
            limit = None if self.long else max_length
            encoded = tokenizer.encode_batch(first, _second_texts(block), max_length=limit)
            written.add(encoded)
            encodings = zip(block, encoded, encoded.n_cut.tolist(), strict=True)
            for index, (example, encoding, cut) in enumerate(encodings, start=done):
                # One of the texts has no piece, although there is room for some.
                is_blank = encoding.n_first == 2 or len(encoding) - encoding.n_first == 1
                if is_blank and (self.long or len(encoding) < max_length):
                    blank.append(example.id)
                    self._check_blank(example)
                if self.long:
                    sequences = self.long.sequences(encoding, max_length)
                else:
                    sequences = (Sequence(encoding.ids, encoding.token_type_ids, cut=cut),)
                label = self._label(example, indices, training)
                yield Feature(sequences, label, None, index)
            done += len(block)
        written.warn()
        if blank:
            warn(f"{len(blank):,} of {done:,} examples have an empty text, the first is {blank[0]}.")

    def _check_blank(self, example: TextExample) -> None:
        """Raise InputError for an example with an empty text, if the task refuses those."""
        if self.refuses_blanks:
            problem = "a text is empty, or has no piece in the vocabulary"
            raise InputError(f"{problem}; fill it, or leave the example out.", where=self.place(example))

    def warn_unknown(self, examples: Examples, labels: Labels) -> None:
        """Warn of labels that the model does not know: how many examples have one, and where the first is."""
        if self.numeric or not labels:
            return
        known = {*labels, None}
        counts: Counter[Any] = Counter()
        affected = []
        for example in examples:
            unknown = [name for name in self.names(example) if name not in known]
            counts.update(unknown)
            if unknown:
                affected.append(example)
        if not affected:
            return
        named = some_of([f"{name!r} ({count:,})" for name, count in counts.most_common()])
        some = f"{len(affected):,} of {len(examples):,} examples"
        problem = f"{some} have a label that the model does not know: {named}"
        effect = f"They count as mistakes; the model knows {some_of(labels)}."
        warn(f"{problem}; the first is {self.place(affected[0])}. {effect}")

    def check_dev(self, examples: Examples, labels: Labels) -> None:
        """Refuse a dev example whose label no training example has.

        Raises
        ------
        InputError
            For the first such example; the error says where it is.
        """
        if not self.numeric and labels:
            for example in examples:
                self._require_known(example, labels)

    def warn_rare(self, train: Examples, dev: Examples, labels: Labels) -> None:
        """Warn of classes with fewer than two training examples, or none in dev."""
        learnt = Counter(name for example in train for name in self.names(example))
        measured = Counter(name for example in dev for name in self.names(example))
        rare = [label for label in labels if learnt[label] < 2 or not measured[label]]
        if not rare:
            return
        problems = []
        for label in rare[:MOST_RARE]:
            place = ""
            if learnt[label] == 1:
                only = next(example for example in train if label in self.names(example))
                place = f" ({self.place(only)})"
            problems.append(f"{label!r} has {learnt[label]:,} in train{place} and {measured[label]:,} in dev")
        more = f"; and {len(rare) - MOST_RARE:,} more" if len(rare) > MOST_RARE else ""
        have = "has" if len(rare) == 1 else "have"
        few = f"{len(rare):,} of {len(labels):,} classes {have} too few examples: {'; '.join(problems)}{more}"
        unseen = "The metrics say nothing about a class without examples in dev"
        warn(f"{few}. {unseen}; give more examples, or merge classes.")

    def place(self, example: TextExample) -> str:
        """Return where a person finds an example.

        Parameters
        ----------
        example : TextExample
            One of the examples that `read` returned.

        Returns
        -------
        str
            The row, if the examples are in memory; else "example" and its id.
        """
        for name, examples in self.rows.items():
            for row, candidate in enumerate(examples):
                if candidate is example:
                    return f"row {row:,} of {name}"
        return f"example {example.id}"

    def _label(self, example: TextExample, indices: dict[str, int], training: bool) -> Any:
        """Return the label of an example as the loss needs it: the index of a class, or a number."""
        if example.label is None:
            if training:
                raise InputError(
                    "there is no label to train on; give labelled data.", where=self.place(example)
                )
            return None
        if self.numeric:
            return float(example.label)
        if training:
            self._require_known(example, indices)
        return indices.get(example.label)  # None: the model does not know it, and scores compare names

    def _require_known(self, example: TextExample, labels: Iterable[str]) -> None:
        """Raise InputError for a label that no training example has."""
        unknown = [name for name in self.names(example) if name is not None and name not in labels]
        if unknown:
            known = ", ".join(islice(labels, 16))
            problem = f"the label {unknown[0]!r} is not one of the training examples ({known})"
            raise InputError(
                f"{problem}; correct it, or add training examples with it.", where=self.place(example)
            )

    def predict(
        self,
        examples: Examples,
        features: Any,
        outputs: Outputs,
        labels: Labels,
        tuned: Tuned,
    ) -> list[dict[str, Any]]:
        """Return the most likely class of every example, or its number.

        Parameters
        ----------
        outputs : sequence of numpy.ndarray
            The scores of each example: (K,) of the classes, or (1,), a number.

        Returns
        -------
        list of dict
            See `Sentences`.
        """
        if self.numeric:
            return [{"value": float(scores[0])} for scores in outputs]
        predictions = []
        for scores in outputs:
            probabilities = dict(zip(labels, softmax(scores).tolist(), strict=True))
            label = max(probabilities, key=probabilities.__getitem__)
            predictions.append({"label": label, "probabilities": probabilities})
        return predictions

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute the metrics of the task; an undefined correlation, with a constant, counts as 0.

        For numbers there are also R² and two errors, since correlations miss a constant offset.

        Returns
        -------
        dict
            Metrics by name, those of `scored` first.
        """
        gold, predicted = self._numbers(examples, predictions)
        names = self.scored
        if self.kind == "regress":
            names = (*self.scored, *ERRORS)
        return {name: _metric(name, gold, predicted) for name in names}

    def constant(self, examples: Examples) -> float | None:
        """Return the mean of the labels, which predicts them best; None for tasks other than regression."""
        if self.kind != "regress":
            return None
        return float(np.mean([example.label for example in examples]))

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        """Return the metric that selects models as a function of examples, for its confidence interval.

        Returns
        -------
        callable
            Takes indices of examples, with repeats, (m,) int64. For accuracy it is a `Mean`, whose interval
            is Wilson's.
        """
        gold, predicted = self._numbers(examples, predictions)
        if self.metric == "accuracy":
            return mean_of(gold == predicted)
        return lambda indices: _metric(self.metric, gold[indices], predicted[indices])

    # -> (n,) (n,)
    def _numbers(
        self,
        examples: Examples,
        predictions: Predictions,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Turn expected and predicted answers into numbers; of two classes the second is the positive one."""
        self.require_labels(examples)
        gold = [example.label for example in examples]
        if self.numeric:
            values = [prediction["value"] for prediction in predictions]
            return np.array(gold, np.float64), np.array(values, np.float64)
        predicted = [prediction["label"] for prediction in predictions]
        names = list(self.official)
        names += sorted({*gold, *predicted} - {*names})
        indices = {name: index for index, name in enumerate(names)}
        gold_indices = [indices[name] for name in gold]
        predicted_indices = [indices[name] for name in predicted]
        return np.array(gold_indices), np.array(predicted_indices)

    def write(
        self,
        folder: Path,
        split: str,
        examples: Examples,
        predictions: Predictions,
    ) -> list[Path]:
        """Write a table of ids, answers and texts. Cells with tabs, line ends or quotation marks are quoted.

        Returns
        -------
        list of Path
            `dev_predictions.tsv`, or that of another split or table; an empty file if there is no example.
        """
        rows: list[tuple[str, ...]] = []
        if examples:
            rows.append(("id", "prediction", *self.asked(examples[0])))
        key = "value" if self.numeric else "label"
        for example, prediction in zip(examples, predictions, strict=True):
            texts = self.asked(example).values()
            rows.append((example.id, str(prediction[key]), *texts))
        lines = []
        for row in rows:
            cells = "\t".join(map(_cell, row))
            lines.append(cells + "\n")
        path = folder / f"{split}_predictions.tsv"
        atomic_text(path, "".join(lines))
        return [path]

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield wrong classes, worse if the right one was less likely, or all numbers, by their error."""
        for index, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
            text = "\n".join(filter(None, (example.first, example.second)))
            if self.numeric:
                expected = float(example.label)
                value = prediction["value"]
                error = abs(expected - value)
                yield Mistake(text, f"{expected:g}", f"{value:.3f}", error, index)
            elif prediction["label"] != example.label:
                found = prediction["label"]
                probabilities = prediction["probabilities"]
                both = [probabilities.get(example.label, 0.0), probabilities[found]]
                yield Mistake(text, example.label, found, surprise(both[0]), index, both)

    def as_read(
        self,
        mistake: Mistake,
        example: TextExample,
        tokenizer: Any,
        max_length: int,
    ) -> Mistake:
        """Mark in a mistake where the model stopped reading. A pair in windows is left unmarked."""
        if self.long and example.second is not None:
            return mistake
        max_length = self.long.reach(max_length) if self.long else max_length
        texts = with_marks(tokenizer, max_length, example.first, example.second)
        return mistake._replace(text="\n".join(texts))

    def classes(self, examples: Examples, predictions: Predictions) -> Classes | None:
        """Return expected and predicted classes for a confusion matrix; None without a single class."""
        if self.kind != "classify":
            return None
        gold = [example.label for example in examples]
        predicted = [prediction["label"] for prediction in predictions]
        return gold, predicted


class Glue(Sentences):
    """A task of GLUE from its official files, or from a data set that stands in for them.

    Parameters
    ----------
    name : str
        One of `data.glue.TASKS` or `data.stand_ins.STAND_INS`, or "qnli-dev".
    title : str
        A one-line description.
    """

    def __init__(self, name: str, title: str) -> None:
        self.stand_in = None if name in glue.TASKS else name.removesuffix("-dev")  # name for `pairs.read`
        official = pairs.STAND_INS[name].task if name in pairs.STAND_INS else self.stand_in or name
        spec = glue.TASKS[official]
        self.numeric = not spec.labels
        self.kind = "regress" if self.numeric else "classify"
        self.scored = spec.metrics
        self.official = spec.labels
        self.pair = spec.pair
        super().__init__(name, title)

    def read(self, data: Path, split: str) -> list[TextExample]:
        """Read the examples of one split.

        Parameters
        ----------
        data : Path
            A folder with GLUE's files of the task, or with those of the data set that stands in for it.
        split : str
            "train", "dev" or "test". GLUE publishes no labels of "test".

        Returns
        -------
        list of TextExample
            In the order of the file.

        Raises
        ------
        InputError
            When a file has another layout; a `MissingFile` when there is none.
        """
        if self.stand_in:
            return pairs.read(self.stand_in, data, split)
        return glue.read(self.name, data, split)

    def write(
        self,
        folder: Path,
        split: str,
        examples: Examples,
        predictions: Predictions,
    ) -> list[Path]:
        """Write the file that GLUE's server takes, see `submissions.write`."""
        return [submissions.write(folder, self.name, split, examples, predictions)]


class CustomTexts(Sentences):
    """A custom table: a folder with files `train`, `dev` and `test` that end with .csv, .tsv or .jsonl.

    Each row has a class, unless a subclass says otherwise.

    Parameters
    ----------
    name : str
        Name of the task.
    title : str
        A one-line description.
    columns : mapping
        Names of the columns by their role, one of `known`.
    """

    scored: tuple[str, ...] = ("accuracy", "matthews")
    refuses_blanks = True
    known: tuple[str, ...] = COLUMNS  # roles that columns may have
    reading: ClassVar[dict[str, Any]] = {}  # arguments of `tables.read_texts` besides the columns

    def __init__(self, name: str, title: str, columns: Mapping[str, Any]) -> None:
        check_columns(name, columns, self.known)
        self.columns = dict(columns)
        self._tables: list[tuple[Path, list[TextExample]]] = []  # files and what was read from them
        super().__init__(name, title)

    def read(self, data: Path, split: str) -> list[TextExample]:
        """Read the table of one split, and remember the line of each example for errors.

        Parameters
        ----------
        data : Path
            A folder with one table for each split, see `custom_file`, or a table.
        split : str
            "train", "dev" or "test". A "test" table may lack its labels.

        Returns
        -------
        list of TextExample
            In the order of the rows. Each is a pair where the table has a column "second".
        """
        path = custom_file(data, split)
        columns = self.columns | self.reading
        examples = None
        if self.second_is_optional and "second" not in self.columns:
            try:
                with_second = {"second": "second"} | columns
                examples = read_custom(tables.read_texts, path, split, with_second, UNLABELLED)
            except tables.MissingColumn as error:
                if error.role != "second":
                    raise
        if examples is None:
            examples = read_custom(tables.read_texts, path, split, columns, UNLABELLED)
        self._tables.append((path, examples))
        return examples

    def place(self, example: TextExample) -> str:
        """Return where a person finds an example.

        Parameters
        ----------
        example : TextExample
            One of the examples that `read` returned.

        Returns
        -------
        str
            The file that the example was read from, or the first one with its texts, and the line; else its
            id.
        """
        sources = [path for path, examples in self._tables if any(row is example for row in examples)]
        for path in sources or [path for path, _ in self._tables]:
            # As "test", so that a table without labels can be read as well.
            line = read_custom(partial(tables.line_of, example), path, "test", self.columns, UNLABELLED)
            if line is not None:
                return f"{path}, line {line}"
        return super().place(example)

    def asked(self, example: TextExample) -> dict[str, str]:
        """Return the texts to write next to the prediction in JSON: `text`, and for a pair `second`."""
        texts = {"text": example.first}
        if example.second is not None:
            texts["second"] = example.second
        return texts


class CustomNumbers(CustomTexts):
    """A number for each row of a custom table."""

    kind = "regress"
    numeric = True
    scored = ("spearman", "pearson")
    standardise = True
    reading: ClassVar[dict[str, Any]] = {"numeric": True}


def create(name: str, title: str, columns: Mapping[str, Any]) -> Sentences:
    """Make a task by its name. `registry.create` calls this, for the tasks that it lists under this module.

    Parameters
    ----------
    name : str
        "classify" or "regress" for a custom table, else a task of GLUE, a stand-in for one, or "qnli-dev".
    title : str
        A one-line description.
    columns : mapping
        Options of a custom table: columns by their role, `delimiter`, `header`. Tasks of GLUE have none.

    Returns
    -------
    Sentences
        The task.
    """
    if name == "classify":
        return CustomTexts(name, title, columns)
    if name == "regress":
        return CustomNumbers(name, title, columns)
    return Glue(name, title)


def _second_texts(examples: list[TextExample]) -> list[str] | None:
    """Return the second texts of pairs, or None for single texts; raise InputError for a mixture."""
    texts = [example.second for example in examples if example.second is not None]
    if texts and len(texts) < len(examples):
        problem = "Some examples have a second text and others don't"
        raise InputError(f"{problem}; give one to all or to none.")
    return texts or None


def in_order(labels: set[str]) -> Labels:
    """Sort names of classes: numbers by value, anything else alphabetically.

    Parameters
    ----------
    labels : set of str
        Names of classes. They count as numbers if all of them are whole numbers of up to 18 digits.

    Returns
    -------
    tuple of str
        In ascending order.
    """
    if all(re.fullmatch("-?[0-9]{1,18}", label) for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))


def _cell(text: str) -> str:
    """Quote a cell as in CSV if it holds a tab, a line end or a quotation mark."""
    if not re.search('[\t\r\n"]', text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


# gold (n,)  predicted (n,)
def _metric(name: str, gold: np.ndarray, predicted: np.ndarray) -> float:
    """Compute a metric by its name; an undefined one is 0."""
    value = float(metrics.METRICS[name].compute(gold, predicted))
    return value if math.isfinite(value) else 0.0
