"""Tag the words of plain text, and list its entities."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from minibert.base.errors import warn
from minibert.data.ner import TaggedSentence
from minibert.tasks.metrics.entities import Chunk, chunks
from minibert.tasks.metrics.schemes import entity_scheme, tags_without_scheme, unknown_scheme
from minibert.tasks.task import TrainedModel

WITHIN = "-./&@_+"  # marks within a word, as in all-rounder, U.S. or AT&T
IN_NUMBERS = ",:"  # marks between digits
APOSTROPHES = "'\u2019"
LONGEST_ENDING = 3  # most letters that, with an apostrophe before them, are one word: 's, 're, 'll
TEXTS_AT_ONCE = 64  # number of texts to tag together

Span = tuple[int, int]  # first character, and the one after the last


def word_spans(tokenizer: Any, text: str) -> list[Span]:
    """Find the words of a text, about as in CoNLL-2003: marks within a word do not split it.

    Parameters
    ----------
    tokenizer : Tokenizer
        A tokenizer. It splits words at every punctuation mark; here some of the parts are joined again.
    text : str
        A text of any length.

    Returns
    -------
    list of tuple
        First character of each word, and the one after its last.
    """
    encoding = tokenizer.encode_batch([text], offsets=True, add_special_tokens=False)[0]
    begins, ends = encoding.offsets.T
    opens = np.diff(encoding.word_ids, prepend=-1) != 0  # whether a piece is the first of a word
    closes = np.diff(encoding.word_ids, append=-1) != 0  # whether a piece is the last of a word
    part_begins = begins[opens].tolist()
    part_ends = ends[closes].tolist()
    parts = list(zip(part_begins, part_ends, strict=True))
    words: list[Span] = []
    first = 0
    while first < len(parts):
        before = words[-1] if words else None
        after = _after_word(text, parts, first, before)
        begin, _ = parts[first]
        _, end = parts[after - 1]
        words.append((begin, end))
        first = after
    return words


def _after_word(text: str, parts: list[Span], first: int, before: Span | None) -> int:
    """Return the index of the part after the word that begins with the part `first`."""

    def is_mark(index: int, marks: str) -> bool:
        begin, end = parts[index]
        return end - begin == 1 and text[begin] in marks

    def is_letters(index: int) -> bool:
        begin, _ = parts[index]
        return text[begin].isalnum()

    def is_adjacent(index: int) -> bool:
        """Return whether there is a part, right after the one before it."""
        return index < len(parts) and parts[index - 1][1] == parts[index][0]

    after = first + 1
    if not is_letters(first):
        begin, end = parts[first]
        follows_word = before is not None and before[1] == begin
        precedes_letters = is_adjacent(after) and is_letters(after)
        if is_mark(first, APOSTROPHES) and follows_word and precedes_letters:
            begin, end = parts[after]
            return after + (end - begin <= LONGEST_ENDING)
        sign = text[begin:end]
        while is_adjacent(after) and text[slice(*parts[after])] == sign:  # "..." and "--"
            after += 1
        return after
    while is_adjacent(after) and is_adjacent(after + 1) and is_letters(after + 1):
        mark_begin, _ = parts[after]
        next_begin, _ = parts[after + 1]
        between_digits = text[mark_begin - 1].isdigit() and text[next_begin].isdigit()
        in_number = between_digits and is_mark(after, IN_NUMBERS)
        if not is_mark(after, WITHIN) and not in_number:
            break
        after += 2
    # The last full stop of an abbreviation, such as U.S., is part of it.
    has_marks = after > first + 1
    if has_marks and is_adjacent(after) and is_mark(after, ".") and is_mark(after - 2, "."):
        after += 1
    return after


def tag_texts(model: TrainedModel, texts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield words with their tags, and entities, for each text in order.

    There is a warning if the model's tags look like those of entities but follow no known scheme.

    Parameters
    ----------
    model : TrainedModel
        A model that tags words.
    texts : iterable of str
        Texts; each is a document by itself. A few are read at a time.

    Yields
    ------
    dict
        `text`; `words`, each with `word`, `tag`, `begin` and `end` in characters; `entities`, each with
        `type`, `text`, `begin` and `end`. Entities are read by the scheme of the model's tags, and [] if the
        tags are not those of entities.
    """
    scheme = entity_scheme(model.labels)
    if unknown := tags_without_scheme(model.labels):
        warn(f"{unknown_scheme(unknown)}; no entities are listed.")
    source = iter(texts)
    while group := list(islice(source, TEXTS_AT_ONCE)):
        spans = [word_spans(model.tokenizer, text) for text in group]
        examples = []
        for document, (text, text_spans) in enumerate(zip(group, spans, strict=True)):
            strings = tuple(text[begin:end] for begin, end in text_spans)
            examples.append(TaggedSentence(strings, None, document))
        features = model.features(examples)
        outputs = model.outputs(features)
        predicted = model.task.predict(examples, features, outputs, model.labels, model.tuned)
        for text, text_spans, tags in zip(group, spans, predicted, strict=True):
            words = _tagged_words(text, text_spans, tags)
            named = [] if scheme is None else chunks(tags, scheme)
            yield {"text": text, "words": words, "entities": _entities(text, text_spans, named)}


def _tagged_words(text: str, spans: list[Span], tags: list[str]) -> list[dict[str, Any]]:
    """Return each word with its tag and its characters."""
    words = []
    for (begin, end), tag in zip(spans, tags, strict=True):
        word = text[begin:end]
        words.append({"word": word, "tag": tag, "begin": begin, "end": end})
    return words


def _entities(text: str, spans: list[Span], named: list[Chunk]) -> list[dict[str, Any]]:
    """Return entities with their text and their characters."""
    entities = []
    for kind, first, last in named:
        begin = spans[first][0]
        end = spans[last - 1][1]
        part = text[begin:end]
        entities.append({"type": kind, "text": part, "begin": begin, "end": end})
    return entities
