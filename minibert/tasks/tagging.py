"""A tag for every word, read off its first piece (Devlin et al. 2019, section 5.3): `ner`, and own files.

The words around a sentence that are not its own are those of its document, as many as fit; see `contexts`.
There is no CRF: tags are chosen word by word, and one that contradicts its neighbours is left to the scorer.
"""

import re
from collections import Counter, abc
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby, pairwise
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
from minibert.tasks.metrics import entities, schemes
from minibert.tasks.metrics.entities import OUTSIDE
from minibert.tasks.metrics.intervals import Statistic
from minibert.tasks.own_files import check_columns, own_file, read_own
from minibert.tasks.task import Classes, Examples, Labels, Mistake, Outputs, Predictions, Task, Tuned
from minibert.tokenizer.written import WrittenTokens

# What the splits of CoNLL-2003 are called where they are to be had, and other files with a word a line.
FILES = {
    "train": ("eng.train", "train.txt", "train.conll", "train.bio"),
    "dev": ("eng.testa", "valid.txt", "dev.txt", "valid.conll", "dev.conll", "dev.bio"),
    "test": ("eng.testb", "test.txt", "test.conll", "test.bio"),
}
COLUMNS = ("words", "tags", "layout", "sentence", "delimiter", "header")  # arguments of `tables.read_tags`
NO_PIECE = 0  # in place of the row of a word without pieces: [CLS] stands there, and never a word


def create(name: str, _: str, columns: Mapping[str, str]) -> "Tagging":
    """Make the task of that name: "ner", "ner-sentences" or "tag"."""
    check_columns(name, columns, COLUMNS)
    return Tagging(name, columns, by_document=name != "ner-sentences")


