"""Choose which ending continues a text: SWAG, HellaSwag, COPA, CommonsenseQA (Devlin et al. 2019, 4.4).

Each ending makes a sequence with the context, `[CLS] context [SEP] start ending [SEP]`, and gets one score.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError, MissingFile
from minibert.base.files import atomic_text
from minibert.core.batch import Feature
from minibert.data import choice
from minibert.data.choice import ChoiceExample
from minibert.data.places import where_to_get
from minibert.data.stand_ins import divided
from minibert.tasks import metrics
from minibert.tasks.custom_files import matching
from minibert.tasks.metrics.intervals import Statistic, mean_of
from minibert.tasks.task import (
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
from minibert.tasks.truncation import sequences_of, with_marks
from minibert.tokenizer.written import WrittenTokens

BLOCK = 1024  # number of examples to tokenise together
DIVIDED = "-dev"  # ending of the names of tasks that divide the dev file


class Source(NamedTuple):
    """How to read the files of a task, and their names: official ones, and those on the Hugging Face hub."""

    read: Callable[[Path], list[ChoiceExample]]
    copy: str  # part of the file names on the hub
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
    """One of several endings. A prediction is `{"choice": index, "probabilities": [p, ...]}`.

    For data without a train file there are tasks whose names end with "-dev": they divide the dev file by
    context, and train on four fifths of it.

    Parameters
    ----------
    name : str
        One of `SOURCES`, or "hellaswag-dev".
    title : str
        A one-line description.
    columns : mapping, optional
        Ignored: official files have their own columns.
    """

    kind = "choice"
    metric = "accuracy"

    def __init__(self, name: str, title: str, columns: Any = ()) -> None:
        self.name = name
        self.title = title

    def read(self, data: Path, split: str) -> list[ChoiceExample]:
        """Read the examples of one split.

        Parameters
        ----------
        data : Path
            Folder of the official files, or of their copies on the Hugging Face hub, or a file.
        split : str
            "train", "dev" or "test".

        Returns
        -------
        list of ChoiceExample
            In the order of the file.

        Raises
        ------
        InputError
            When there is no such folder, or the file does not belong to this task.
        MissingFile
            When the folder has no file of the split.
        """
        if self.name.endswith(DIVIDED):
            examples = self._read(data, "dev")
            return divided(examples, split, lambda example: example.context)
        return self._read(data, split)

    def _read(self, data: Path, split: str) -> list[ChoiceExample]:
        """Read the examples of an official split, before any division of dev."""
        source = SOURCES[self.name.removesuffix(DIVIDED)]
        data = Path(data)
        if data.is_file():
            return source.read(data)
        place = where_to_get(self.name)
        if not data.is_dir():
            raise InputError(
                f"There is no folder '{data}'; name the folder with the files of {self.name}{place}."
            )
        name = getattr(source, split)
        split_on_hub = "validation" if split == "dev" else split
        paths = matching(data, name) or matching(data, f"*{source.copy}*{split_on_hub}.jsonl")
        if paths:
            return source.read(paths[0])
        advice = f"name the folder with the files of {self.name}, or the file{place}."
        raise MissingFile(f"'{data}' has no {name}; {advice}")

    def features(
        self,
        examples: Iterable[Any],
        tokenizer: Any,
        labels: Labels,
        max_length: int,
        training: bool,
    ) -> Iterator[Feature]:
        """Yield the sequences of each example, one for every ending (Devlin et al. 2019, section 4.4).

        All examples need the same number of endings.

        Yields
        ------
        Feature
            One for each example, with the index of the right ending as its label.
        """
        source = iter(examples)
        indices = count()
        choices = None  # number of endings
        written = WrittenTokens(tokenizer)
        while block := list(islice(source, BLOCK)):
            contexts: list[str] = []
            endings: list[str] = []
            for example in block:
                choices = choices or len(example.endings)
                _check(example, choices, training)
                contexts += [example.context] * choices
                endings += [f"{example.start} {ending}".strip() for ending in example.endings]
            encoded = tokenizer.encode_batch(contexts, endings, max_length=max_length)
            sequence_of_token = np.repeat(np.arange(len(encoded)), np.diff(encoded.cu_seqlens))
            # The sequences of an example share its context: it is counted in the first one only.
            is_first = sequence_of_token % (choices or 1) == 0
            written.add(encoded, is_first | (encoded.token_type_ids == 1))
            sequences = sequences_of(encoded)
            for example in block:
                yield Feature(tuple(islice(sequences, choices)), example.label, None, next(indices))
        written.warn()

    def predict(
        self,
        examples: Examples,
        features: Any,
        outputs: Outputs,
        labels: Labels,
        tuned: Tuned,
    ) -> list[dict[str, Any]]:
        """Return the most likely ending of every example.

        Parameters
        ----------
        outputs : sequence of numpy.ndarray
            One score for each ending of an example, (c,).

        Returns
        -------
        list of dict
            See `Choices`.
        """
        predictions = []
        for scores in outputs:
            probabilities = softmax(scores)
            choice = int(probabilities.argmax())
            predictions.append({"choice": choice, "probabilities": probabilities.tolist()})
        return predictions

    # -> (n,) (n,)
    def _numbers(
        self,
        examples: Examples,
        predictions: Predictions,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the right and of the chosen endings."""
        self.require_labels(examples)
        gold = [example.label for example in examples]
        predicted = [prediction["choice"] for prediction in predictions]
        return np.array(gold), np.array(predicted)

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute the share of right choices.

        Returns
        -------
        dict
            Only `accuracy`.

        Raises
        ------
        InputError
            When it is not known which ending of an example is right.
        """
        return {"accuracy": metrics.accuracy(*self._numbers(examples, predictions))}

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        """Return the accuracy as a function of examples, for its confidence interval.

        Returns
        -------
        Mean
            Whether each choice is right.
        """
        return mean_of(np.equal(*self._numbers(examples, predictions)))

    def write(
        self,
        folder: Path,
        split: str,
        examples: Examples,
        predictions: Predictions,
    ) -> list[Path]:
        """Write a table with the index of the chosen ending for each id, such as `swag-test.csv`."""
        lines = ["id,pred\n"]
        for example, prediction in zip(examples, predictions, strict=True):
            lines.append(f"{example.id},{prediction['choice']}\n")
        path = folder / f"{self.name}-{split}.csv"
        atomic_text(path, "".join(lines))
        return [path]

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield wrong choices; the less likely the right ending was, the worse."""
        for index, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
            if prediction["choice"] != example.label:
                probabilities = prediction["probabilities"]
                both = [probabilities[example.label], probabilities[prediction["choice"]]]
                yield Mistake(
                    text=f"{example.context} {example.start}".strip(),
                    expected=example.endings[example.label],
                    found=example.endings[prediction["choice"]],
                    severity=surprise(both[0]),
                    example=index,
                    probabilities=both,
                )

    def as_read(
        self,
        mistake: Mistake,
        example: ChoiceExample,
        tokenizer: Any,
        max_length: int,
    ) -> Mistake:
        """Mark in a mistake where the model stopped reading: in the context, and in both endings."""

        def read_with(ending: str) -> tuple[str, str]:
            """Return the context and an ending, marked where a sequence with both is truncated."""
            second = f"{example.start} {ending}".strip()
            context, marked = with_marks(tokenizer, max_length, example.context, second)
            return context, marked.removeprefix(example.start).strip()

        context, expected = read_with(mistake.expected)
        _, chosen = read_with(mistake.found)
        text = f"{context} {example.start}".strip()
        return mistake._replace(text=text, expected=expected, found=chosen)


create = Choices


def _check(example: ChoiceExample, choices: int, training: bool) -> None:
    """Raise InputError for an example that can't be asked, or not be trained on."""
    place = f"example {example.id}"
    if len(example.endings) != choices:
        problem = f"{len(example.endings)} endings, where other examples have {choices}"
        raise InputError(f"{problem}; give every example as many.", where=place)
    if training and example.label is None:
        raise InputError("there is no label to train on; give a file with labels.", where=place)
    if not example.context.strip() and not example.start.strip():
        raise InputError("the context is empty; fill it, or leave the example out.", where=place)
