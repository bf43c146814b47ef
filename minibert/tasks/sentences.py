"""A class, or a number, for a sentence or a pair of sentences: GLUE, its stand-ins, and tables of one's own.

The model reads `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`, the longer text cut at its end where
there is no room, and answers at [CLS] (Devlin et al. 2019, section 4.1). With `long` it reads windows of a
longer text instead.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError, warn
from minibert.base.files import atomic_text
from minibert.base.terminal import counted, some_of
from minibert.core.batch import Feature, Sequence
from minibert.data import glue, stand_ins as pairs, tables
from minibert.data.glue import TextExample
from minibert.tasks import metrics, submissions
from minibert.tasks.cuts import with_marks
from minibert.tasks.metrics.intervals import Statistic, mean_of
from minibert.tasks.own_files import check_columns, own_file, read_own
from minibert.tasks.task import Classes, Examples, Labels, Mistake, Outputs, Predictions, Task, Tuned, softmax
from minibert.tokenizer.written import WrittenTokens

UNLABELLED = {"label": None}  # how a table without labels is read
COLUMNS = ("text", "second", "label", "id", "delimiter", "header")  # arguments of `tables.read_texts`
MOST_RARE = 5  # classes that a warning names
ERRORS = ("r2", "rmse", "mae")  # functions in `minibert.tasks.metrics` that see numbers off by a constant
BLOCK = 4096  # examples that are tokenised together


class Sentences(Task):
    """What all these tasks have in common; `read` and `write` differ.

    A prediction is `{"label": name, "probabilities": {name: p}}`, or `{"value": x}` where the answer is a
    number. `classes` are in the order of the outputs, () to take them from the data; None for a number.
    """

    command = "classify"
    refuses_blanks = False  # official files are taken as they are, with a warning
    numeric = False  # whether the answer is a number
    kind = ""
    scored: tuple[str, ...] = ()  # functions in `tasks.metrics`, the one that models are chosen by first

    def __init__(self, name: str, title: str, classes: Labels | None, scored: tuple[str, ...]) -> None:
        self.name, self.title = name, title
        self.numeric = classes is None or self.numeric
        self.kind = self.kind or ("regress" if self.numeric else "classify")
        self.scored = self.scored or scored
        self.metric, self.official = self.scored[0], classes or ()

    def labels(self, examples: Examples) -> Labels:
        if self.numeric or self.official or not examples:
            return self.official
        if len(found := {example.label for example in examples} - {None}) < 2:
            few = f"{counted(len(found), 'label')} ({', '.join(found) or 'none'})"
            raise InputError(f"The examples to learn from have {few}; give examples of at least two classes.")
        return in_order(found)

    def names(self, example: TextExample) -> tuple[Any, ...]:
        return (example.label,) if self.kind == "classify" else ()

    def features(
        self, examples: Iterable[TextExample], tokenizer: Any, labels: Labels, max_length: int, training: bool
    ) -> Iterator[Feature]:
        numbers = {label: number for number, label in enumerate(labels)}
        examples, done, blank = iter(examples), 0, []
        written = WrittenTokens(tokenizer)
        while block := list(islice(examples, BLOCK)):
            first, second = [e.first for e in block], [e.second for e in block]
            if None in second and any(text is not None for text in second):
                raise InputError("Some examples have a second text and others none; give all or none one.")
            limit = None if self.long else max_length
            encoded = tokenizer.encode_batch(first, None if None in second else second, max_length=limit)
            written.add(encoded)
            found = zip(block, encoded, encoded.n_cut.tolist(), strict=True)
            for number, (example, one, cut) in enumerate(found, start=done):
                is_blank = one.n_first == 2 or len(one) - one.n_first == 1  # no piece in one of the texts
                if is_blank and (self.long or len(one) < max_length):
                    blank.append(example.id)
                    if self.refuses_blanks:
                        what = "an empty sentence, or one without a piece in the vocabulary"
                        advice = "fill it or leave the example out."
                        raise InputError(f"{self.place(example)} has {what}; {advice}")
                whole = (Sequence(one.ids, one.token_type_ids, cut=cut),)
                sequences = self.long.sequences(one, max_length) if self.long else whole
                yield Feature(sequences, self._label(example, numbers, training), None, number)
            done += len(block)
        written.warn()
        if blank:
            warn(f"{len(blank):,} of {done:,} examples have an empty sentence, the first is {blank[0]}.")

    def warn_unknown(self, examples: Examples, labels: Labels) -> None:
        """Warn of labels that were never learnt: how many examples have one, and which is the first."""
        if self.numeric or not labels:
            return
        known = set(labels)
        unknown = [(name, one) for one in examples for name in self.names(one) if name not in {*known, None}]
        if unknown:
            kinds = Counter(name for name, _ in unknown).most_common()
            named = some_of([f"{name!r} ({count:,})" for name, count in kinds])
            place = self.place(unknown[0][1])
            count = len({id(one) for _, one in unknown})
            found = (
                f"{count:,} of {len(examples):,} examples have a label that nothing was learnt of: {named}"
            )
            effect = f"They count as mistakes; learnt were {some_of(labels)}."
            warn(f"{found}; the first is {place[0].lower()}{place[1:]}. {effect}")

    def check_dev(self, examples: Examples, labels: Labels) -> None:
        """Raise InputError for a label of dev that no example to learn from has."""
        if not self.numeric and labels:
            for example in examples:
                self._require_known(example, labels)

    def warn_rare(self, train: Examples, dev: Examples, labels: Labels) -> None:
        learnt, measured = (Counter(n for one in part for n in self.names(one)) for part in (train, dev))
        if not (rare := [label for label in labels if learnt[label] < 2 or not measured[label]]):
            return
        found = []
        for label in rare[:MOST_RARE]:
            only = [self.place(one) for one in train if learnt[label] == 1 and label in self.names(one)]
            place = "".join(f" ({one[0].lower()}{one[1:]})" for one in only)
            counts = f"{learnt[label]:,} to learn from{place} and {measured[label]:,} to measure on"
            found.append(f"{label!r} with {counts}")
        more = f"; and {len(rare) - MOST_RARE:,} more" if len(rare) > MOST_RARE else ""
        few = f"Too few examples of {len(rare):,} of {len(labels):,} classes: {'; '.join(found)}{more}"
        unseen = "The metrics say nothing of a class with none to measure on"
        warn(f"{few}. {unseen}; give more examples, or join classes.")

    def place(self, example: TextExample) -> str:
        """Return where a person finds an example, as the beginning of a sentence."""
        return f"Example {example.id}"

    def _label(self, example: TextExample, numbers: dict[str, int], training: bool) -> Any:
        if example.label is None:
            if training:
                raise InputError(f"{self.place(example)} has no label to learn from; give a labelled file.")
            return None
        if self.numeric:
            return float(example.label)
        if training:
            self._require_known(example, numbers)
        return numbers.get(example.label)  # None: it was never learnt, and is compared by name

    def _require_known(self, example: TextExample, labels: Iterable[str]) -> None:
        """Raise InputError where an example has a label that is none of those to learn."""
        if unknown := [name for name in self.names(example) if name is not None and name not in labels]:
            known = ", ".join(islice(labels, 16))
            what = f"the label {unknown[0]!r}, which no example to learn from has ({known})"
            raise InputError(f"{self.place(example)} has {what}; correct it or add examples of it.")

    def predict(
        self, examples: Examples, features: Any, outputs: Outputs, labels: Labels, tuned: Tuned
    ) -> list[dict[str, Any]]:
        if self.numeric:
            return [{"value": float(one[0])} for one in outputs]
        every = [dict(zip(labels, softmax(one).tolist(), strict=True)) for one in outputs]
        return [{"label": max(one, key=one.__getitem__), "probabilities": one} for one in every]

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute the task's metrics; a correlation with what is constant counts as 0.

        Of numbers also R² and the errors: correlations say nothing of numbers that are all off by a constant.
        """
        gold, found = self._numbers(examples, predictions)
        names = (*self.scored, *ERRORS) if self.kind == "regress" else self.scored
        return {name: _metric(name, gold, found) for name in names}

    def constant(self, examples: Examples) -> float | None:
        if self.kind != "regress":
            return None
        return float(np.mean([example.label for example in examples]))

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        gold, found = self._numbers(examples, predictions)
        if self.metric == "accuracy":
            return mean_of(gold == found)
        return lambda indices: _metric(self.metric, gold[indices], found[indices])

    # -> (n,) (n,)
    def _numbers(self, examples: Examples, predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
        """Turn expected and predicted answers into numbers; of two classes the second is the positive one."""
        self.require_labels(examples)
        gold = [example.label for example in examples]
        if self.numeric:
            return np.array(gold, np.float64), np.array([p["value"] for p in predictions], np.float64)
        found = [prediction["label"] for prediction in predictions]
        names = dict.fromkeys([*self.official, *sorted({*gold, *found})])
        place = {name: number for number, name in enumerate(names)}
        return np.array([place[name] for name in gold]), np.array([place[name] for name in found])

    def write(self, folder: Path, split: str, examples: Examples, predictions: Predictions) -> list[Path]:
        """Write a table of ids, answers and texts, where tabs, line ends and quotation marks are quoted."""
        answers = [p["value"] if self.numeric else p["label"] for p in predictions]
        rows = [("id", "prediction", *self.asked(examples[0]))] if examples else []
        rows += [(e.id, str(a), *self.asked(e).values()) for e, a in zip(examples, answers, strict=True)]
        path = folder / f"{split}_predictions.tsv"
        atomic_text(path, "".join("\t".join(map(_cell, row)) + "\n" for row in rows))
        return [path]

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield wrong classes, the worse the less likely their right class was; numbers by their error."""
        for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
            text = "\n".join(filter(None, (example.first, example.second)))
            if self.numeric:
                expected, found = float(example.label), prediction["value"]
                yield Mistake(text, f"{expected:g}", f"{found:.3f}", abs(expected - found), number)
            elif prediction["label"] != example.label:
                chance = max(prediction["probabilities"].get(example.label, 0.0), 1e-300)
                yield Mistake(text, example.label, prediction["label"], -math.log(chance), number)

    def as_read(self, mistake: Mistake, example: TextExample, tokenizer: Any, max_length: int) -> Mistake:
        if self.long and example.second is not None:
            return mistake
        max_length = self.long.reach(max_length) if self.long else max_length
        texts = with_marks(tokenizer, max_length, example.first, example.second)
        return mistake._replace(text="\n".join(texts))

    def classes(self, examples: Examples, predictions: Predictions) -> Classes | None:
        if self.kind != "classify":
            return None
        return [example.label for example in examples], [one["label"] for one in predictions]


class Glue(Sentences):
    """A task of GLUE from its official files, or from data that stand in for it."""

    def __init__(self, name: str, title: str) -> None:
        self.stand_in = None if name in glue.TASKS else name.removesuffix("-dev")  # as its reader has it
        spec = glue.TASKS[pairs.STAND_INS[name].task if name in pairs.STAND_INS else self.stand_in or name]
        super().__init__(name, title, spec.labels or None, spec.metrics)
        self.pair = spec.pair

    def read(self, data: Path, split: str) -> list[TextExample]:
        return pairs.read(self.stand_in, data, split) if self.stand_in else glue.read(self.name, data, split)

    def write(self, folder: Path, split: str, examples: Examples, predictions: Predictions) -> list[Path]:
        """Write the file that GLUE's server takes."""
        return [submissions.write(folder, self.name, split, examples, predictions)]


class OwnTexts(Sentences):
    """A table of one's own: `train`, `dev` and `test` with the ending .csv, .tsv or .jsonl in a folder."""

    refuses_blanks = True
    known: tuple[str, ...] = COLUMNS  # which there may be
    second_is_optional = False  # whether a column "second" is read where a table has one, and not missed

    def __init__(self, name: str, title: str, columns: Mapping[str, Any]) -> None:
        check_columns(name, columns, self.known)
        self.columns = dict(columns)
        self._files: list[Path] = []  # that were read
        is_number = self.standardise = name == "regress"
        scored = ("spearman", "pearson") if is_number else ("accuracy", "matthews")
        super().__init__(name, title, None if is_number else (), scored)

    def read(self, data: Path, split: str) -> list[TextExample]:
        return self._own(data, split, numeric=self.kind == "regress", several=self.kind == "multilabel")

    def _own(self, data: Path, split: str, **more: Any) -> list[TextExample]:
        self._files.append(own_file(data, split))
        if self.second_is_optional and "second" not in self.columns:
            try:
                columns = {"second": "second"} | self.columns | more
                return read_own(tables.read_texts, self._files[-1], split, columns, UNLABELLED)
            except tables.MissingColumn as error:
                if error.role != "second":
                    raise
        return read_own(tables.read_texts, self._files[-1], split, self.columns | more, UNLABELLED)

    def place(self, example: TextExample) -> str:
        for path in self._files:
            # The columns of a file without labels, where it has none: "test" admits those.
            line = read_own(partial(tables.line_of, example), path, "test", self.columns, UNLABELLED)
            if line is not None:
                return f"Line {line:,} of {path.name}"
        return super().place(example)

    def asked(self, example: TextExample) -> dict[str, str]:
        return {"text": example.first} | ({} if example.second is None else {"second": example.second})


def create(name: str, title: str, columns: Mapping[str, Any]) -> Sentences:
    """Make the task of that name."""
    return OwnTexts(name, title, columns) if name in ("classify", "regress") else Glue(name, title)


def in_order(labels: set[str]) -> Labels:
    """Sort names of classes; numbers by their value."""
    if all(re.fullmatch("-?[0-9]{1,18}", label) for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))


def _cell(text: str) -> str:
    """Quote a column as in CSV where it could be taken for more or less than itself."""
    return f'"{text.replace(chr(34), 2 * chr(34))}"' if re.search('[\t\r\n"]', text) else text


# gold (n,)  found (n,)
def _metric(name: str, gold: np.ndarray, found: np.ndarray) -> float:
    value = float(getattr(metrics, name)(gold, found))
    return value if math.isfinite(value) else 0.0
