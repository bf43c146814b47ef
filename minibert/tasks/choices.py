"""Which of several endings goes on: SWAG, HellaSwag, COPA, CommonsenseQA (Devlin et al. 2019, section 4.4).

Each ending makes a sequence with the context, `[CLS] context [SEP] start ending [SEP]`, and gets one score.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError, MissingFile
from minibert.base.files import atomic_text
from minibert.core.batch import Feature, Sequence
from minibert.data import choice
from minibert.data.choice import ChoiceExample
from minibert.data.places import where_to_get
from minibert.data.stand_ins import divided
from minibert.tasks import metrics
from minibert.tasks.cuts import with_marks
from minibert.tasks.metrics.intervals import Statistic, mean_of
from minibert.tasks.own_files import matching
from minibert.tasks.task import Examples, Labels, Mistake, Outputs, Predictions, Task, Tuned, softmax
from minibert.tokenizer.written import WrittenTokens

BLOCK = 1024  # examples that are tokenised together
DIVIDED = "-dev"


class Source(NamedTuple):
    """How the files of a task are read, and their names: by the makers, and on the Hugging Face hub."""

    read: Callable[[Path], list[ChoiceExample]]
    copy: str  # what stands in the names on the hub
    train: str = "train.jsonl"
    dev: str = "val.jsonl"
    test: str = "test.jsonl"


_HELLASWAG = [f"hellaswag_{part}.jsonl" for part in ("train", "val", "test")]
_CSQA = [f"{part}.jsonl" for part in ("train_rand_split", "dev_rand_split", "test_rand_split_no_answers")]
SOURCES = {
    "swag": Source(choice.read_swag, "swag", "train.csv", "val.csv", "test.csv"),
    "hellaswag": Source(choice.read_hellaswag, "hellaswag", *_HELLASWAG),
    "copa": Source(choice.read_copa, "copa"),
    "csqa": Source(choice.read_commonsense_qa, "commonsense_qa", *_CSQA),
}


class Choices(Task):
    """One of several endings. A prediction is `{"choice": n, "probabilities": [p, ...]}`.

    With "-dev" behind the name the dev file is divided by context, four fifths of it to train on, for data of
    which there is no train file.
    """

    kind = "choice"
    metric = "accuracy"

    def __init__(self, name: str, title: str, columns: Any = ()) -> None:
        self.name, self.title = name, title  # official files have their own columns

    def read(self, data: Path, split: str) -> list[ChoiceExample]:
        if self.name.endswith(DIVIDED):
            return divided(self._read(data, "dev"), split, lambda one: one.context)
        return self._read(data, split)

    def _read(self, data: Path, split: str) -> list[ChoiceExample]:
        source, data = SOURCES[self.name.removesuffix(DIVIDED)], Path(data)
        if data.is_file():
            return source.read(data)
        place = where_to_get(self.name)
        if not data.is_dir():
            raise InputError(
                f"There is no folder {data}; name the one that holds the files of {self.name}{place}."
            )
        name = getattr(source, split)
        on_hub = f"*{source.copy}*{'validation' if split == 'dev' else split}.jsonl"
        if found := matching(data, name) or matching(data, on_hub):
            return source.read(found[0])
        advice = f"name the folder that holds the files of {self.name}, or the file{place}."
        raise MissingFile(f"{data} has no {name}; {advice}")

    def features(
        self, examples: Iterable[Any], tokenizer: Any, labels: Labels, max_length: int, training: bool
    ) -> Iterator[Feature]:
        examples, numbers, choices = iter(examples), count(), None
        written = WrittenTokens(tokenizer)
        while block := list(islice(examples, BLOCK)):
            contexts, endings = [], []
            for example in block:
                choices = choices or len(example.endings)
                _check(example, choices, training)
                contexts += [example.context] * choices
                endings += [f"{example.start} {ending}".strip() for ending in example.endings]
            encoded = tokenizer.encode_batch(contexts, endings, max_length=max_length)
            sequence = np.repeat(np.arange(len(encoded)), np.diff(encoded.cu_seqlens))
            is_first = sequence % (choices or 1) == 0  # of an example: they share its context
            written.add(encoded, is_first | (encoded.token_type_ids == 1))
            cuts = encoded.n_cut.tolist()
            every = (Sequence(o.ids, o.token_type_ids, cut=n) for o, n in zip(encoded, cuts, strict=True))
            for example in block:
                yield Feature(tuple(islice(every, choices)), example.label, None, next(numbers))
        written.warn()

    def predict(
        self, examples: Examples, features: Any, outputs: Outputs, labels: Labels, tuned: Tuned
    ) -> list[dict[str, Any]]:
        return [{"choice": int(p.argmax()), "probabilities": p.tolist()} for p in map(softmax, outputs)]

    # -> (n,) (n,)
    def _numbers(self, examples: Examples, predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
        self.require_labels(examples)
        gold, found = [e.label for e in examples], [p["choice"] for p in predictions]
        return np.array(gold), np.array(found)

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        return {"accuracy": metrics.accuracy(*self._numbers(examples, predictions))}

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        return mean_of(np.equal(*self._numbers(examples, predictions)))

    def write(self, folder: Path, split: str, examples: Examples, predictions: Predictions) -> list[Path]:
        """Write `swag-test.csv` and the like: the number of the chosen ending for each id."""
        rows = [f"{e.id},{p['choice']}\n" for e, p in zip(examples, predictions, strict=True)]
        path = folder / f"{self.name}-{split}.csv"
        atomic_text(path, "".join(["id,pred\n", *rows]))
        return [path]

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield wrong choices, the worse the less likely their right ending was."""
        for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
            if prediction["choice"] != example.label:
                chance = max(prediction["probabilities"][example.label], 1e-300)
                text = f"{example.context} {example.start}".strip()
                expected, found = (example.endings[one] for one in (example.label, prediction["choice"]))
                yield Mistake(text, expected, found, -math.log(chance), number)

    def as_read(self, mistake: Mistake, example: ChoiceExample, tokenizer: Any, max_length: int) -> Mistake:
        """Return the context as it was read with the right ending, and both endings."""
        (context, expected), (_, found) = (
            with_marks(tokenizer, max_length, example.context, f"{example.start} {ending}".strip())
            for ending in (mistake.expected, mistake.found)
        )
        expected, found = (one.removeprefix(example.start).strip() for one in (expected, found))
        return mistake._replace(text=f"{context} {example.start}".strip(), expected=expected, found=found)


create = Choices


def _check(example: ChoiceExample, choices: int, training: bool) -> None:
    if len(example.endings) != choices:
        found = f"{len(example.endings)} endings and others {choices}"
        raise InputError(f"Example {example.id} has {found}; give every example the same number.")
    if training and example.label is None:
        raise InputError(f"Example {example.id} has no label to learn from; give a file with labels.")
    if not any(ending.strip() for ending in (example.context, example.start)):
        raise InputError(f"Example {example.id} has an empty context; fill it or leave the example out.")
