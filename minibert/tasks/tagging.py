"""Tag every word by its first piece (Devlin et al. 2019, section 5.3): `ner`, and custom files.

A sentence is read with as many neighbouring words of its document as fit; see `contexts`. There is no CRF:
tags are chosen word by word, and a tag that contradicts its neighbours is left to the scorer.
"""

import re
from collections import Counter, abc
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError, warn
from minibert.base.files import atomic_text
from minibert.base.terminal import some_of
from minibert.core.batch import Feature, Sequence
from minibert.data import ner, tables
from minibert.data.glue import find_file
from minibert.data.ner import TaggedSentence
from minibert.tasks.contexts import longest_word, windows
from minibert.tasks.custom_files import check_columns, custom_file, read_custom
from minibert.tasks.metrics import entities, schemes
from minibert.tasks.metrics.entities import OUTSIDE
from minibert.tasks.metrics.intervals import Statistic
from minibert.tasks.task import Classes, Examples, Labels, Mistake, Outputs, Predictions, Task, Tuned
from minibert.tokenizer.written import WrittenTokens

# File names of each split in the usual copies of CoNLL-2003, and of other files with one word per line.
FILES = {
    "train": ("eng.train", "train.txt", "train.conll", "train.bio"),
    "dev": ("eng.testa", "valid.txt", "dev.txt", "valid.conll", "dev.conll", "dev.bio"),
    "test": ("eng.testb", "test.txt", "test.conll", "test.bio"),
}
COLUMNS = ("words", "tags", "layout", "sentence", "delimiter", "header")  # arguments of `tables.read_tags`
NO_PIECE = 0  # row of words without pieces; it is that of [CLS], so that no word has it


def create(name: str, _: str, columns: Mapping[str, str]) -> "Tagging":
    """Make a task by its name.

    Parameters
    ----------
    name : str
        "ner", "ner-sentences" or "tag".
    _ : str
        Ignored: `Tagging` has its own title.
    columns : mapping
        For "tag", names of the columns of its table, by their role.

    Returns
    -------
    Tagging
        The task.
    """
    check_columns(name, columns, COLUMNS)
    return Tagging(name, columns, by_document=name != "ner-sentences")


