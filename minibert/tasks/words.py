"""Plain text to words, and to what is named in it, by a model that tags words."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from minibert.base.errors import warn
from minibert.data.ner import TaggedSentence
from minibert.tasks.metrics.entities import chunks
from minibert.tasks.metrics.schemes import entity_scheme, looks_odd, unknown_scheme

WITHIN = "-./&@_+"  # marks that stand within a word, as in all-rounder, U.S. or AT&T
IN_NUMBERS = ",:"  # and those that do between digits
APOSTROPHES = "'\u2019"
LONGEST_ENDING = 3  # letters behind an apostrophe that are a word with it: 's, 're, 'll
TEXTS_AT_ONCE = 64

Span = tuple[int, int]  # first character, and the one behind the last


def word_spans(tokenizer: Any, text: str) -> list[Span]:
    """Find the words of a text, about as CoNLL-2003 has them: marks within a word do not split it."""
    encoding = tokenizer.encode_batch([text], offsets=True, add_special_tokens=False)[0]
    begins, ends = encoding.offsets.T
    opens = np.diff(encoding.word_ids, prepend=-1) != 0  # pieces that are the first of a word
    closes = np.diff(encoding.word_ids, append=-1) != 0  # and the last
    parts = list(zip(begins[opens].tolist(), ends[closes].tolist(), strict=True))
    found: list[Span] = []
    first = 0
    while first < len(parts):
        behind = _behind_word(text, parts, first, found[-1] if found else None)
        found.append((parts[first][0], parts[behind - 1][1]))
        first = behind
    return found


def _behind_word(text: str, parts: list[Span], first: int, before: Span | None) -> int:
    """Return the number of the part behind the word that begins with the part `first`."""

    def is_mark(number: int, marks: str) -> bool:
        begin, end = parts[number]
        return end - begin == 1 and text[begin] in marks

    def is_letters(number: int) -> bool:
        return text[parts[number][0]].isalnum()

    def is_near(number: int) -> bool:
        return number < len(parts) and parts[number - 1][1] == parts[number][0]

    behind = first + 1
    if not is_letters(first):
        near = is_near(behind) and is_letters(behind)
        if is_mark(first, APOSTROPHES) and before and before[1] == parts[first][0] and near:
            begin, end = parts[behind]
            return behind + (end - begin <= LONGEST_ENDING)
        sign = text[slice(*parts[first])]
        while is_near(behind) and text[slice(*parts[behind])] == sign:  # "..." and "--"
            behind += 1
        return behind
    while is_near(behind) and is_near(behind + 1) and is_letters(behind + 1):
        digits = text[parts[behind][0] - 1].isdigit() and text[parts[behind + 1][0]].isdigit()
        if not is_mark(behind, WITHIN) and not (digits and is_mark(behind, IN_NUMBERS)):
            break
        behind += 2
    several = behind > first + 1
    return behind + (several and is_near(behind) and is_mark(behind, ".") and is_mark(behind - 2, "."))


def tag_texts(model: Any, texts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield words with their tags, and entities, of each text in order.

    The model is `models.Finetuned` or `feature_tagger.FeatureTagger`; each text is a document of its own.
    There are `text`; `words`, each with `word`, `tag`, `begin` and `end` in characters; `entities`, each with
    `type`, `text`, `begin` and `end`, read by the scheme of the model's tags: none where these are not of
    entities, with a warning where they look so but are of no scheme that is known.
    """
    scheme = entity_scheme(model.labels)
    if odd := looks_odd(model.labels):
        warn(f"{unknown_scheme(odd)}; no entities are listed.")
    source = iter(texts)
    while group := list(islice(source, TEXTS_AT_ONCE)):
        spans = [word_spans(model.tokenizer, text) for text in group]
        examples = [
            TaggedSentence(tuple(text[begin:end] for begin, end in places), None, number)
            for number, (text, places) in enumerate(zip(group, spans, strict=True))
        ]
        features = model.features(examples)
        tags = model.task.predict(examples, features, model.outputs(features), model.labels, model.tuned)
        for text, places, own in zip(group, spans, tags, strict=True):
            words = [
                {"word": text[begin:end], "tag": tag, "begin": begin, "end": end}
                for (begin, end), tag in zip(places, own, strict=True)
            ]
            entities = []
            for kind, first, last in () if scheme is None else chunks(own, scheme):
                begin, end = places[first][0], places[last - 1][1]
                entities.append({"type": kind, "text": text[begin:end], "begin": begin, "end": end})
            yield {"text": text, "words": words, "entities": entities}