class Tagging(Task):
    """A tag for each word; tags of the form O, B-TYPE and I-TYPE are those of named entities.

    The name "tag" is that of one's own files, any other CoNLL-2003's. `by_document` shows each sentence with
    its neighbours in the document; else it is by itself.
    """

    kind = "tag"
    command = "tag"
    label_field = "tags"
    metric = "f1"
    max_length = 512

    def __init__(self, name: str = "ner", columns: Mapping[str, str] | None = None, by_document: bool = True):
        self.name, self.columns, self.by_document = name, dict(columns or {}), by_document
        what = "Tags of words" if name == "tag" else "Named entities, CoNLL-2003"
        self.title = what + ("" if by_document else ", sentence by sentence")

    def read(self, data: Path, split: str) -> list[TaggedSentence]:
        if self.name == "tag":
            path, unlabelled = own_file(data, split, FILES[split]), {"tags": None, "labelled": False}
            return read_own(tables.read_tags, path, split, self.columns, unlabelled)
        return ner.read(find_file(Path(data), FILES[split], ("ner", "conll2003"), self.name))

    def labels(self, examples: Examples) -> Labels:
        """Return O, then the others in the order of the alphabet; of every type of entity B- and I- both.

        Tags that look like those of entities but are of no scheme are named in a warning.
        """
        if not (tags := {tag for example in examples for tag in _tags_of(example)}):
            return ()
        if all(re.fullmatch("[0-9]+", tag) for tag in tags):
            what = (
                f"All {len(tags)} tags are numbers, which do not say what is no entity, nor where one begins"
            )
            warn(
                f"{what}: F1 is the accuracy of words. Give the names of the tags to score and list entities."
            )
        if odd := schemes.looks_odd(tags):
            effect = "each word that has one counts as an entity by itself"
            warn(f"{schemes.unknown_scheme(odd)}; {effect}. Change them where they mark entities.")
        if all(map(ner.is_entity_tag, tags)):
            types = sorted({tag[2:] for tag in tags} - {""})
            return (OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))
        return tuple(sorted(tags, key=lambda tag: (tag != OUTSIDE, tag)))

    def features(
        self, examples: Iterable[Any], tokenizer: Any, labels: Labels, max_length: int, training: bool
    ) -> Iterator[Feature]:
        """Lay windows over the documents, in order; `example` is the first sentence that each asks about.

        A word longer than a sixth of `max_length` loses its last pieces. A word without any, a control
        character perhaps, has no row when training; else its row is `NO_PIECE`. Raise InputError when
        `training` and a tag is missing or is none of `labels`.
        """
        before, room = 0, max_length - 2
        written = WrittenTokens(tokenizer)
        for _, together in groupby(enumerate(examples), self._document):
            sentences = [sentence for _, sentence in together]
            tags = tag_numbers(sentences, labels, before, training)
            ends = np.cumsum([len(sentence.words) for sentence in sentences])  # (m,)
            words = [word for sentence in sentences for word in sentence.words]
            encoded = tokenizer.encode_batch(words, add_special_tokens=False, threads=1)
            written.add(encoded)
            pieces = np.minimum(np.diff(encoded.cu_seqlens), longest_word(room))  # (n,)
            for begin, end, first, last in windows(pieces, ends, room):
                places = np.cumsum(pieces[begin:end]) - pieces[begin:end] + 1
                rows = np.where(pieces[first:last], places[first - begin : last - begin], NO_PIECE)
                own: Any = None if tags is None else tags[first:last]
                if training:
                    own, rows = own[rows != NO_PIECE], rows[rows != NO_PIECE]
                    if not len(rows):
                        continue
                starts = encoded.cu_seqlens[begin:end]
                inside = [encoded.ids[s : s + n] for s, n in zip(starts, pieces[begin:end], strict=True)]
                ids = np.concatenate([[tokenizer.cls_id], *inside, [tokenizer.sep_id]]).astype(np.int32)
                sequence = Sequence(ids, np.zeros(len(ids), np.int32))
                example = before + int(np.searchsorted(ends, first, side="right"))
                yield Feature((sequence,), own, rows.astype(np.int32), example)
            before += len(sentences)
        written.warn()

    def warn_unknown(self, examples: Examples, labels: Labels) -> None:
        """Warn of tags that were never learnt: how often they are there, and where first."""
        numbered = enumerate(examples, start=1)
        places = [(tag, n) for n, one in numbered for tag in one.tags or () if tag not in labels]
        if places:
            kinds = Counter(tag for tag, _ in places).most_common()
            named = some_of([f"{tag} ({count:,})" for tag, count in kinds])
            words = sum(len(example.words) for example in examples)
            found = f"{len(places):,} of {words:,} words have a tag that nothing was learnt of: {named}"
            warn(f"{found}; the first is in sentence {places[0][1]:,}. They count as mistakes.")

    def _document(self, numbered: tuple[int, TaggedSentence]) -> int:
        """Return what tells sentences that belong together from others: their document, or its number."""
        return numbered[1].document if self.by_document else numbered[0]

    def predict(
        self, examples: Examples, features: Any, outputs: Outputs, labels: Labels, tuned: Tuned
    ) -> list[list[str]]:
        """Choose the likeliest tag of every word; O for a word that the model can't see."""
        bounds = sentence_bounds(examples)
        rows = np.concatenate([np.empty(0, np.int32), *(feature.rows for feature in features)])
        if len(rows) != bounds[-1]:
            raise ValueError(f"{len(rows)} words were asked about, the examples have {bounds[-1]}.")
        scores = np.concatenate([np.empty((0, len(labels))), *outputs])
        return predicted_tags(scores, rows != NO_PIECE, bounds, labels)

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute f1, precision and recall of whole entities, in all and by type; accuracy of words.

        A tag that is not of an entity counts as an entity of one word: F1 of such tags is that of all but O,
        which is accuracy where there is no O. One that was never learnt is missed.
        """
        sides = comparable(examples, predictions)
        found = entities.conlleval(sides.gold, sides.predicted)
        scores = {name: found[name] / 100 for name in ("f1", "precision", "recall", "accuracy")}
        return scores | {f"f1_{kind}": one["f1"] / 100 for kind, one in found["types"].items()}

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        sides = comparable(examples, predictions)
        counts = entities.sentence_counts(sides.gold, sides.predicted)
        return lambda indices: entities.f1_of(counts[indices]) / 100

    def write(self, folder: Path, split: str, examples: Examples, predictions: Predictions) -> list[Path]:
        """Write columns as conlleval reads them: word, true tag where it is known, predicted tag."""
        path = Path(folder) / f"{split}_predictions.conll"
        lines = []
        for example, found in zip(examples, predictions, strict=True):
            columns = [example.words, *filter(None, [example.tags]), found]
            shown = [[re.sub(r"\s", "_", one) or "_" for one in column] for column in columns]
            lines += [" ".join(row) + "\n" for row in zip(*shown, strict=True)] + ["\n"]
        atomic_text(path, "".join(lines))
        return [path]

    def asked(self, example: TaggedSentence) -> dict[str, list[str]]:
        return {"words": list(example.words)} if self.name == "tag" else {}

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield sentences, the worse the more entities were missed, made up or cut wrongly in them."""
        sides = comparable(examples, predictions)
        schemes_of_both = entities.both_schemes(sides.gold, sides.predicted)
        for number, (example, *tags) in enumerate(zip(examples, sides.gold, sides.predicted, strict=True)):
            both = [entities.chunks(one, scheme) for one, scheme in zip(tags, schemes_of_both, strict=True)]
            if wrong := set(both[0]) ^ set(both[1]):
                expected, found = (entities_text(example.words, chunks) for chunks in both)
                yield Mistake(" ".join(example.words), expected, found, float(len(wrong)), number)

    def classes(self, examples: Examples, predictions: Predictions) -> Classes:
        """Return the types of all words, without the letters of a scheme."""
        sides = comparable(examples, predictions)
        gold, found = ([tag.partition("-")[2] or tag for tags in side for tag in tags] for side in sides)
        return gold, found


