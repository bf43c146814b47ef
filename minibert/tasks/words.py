"""Tag the words of plain text, and list its entities."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from minibert.base.errors import warn
from minibert.data.ner import TaggedSentence
from minibert.tasks.metrics.entities import Chunk, chunks
from minibert.tasks.metrics.schemes import entity_scheme, tags_without_scheme, unknown_scheme

WITHIN = "-./&@_+"  # marks that stand within a word, as in all-rounder, U.S. or AT&T
IN_NUMBERS = ",:"  # and those that do between digits
APOSTROPHES = "'\u2019"
LONGEST_ENDING = 3  # letters after an apostrophe that are a word with it: 's, 're, 'll
TEXTS_AT_ONCE = 64

Span = tuple[int, int]  # first character, and the one after the last


def word_spans(tokenizer: Any, text: str) -> list[Span]:
    """Find the words of a text, about as CoNLL-2003 has them: marks within a word do not split it.

    Parameters
    ----------
    tokenizer : Tokenizer
        Whose words, split at every punctuation mark, are joined again.
    text : str
        Of any length.

    Returns
    -------
    list of tuple
        First character of each word, and the one after its last.
    """
    encoding = tokenizer.encode_batch([text], offsets=True, add_special_tokens=False)[0]
    begins, ends = encoding.offsets.T
    opens = np.diff(encoding.word_ids, prepend=-1) != 0  # pieces that are the first of a word
    closes = np.diff(encoding.word_ids, append=-1) != 0  # and the last
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
    """Return the number of the part after the word that begins with the part `first`."""

    def is_mark(number: int, marks: str) -> bool:
        begin, end = parts[number]
        return end - begin == 1 and text[begin] in marks

    def is_letters(number: int) -> bool:
        return text[parts[number][0]].isalnum()

    def is_near(number: int) -> bool:
        return number < len(parts) and parts[number - 1][1] == parts[number][0]

    after = first + 1
    if not is_letters(first):
        begin, end = parts[first]
        follows_word = before is not None and before[1] == begin
        precedes_letters = is_near(after) and is_letters(after)
        if is_mark(first, APOSTROPHES) and follows_word and precedes_letters:
            begin, end = parts[after]
            return after + (end - begin <= LONGEST_ENDING)
        sign = text[begin:end]
        while is_near(after) and text[slice(*parts[after])] == sign:  # "..." and "--"
            after += 1
        return after
    while is_near(after) and is_near(after + 1) and is_letters(after + 1):
        mark_begin, _ = parts[after]
        next_begin, _ = parts[after + 1]
        between_digits = text[mark_begin - 1].isdigit() and text[next_begin].isdigit()
        in_number = between_digits and is_mark(after, IN_NUMBERS)
        if not is_mark(after, WITHIN) and not in_number:
            break
        after += 2
    # The last full stop of an abbreviation, such as U.S., is part of it.
    has_marks = after > first + 1
    if has_marks and is_near(after) and is_mark(after, ".") and is_mark(after - 2, "."):
        after += 1
    return after


def tag_texts(model: Any, texts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield words with their tags, and entities, of each text in order.

    A warning says so where the model's tags look like those of entities but are of no scheme that is known.

    Parameters
    ----------
    model : Finetuned or FeatureTagger
        One that tags words.
    texts : iterable of str
        Each is a document of its own. They are read a few at a time.

    Yields
    ------
    dict
        `text`; `words`, each with `word`, `tag`, `begin` and `end` in characters; `entities`, each with
        `type`, `text`, `begin` and `end`, read by the scheme of the model's tags: [] where these are not of
        entities.
    """
    scheme = entity_scheme(model.labels)
    if unknown := tags_without_scheme(model.labels):
        warn(f"{unknown_scheme(unknown)}; no entities are listed.")
    source = iter(texts)
    while group := list(islice(source, TEXTS_AT_ONCE)):
        spans = [word_spans(model.tokenizer, text) for text in group]
        examples = []
        for number, (text, text_spans) in enumerate(zip(group, spans, strict=True)):
            strings = tuple(text[begin:end] for begin, end in text_spans)
            examples.append(TaggedSentence(strings, None, number))
        features = model.features(examples)
        outputs = model.outputs(features)
        predicted = model.task.predict(examples, features, outputs, model.labels, model.tuned)
        for text, text_spans, tags in zip(group, spans, predicted, strict=True):
            words = _tagged_words(text, text_spans, tags)
            named = [] if scheme is None else chunks(tags, scheme)
            yield {"text": text, "words": words, "entities": _entities(text, text_spans, named)}


def _tagged_words(text: str, spans: list[Span], tags: list[str]) -> list[dict[str, Any]]:
    words = []
    for (begin, end), tag in zip(spans, tags, strict=True):
        word = text[begin:end]
        words.append({"word": word, "tag": tag, "begin": begin, "end": end})
    return words


def _entities(text: str, spans: list[Span], named: list[Chunk]) -> list[dict[str, Any]]:
    """Return chunks of words by their characters."""
    entities = []
    for kind, first, last in named:
        begin = spans[first][0]
        end = spans[last - 1][1]
        part = text[begin:end]
        entities.append({"type": kind, "text": part, "begin": begin, "end": end})
    return entities