class Tagging(Task):
    """A tag for each word. Tags of the form O, B-TYPE and I-TYPE mark named entities.

    A prediction is a list of tags, one for each word of a sentence.

    Parameters
    ----------
    name : str, default "ner"
        "tag" for custom files, any other name for those of CoNLL-2003.
    columns : mapping, optional
        For custom files, names of the columns by their role, one of `COLUMNS`.
    by_document : bool, default True
        Whether a sentence is read with its neighbours in the document, or by itself.
    """

    kind = "tag"
    command = "tag"
    label_field = "tags"
    metric = "f1"
    max_length = 512

    def __init__(
        self,
        name: str = "ner",
        columns: Mapping[str, str] | None = None,
        by_document: bool = True,
    ):
        self.name = name
        self.columns = dict(columns or {})
        self.by_document = by_document
        self.title = "Tags of words" if name == "tag" else "Named entities, CoNLL-2003"
        if not by_document:
            self.title += ", sentence by sentence"

    def read(self, data: Path, split: str) -> list[TaggedSentence]:
        """Read the sentences of one split.

        Parameters
        ----------
        data : Path
            Folder of CoNLL-2003's files or of custom ones, see `FILES`, or a file.
        split : str
            "train", "dev" or "test". A custom "test" file may lack its tags.

        Returns
        -------
        list of TaggedSentence
            In the order of the file.
        """
        if self.name == "tag":
            path = custom_file(data, split, FILES[split])
            unlabelled = {"tags": None, "labelled": False}
            return read_custom(tables.read_tags, path, split, self.columns, unlabelled)
        path = find_file(Path(data), FILES[split], ("ner", "conll2003"), self.name)
        return ner.read(path)

    def labels(self, examples: Examples) -> Labels:
        """Name the tags in the order of the outputs: O, then the others alphabetically.

        A warning names tags that look like those of entities but follow no known scheme, and says so if all
        tags are numbers.

        Returns
        -------
        tuple of str
            Both B- and I- for every type of entity, whether or not both occur; () if there is no word.
        """
        tags = {tag for example in examples for tag in _tags_of(example)}
        if not tags:
            return ()
        if all(re.fullmatch("[0-9]+", tag) for tag in tags):
            problem = f"All {len(tags)} tags are numbers, which don't say where entities begin and end"
            effect = "F1 is the accuracy of words"
            warn(f"{problem}: {effect}. Give tags with names to score and list entities.")
        if unknown := schemes.tags_without_scheme(tags):
            effect = "each word that has one counts as an entity by itself"
            warn(f"{schemes.unknown_scheme(unknown)}; {effect}. Change them where they mark entities.")
        if all(map(ner.is_entity_tag, tags)):
            types = sorted({tag[2:] for tag in tags} - {""})
            entity_tags = [f"{prefix}-{kind}" for kind in types for prefix in "BI"]
            return (OUTSIDE, *entity_tags)
        return tuple(sorted(tags, key=lambda tag: (tag != OUTSIDE, tag)))

    def features(
        self,
        examples: Iterable[Any],
        tokenizer: Any,
        labels: Labels,
        max_length: int,
        training: bool,
    ) -> Iterator[Feature]:
        """Lay windows over the documents, in order.

        A word longer than a sixth of `max_length` loses its last pieces. A word without pieces, such as a
        control character, has no row in training; otherwise its row is `NO_PIECE`.

        Parameters
        ----------
        examples : iterable of TaggedSentence
            Sentences in order; those of a document follow one another.
        tokenizer : Tokenizer
            The model's tokenizer.
        labels : tuple of str
            The model's tags, in the order of its outputs.
        max_length : int
            Most tokens in a sequence, [CLS] and [SEP] included.
        training : bool
            Whether the features are for training, so that all tags have to be known.

        Yields
        ------
        Feature
            One for each window: the rows of the first pieces of the words to tag, and the tags of these
            words, (n,) int32 both; tags are None if one is unknown. `example` is the index of the first
            sentence to tag.

        Raises
        ------
        InputError
            When `training` and a tag is missing or not in `labels`.
        """
        before = 0  # number of sentences in earlier documents
        room = max_length - 2  # without [CLS] and [SEP]
        written = WrittenTokens(tokenizer)
        for _, numbered in groupby(enumerate(examples), self._document):
            sentences = [sentence for _, sentence in numbered]
            tags = tag_numbers(sentences, labels, before, training)
            words = [word for sentence in sentences for word in sentence.words]
            lengths = [len(sentence.words) for sentence in sentences]
            ends = np.cumsum(lengths)  # (m,)
            encoded = tokenizer.encode_batch(words, add_special_tokens=False, threads=1)
            written.add(encoded)
            pieces = np.minimum(np.diff(encoded.cu_seqlens), longest_word(room))  # (n,)
            for begin, end, first, last in windows(pieces, ends, room):
                rows = _first_rows(pieces[begin:end])[first - begin : last - begin]
                asked_tags: Any = None if tags is None else tags[first:last]
                if training:
                    asked_tags = asked_tags[rows != NO_PIECE]
                    rows = rows[rows != NO_PIECE]
                    if not len(rows):
                        continue
                starts = encoded.cu_seqlens[begin:end]
                parts = [encoded.ids[s : s + n] for s, n in zip(starts, pieces[begin:end], strict=True)]
                ids = np.concatenate([[tokenizer.cls_id], *parts, [tokenizer.sep_id]]).astype(np.int32)
                sequence = Sequence(ids, np.zeros(len(ids), np.int32))
                example = before + int(np.searchsorted(ends, first, side="right"))
                yield Feature((sequence,), asked_tags, rows, example)
            before += len(sentences)
        written.warn()

    def warn_unknown(self, examples: Examples, labels: Labels) -> None:
        """Warn of tags that the model does not know: how often they occur, and where the first is."""
        counts: Counter[str] = Counter()
        first = 0  # number of the first sentence with such a tag, from 1
        for number, example in enumerate(examples, start=1):
            unknown = [tag for tag in example.tags or () if tag not in labels]
            counts.update(unknown)
            if unknown and not first:
                first = number
        if not counts:
            return
        named = some_of([f"{tag} ({count:,})" for tag, count in counts.most_common()])
        n_words = sum(len(example.words) for example in examples)
        problem = f"{counts.total():,} of {n_words:,} words have a tag that the model does not know: {named}"
        warn(f"{problem}; the first is in sentence {first:,}. They count as mistakes.")

    def _document(self, numbered: tuple[int, TaggedSentence]) -> int:
        """Return what sentences that are read together share: the document, or their own index."""
        return numbered[1].document if self.by_document else numbered[0]

    def predict(
        self,
        examples: Examples,
        features: Any,
        outputs: Outputs,
        labels: Labels,
        tuned: Tuned,
    ) -> list[list[str]]:
        """Choose the most likely tag of every word; O for a word that the model can't see.

        Parameters
        ----------
        features : sequence of Feature
            The windows of these sentences, made for prediction.
        outputs : sequence of numpy.ndarray
            Scores of the words to tag in each window, (n,K).

        Returns
        -------
        list of list of str
            The tags of each sentence.

        Raises
        ------
        ValueError
            When the features do not ask about every word once.
        """
        bounds = sentence_bounds(examples)
        rows_of_each = [feature.rows for feature in features]
        rows = np.concatenate([np.empty(0, np.int32), *rows_of_each])
        if len(rows) != bounds[-1]:
            raise ValueError(f"{len(rows)} words were asked about, the examples have {bounds[-1]}.")
        scores = np.concatenate([np.empty((0, len(labels))), *outputs])
        return predicted_tags(scores, rows != NO_PIECE, bounds, labels)

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute the metrics of whole entities, and the accuracy of words.

        Any other tag counts as an entity of one word, so that F1 is that of all tags except O; without O, it
        is the accuracy. A tag that the model does not know counts as missed.

        Returns
        -------
        dict
            `f1`, `precision`, `recall`, `accuracy` and the F1 of each type, such as `f1_PER`: fractions of
            one.
        """
        metrics = entities.conlleval(*comparable(examples, predictions))
        scores = {}
        for name in ("f1", "precision", "recall", "accuracy"):
            scores[name] = metrics[name] / 100
        for kind, type_metrics in metrics["types"].items():
            scores[f"f1_{kind}"] = type_metrics["f1"] / 100
        return scores

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        """Return the F1 of entities as a function of sentences, for its confidence interval.

        Returns
        -------
        callable
            Takes indices of sentences, with repeats, (m,) int64, and returns the F1 of all their entities.
        """
        counts = entities.sentence_counts(*comparable(examples, predictions))
        return lambda indices: entities.f1_of(counts[indices]) / 100

    def write(
        self,
        folder: Path,
        split: str,
        examples: Examples,
        predictions: Predictions,
    ) -> list[Path]:
        """Write columns as conlleval reads them: the word, the true tag if it is known, the predicted tag.

        Returns
        -------
        list of Path
            `dev_predictions.conll`, or that of another split, with an empty line after each sentence.
        """
        path = Path(folder) / f"{split}_predictions.conll"
        lines = []
        for example, tags in zip(examples, predictions, strict=True):
            columns: list[abc.Sequence[str]] = [example.words]
            if example.tags:
                columns.append(example.tags)
            columns.append(tags)
            for row in zip(*columns, strict=True):
                shown = " ".join(map(_without_spaces, row))
                lines.append(shown + "\n")
            lines.append("\n")
        atomic_text(path, "".join(lines))
        return [path]

    def asked(self, example: TaggedSentence) -> dict[str, list[str]]:
        """Return the words of a custom table's sentence as `words`, to write next to their tags in JSON."""
        return {"words": list(example.words)} if self.name == "tag" else {}

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield sentences with wrong entities; the more are missing, invented or cut wrongly, the worse."""
        sides = comparable(examples, predictions)
        sentences = zip(examples, sides.gold, sides.predicted, strict=True)
        for index, (example, gold_tags, predicted_tags) in enumerate(sentences):
            gold = entities.chunks(gold_tags, sides.schemes.gold)
            predicted = entities.chunks(predicted_tags, sides.schemes.predicted)
            wrong = set(gold) ^ set(predicted)
            if wrong:
                yield Mistake(
                    text=" ".join(example.words),
                    expected=entities_text(example.words, gold),
                    found=entities_text(example.words, predicted),
                    severity=float(len(wrong)),
                    example=index,
                )

    def classes(self, examples: Examples, predictions: Predictions) -> Classes:
        """Return expected and predicted types of all words, such as PER and O, without B- and the like."""
        sides = comparable(examples, predictions)
        return _types(sides.gold), _types(sides.predicted)


# pieces (n,) -> (n,) int32
def _first_rows(pieces: np.ndarray) -> np.ndarray:
    """Return the row of each word's first piece in a sequence of words; `NO_PIECE` for a word without any.

    Parameters
    ----------
    pieces : numpy.ndarray
        Number of pieces of each word, (n,).
    """
    before = np.cumsum(pieces) - pieces  # number of pieces before each word
    rows = 1 + before  # row 0 is that of [CLS]
    return np.where(pieces, rows, NO_PIECE).astype(np.int32)


def sentence_bounds(examples: Examples) -> np.ndarray:
    """Return where each sentence begins and ends among the words of all sentences.

    Parameters
    ----------
    examples : sequence of TaggedSentence
        S sentences.

    Returns
    -------
    numpy.ndarray
        (S+1,) int64: sentence s has the words bounds[s]:bounds[s+1].
    """
    lengths = [len(example.words) for example in examples]
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


# scores (T,K)  seen (T,) bool  bounds (S+1,) -> S lists
def predicted_tags(
    scores: np.ndarray,
    seen: np.ndarray,
    bounds: np.ndarray,
    labels: abc.Sequence[str],
) -> list[list[str]]:
    """Choose the most likely tag of every word, sentence by sentence; O for words that were not seen.

    Parameters
    ----------
    scores : numpy.ndarray
        Scores of all words, (n,K).
    seen : numpy.ndarray
        Whether a word has a piece that the model reads, (n,) bool.
    bounds : numpy.ndarray
        Bounds of the sentences, (S+1,), see `sentence_bounds`.
    labels : sequence of str
        The tags, in the order of the scores.

    Returns
    -------
    list of list of str
        The tags of each of S sentences.
    """
    best = scores.argmax(-1).tolist()
    tags = []
    for label, is_seen in zip(best, seen.tolist(), strict=True):
        tags.append(labels[label] if is_seen else OUTSIDE)
    return [tags[begin:end] for begin, end in pairwise(bounds.tolist())]


def entities_text(words: abc.Sequence[str], chunks: abc.Sequence[entities.Chunk]) -> str:
    """Format entities as `PER Peter Blackburn; LOC Brussels`.

    Parameters
    ----------
    words : sequence of str
        Words of a sentence.
    chunks : sequence of Chunk
        Its entities.

    Returns
    -------
    str
        "none" if there is no entity.
    """
    texts = [f"{kind} {' '.join(words[first:last])}" for kind, first, last in chunks]
    return "; ".join(texts) or "none"


def _types(sentences: Iterable[abc.Sequence[str]]) -> list[str]:
    """Return the part after the hyphen of each tag, or the tag if it has none."""
    return [tag.partition("-")[2] or tag for tags in sentences for tag in tags]


def _without_spaces(text: str) -> str:
    """Return a word or a tag in a form that fits into a column."""
    return re.sub(r"\s", "_", text) or "_"


def _tags_of(example: TaggedSentence) -> tuple[str, ...]:
    """Return the tags of a sentence; raise InputError if it has none."""
    if example.tags is None:
        problem = f"The sentence {' '.join(example.words)[:60]!r} has no tags to train on or to score against"
        raise InputError(f"{problem}; give a file that has them.")
    return example.tags


class Comparable(NamedTuple):
    """What scorers of entities take: the tags of each sentence, in which all tags are those of entities."""

    gold: list[list[str]]
    predicted: list[list[str]]
    schemes: entities.Schemes


def comparable(examples: Examples, predictions: Predictions) -> Comparable:
    """Return true and predicted tags in a form that scorers of entities take.

    Tags of entities stay as they are, in whatever scheme. Others, such as parts of speech, become entities of
    one word each. Every tag is judged by itself, so that a strange tag in dev changes nothing for the others.

    Parameters
    ----------
    examples : sequence of TaggedSentence
        Sentences with tags.
    predictions : list of list of str
        Their predicted tags.

    Returns
    -------
    Comparable
        The same sentences, and the scheme of each side.
    """
    gold = [_tags_of(example) for example in examples]
    predicted = list(predictions)
    both = entities.both_schemes(_typed(gold), _typed(predicted), schemes.most_common_scheme)
    return Comparable(_as_entities(gold, both.gold), _as_entities(predicted, both.predicted), both)


def _typed(sentences: Iterable[abc.Sequence[str]]) -> list[list[str]]:
    """Replace tags that do not look like those of entities with O."""
    return [[tag if schemes.is_typed(tag) else OUTSIDE for tag in tags] for tags in sentences]


def _as_entities(sentences: Iterable[abc.Sequence[str]], scheme: schemes.Scheme) -> list[list[str]]:
    """Return tags of a scheme as they are, and any other tag as an entity of one word."""
    tags_of_entities: dict[str, str] = {OUTSIDE: OUTSIDE}

    def as_entity(tag: str) -> str:
        """Return a tag, or the tag of an entity of one word in its place."""
        if tag not in tags_of_entities:
            letter = schemes.letter_of(tag)
            is_of_scheme = schemes.is_typed(tag) and letter in scheme.letters
            tags_of_entities[tag] = tag if is_of_scheme else scheme.tag_of_word(tag)
        return tags_of_entities[tag]

    return [[as_entity(tag) for tag in tags] for tags in sentences]


# -> (words of all sentences,) int32
def tag_numbers(
    examples: Examples,
    labels: Labels,
    before: int = 0,
    training: bool = True,
) -> Any:
    """Return all tags as indices of labels.

    Parameters
    ----------
    examples : sequence of TaggedSentence
        Sentences of one document, or of all.
    labels : tuple of str
        The model's tags.
    before : int, default 0
        Number of sentences before these, which the message of an error adds.
    training : bool, default True
        Whether every tag has to be known.

    Returns
    -------
    numpy.ndarray or None
        For the words of all sentences, (n,) int32. Except in training, None if a tag is missing or not in
        `labels`.

    Raises
    ------
    InputError
        When `training` and a tag is missing or not in `labels`.
    """
    if not training and any(example.tags is None for example in examples):
        return None
    indices = {label: index for index, label in enumerate(labels)}
    tags = [tag for example in examples for tag in _tags_of(example)]
    unknown = next((tag for tag in tags if tag not in indices), None)
    if unknown is None:
        return np.array([indices[tag] for tag in tags], np.int32)
    if training:
        place = f"between sentences {before + 1} and {before + len(examples)}"
        known = f"the model's {len(indices)}, {', '.join(indices)}; learn from files with the same tags."
        raise InputError(f"The tag {unknown!r} {place} is not one of {known}")
    return None