def sentence_bounds(examples: Examples) -> np.ndarray:
    """Count the words before each sentence, and all: (S+1,)."""
    return np.concatenate([[0], np.cumsum([len(one.words) for one in examples], dtype=np.int64)])


# scores (T,K)  seen (T,) bool  bounds (S+1,) -> S lists
def predicted_tags(
    scores: np.ndarray, seen: np.ndarray, bounds: np.ndarray, labels: abc.Sequence[str]
) -> list[list[str]]:
    """Choose the likeliest tag of every word, sentence by sentence; O where a word was not seen."""
    pairs = zip(scores.argmax(-1).tolist(), seen.tolist(), strict=True)
    tags = [labels[best] if known else OUTSIDE for best, known in pairs]
    return [tags[begin:end] for begin, end in pairwise(bounds.tolist())]


def entities_text(words: abc.Sequence[str], chunks: abc.Sequence[entities.Chunk]) -> str:
    """Format entities as `PER Peter Blackburn; LOC Brussels`."""
    return "; ".join(f"{kind} {' '.join(words[first:last])}" for kind, first, last in chunks) or "none"


def _tags_of(example: TaggedSentence) -> tuple[str, ...]:
    if example.tags is None:
        lacking = f"{' '.join(example.words)[:60]!r} has no tags to learn from or to compare with"
        raise InputError(f"The sentence {lacking}; give a file that has them.")
    return example.tags


class Comparable(NamedTuple):
    """The tags of each sentence as scorers of entities take them."""

    gold: list[list[str]]
    predicted: list[list[str]]


def comparable(examples: Examples, predictions: Predictions) -> Comparable:
    """Return true and predicted tags; those of parts of speech and the like as entities of one word each.

    Tags of entities stay as they are, in whatever scheme they are. Each tag is looked at by itself: one in
    dev that is like no other changes nothing for those.
    """
    gold, predicted = [_tags_of(example) for example in examples], list(predictions)
    scheme = schemes.most_common_scheme(Counter(chain.from_iterable(gold)))
    counts = Counter(chain.from_iterable(predicted))
    typed = {letter for tag in counts if schemes.is_typed(tag) and (letter := schemes.letter_of(tag))}
    other = scheme if typed <= scheme.letters else schemes.most_common_scheme(counts)
    return Comparable(_as_entities(gold, scheme), _as_entities(predicted, other))


def _as_entities(sentences: Iterable[abc.Sequence[str]], scheme: schemes.Scheme) -> list[list[str]]:
    """Return tags of a scheme as they are; any other one as that of an entity of one word."""
    named: dict[str, str] = {OUTSIDE: OUTSIDE}

    def as_entity(tag: str) -> str:
        if tag not in named:
            is_own = schemes.is_typed(tag) and schemes.letter_of(tag) in scheme.letters
            named[tag] = tag if is_own else scheme.tag_of_word(tag)
        return named[tag]

    return [list(map(as_entity, tags)) for tags in sentences]


# -> (words of all sentences,) int32
def tag_numbers(examples: Examples, labels: Labels, before: int = 0, training: bool = True) -> Any:
    """Return all tags as numbers of labels; raise InputError where one is no label, or missing.

    When it is not for `training`, return None instead. Errors count sentences from `before`.
    """
    if not training and any(example.tags is None for example in examples):
        return None
    numbers = {label: number for number, label in enumerate(labels)}
    tags = [tag for example in examples for tag in _tags_of(example)]
    unknown = next((tag for tag in tags if tag not in numbers), None)
    if training and unknown is not None:
        place = f"between sentences {before + 1} and {before + len(examples)}"
        known = f"the model's {len(numbers)}, {', '.join(numbers)}; learn from files with the same tags."
        raise InputError(f"The tag {unknown!r} {place} is none of {known}")
    return np.array([numbers[tag] for tag in tags], np.int32) if unknown is None else None
