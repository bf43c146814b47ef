"""Questions with windows of their paragraphs, as features of the span head (Devlin et al. 2019, section 4.2).

    [CLS] question [SEP] tokens of the paragraph from the window's first to its last [SEP]

A paragraph too long for one sequence is read in overlapping windows, `stride` tokens from one beginning to
the next, as in Google's run_squad. Nothing lies in memory twice: the pieces of all questions and of all
paragraphs stand end to end, a window is two numbers, and a `Feature` is made when one is asked for.
"""

from collections import abc
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError, warn
from minibert.core.batch import Feature, Sequence
from minibert.data.squad import Question
from minibert.tokenizer import BatchEncoding
from minibert.tokenizer.encoding import ranges, whole_number
from minibert.tokenizer.written import WrittenTokens

SPECIAL = 3  # [CLS], [SEP], [SEP]
UNKNOWN, NOWHERE = -1, -2  # in place of an answer: nobody knows it; there is none
BLOCK = 4096  # questions that are tokenised together


class Windows(abc.Sequence[Feature]):
    """All windows of many questions: a list of features that takes hardly more memory than the pieces.

    The questions are read once, in order. Raise InputError when there is none, or none to train on; when one
    leaves no room for its paragraph; when a number is not possible.

    Parameters
    ----------
    max_length : most tokens of a sequence, [CLS] and [SEP] included.
    stride : tokens between the beginnings of two windows; fewer where a question leaves less room.
    max_question : most pieces of a question; a longer one loses its end, and a warning says how many did.
    training : leave out questions whose answer is not in their paragraph; a warning says how many.

    Attributes
    ----------
    lengths : (W,) int32, tokens of each sequence.
    example : (W,) int32, the number of the question that each window belongs to.
    bounds : (Q+1,) int64: question q has the windows bounds[q]:bounds[q+1], none if it was left out.
    """

    def __init__(
        self,
        questions: Iterable[Question],
        tokenizer: Any,
        max_length: int = 384,
        *,
        stride: int = 128,
        max_question: int = 64,
        training: bool = False,
    ):
        sizes = {"max_length": max_length, "stride": stride, "max_question": max_question}
        for name, value in sizes.items():
            whole_number(name, value, 1)
        parts, cut, skipped = [], [], []
        n_questions = n_paragraphs = 0
        source = iter(questions)
        written = WrittenTokens(tokenizer)
        while block := list(islice(source, BLOCK)):
            part, too_long = _encode(block, tokenizer, written, training=training, **sizes)
            cut += [block[number].id for number in too_long]
            skipped += [block[number].id for number in np.flatnonzero(part.n_windows == 0)]
            parts.append(part._replace(paragraph=part.paragraph + n_paragraphs))
            n_questions += len(block)
            n_paragraphs += len(part.paragraph_lengths)
        written.warn()
        if not n_questions:
            raise InputError("There is no question; give one at least.")
        if len(skipped) == n_questions:
            none = f"None of the {n_questions:,} questions has an answer in its paragraph to train on"
            raise InputError(f"{none}; give each answer with the place of its first character.")
        _report(cut, n_questions, f"are longer than {max_question} pieces and lose their end")
        _report(skipped, n_questions, "are left out: their answer is not where it should be in the paragraph")

        self._special = [tokenizer.cls_id], [tokenizer.sep_id]
        self._all = _Part(*map(np.concatenate, zip(*parts, strict=True)))
        self._question_bounds = _bounds(self._all.question_lengths)
        self._paragraph_bounds = _bounds(self._all.paragraph_lengths)
        self.bounds = _bounds(self._all.n_windows)
        self.example = np.repeat(np.arange(n_questions, dtype=np.int32), self._all.n_windows)
        self.lengths = self._all.length + self._all.question_lengths[self.example] + SPECIAL

    def __len__(self) -> int:
        return len(self.example)

    def __getitem__(self, number: Any) -> Any:
        if not -len(self) <= number < len(self):
            raise IndexError(f"number={number} is not one of the {len(self)} windows.")
        number %= len(self)
        example = int(self.example[number])
        first = self.first_row(number)
        question = self._all.question_ids[slice(*self._question_bounds[example : example + 2])]
        paragraph, (cls, sep) = self._all.paragraph_ids[self._tokens(number)], self._special
        ids = np.concatenate([cls, question, sep, paragraph, sep], dtype=np.int32)
        types = np.ones(len(ids), np.int32)
        types[:first] = 0
        begin, end = self._all.labels[number].tolist()
        return Feature((Sequence(ids, types),), None if begin == UNKNOWN else (begin, end), example=example)

    def first_row(self, number: int) -> int:
        """Return where in the sequence of a window its part of the paragraph begins."""
        return int(self._all.question_lengths[self.example[number]]) + SPECIAL - 1

    def offsets(self, number: int) -> np.ndarray:
        """Return (n,2), first character of each token of the paragraph in a window, and the one behind it."""
        return self._all.offsets[self._tokens(number)]

    def most_context(self, example: int) -> list[np.ndarray]:
        """Tell for each window of a question, (n,) bool, which tokens have most context in this one."""
        windows = slice(*self.bounds[example : example + 2])
        start, length = self._all.start[windows], self._all.length[windows]
        best = most_context(start, length)
        return [best[s : s + n] == window for window, (s, n) in enumerate(zip(start, length, strict=True))]

    def _tokens(self, number: int) -> slice:
        """Return those of a window among the tokens of all paragraphs."""
        paragraph = self._all.paragraph[self.example[number]]
        first = int(self._paragraph_bounds[paragraph] + self._all.start[number])
        return slice(first, first + int(self._all.length[number]))


# start (w,) length (w,) -> (tokens,)
def most_context(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Find the window in which each token has most context, by the rule of Google's run_squad.

    Context is the smaller of the numbers of tokens on its two sides, plus a hundredth of the window's length;
    among equal windows the first one counts. The windows are in order, and every token is in one of them.
    """
    end = start + length
    token = np.arange(end[-1])
    first = np.searchsorted(end, token, side="right")
    last = np.searchsorted(start, token, side="right") - 1
    # (tokens, most windows that share one): a book has thousands of windows, but three of them at a token.
    window = first[:, None] + np.arange(np.max(last - first, initial=0) + 1)
    holds = window <= last[:, None]
    window = np.minimum(window, len(start) - 1)
    beside = np.minimum(token[:, None] - start[window], end[window] - 1 - token[:, None])
    return first + np.where(holds, beside + 0.01 * length[window], -1.0).argmax(axis=1)


class _Part(NamedTuple):
    """Q questions, P paragraphs, W windows; parts are joined field by field."""

    question_ids: np.ndarray  # (n,) uint16 or int32, of all questions
    question_lengths: np.ndarray  # (Q,) int32
    paragraph_ids: np.ndarray  # (m,) uint16 or int32, of all paragraphs
    paragraph_lengths: np.ndarray  # (P,) int32
    offsets: np.ndarray  # (m,2) uint16 or int32, characters
    paragraph: np.ndarray  # (Q,) int32, number of the paragraph that a question is about
    n_windows: np.ndarray  # (Q,) int32
    start: np.ndarray  # (W,) int32, first token of a window within its paragraph
    length: np.ndarray  # (W,) int32, how many tokens of the paragraph it has
    labels: np.ndarray  # (W,2) int32, rows of the answer in the sequence; 0 not in it, UNKNOWN


def _encode(
    block: list[Question],
    tokenizer: Any,
    written: WrittenTokens,
    max_length: int,
    stride: int,
    max_question: int,
    training: bool,
) -> tuple[_Part, np.ndarray]:
    """Lay the windows of some questions, every paragraph tokenised once; say which lost their end."""
    texts: dict[str, int] = {}
    paragraph = np.array([texts.setdefault(question.context, len(texts)) for question in block], np.int32)
    questions = tokenizer.encode_batch([question.question for question in block], add_special_tokens=False)
    paragraphs = tokenizer.encode_batch(list(texts), offsets=True, add_special_tokens=False)
    written.add(questions)
    written.add(paragraphs)

    n_pieces = np.diff(questions.cu_seqlens)
    n_question = np.minimum(n_pieces, max_question)
    room = max_length - SPECIAL - n_question
    if len(bad := np.flatnonzero(room < 1)):
        long = f"Question {block[bad[0]].id!r} has {n_pieces[bad[0]]} pieces, which leaves no room for its"
        advice = "paragraph in windows of $max_length; make them longer, or ask briefly."
        raise InputError(f"{long} {advice}", max_length=max_length)
    n_tokens = np.diff(paragraphs.cu_seqlens)
    answers = _answer_tokens(block, list(texts), paragraph, paragraphs)

    step = np.minimum(room, stride)
    n_windows = 1 + np.maximum(0, -((room - n_tokens[paragraph]) // step))
    if training:
        n_windows[answers[:, 0] == UNKNOWN] = 0
    owner = np.repeat(np.arange(len(block)), n_windows)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(n_windows) - n_windows, n_windows)
    start = number * step[owner]
    length = np.minimum(room[owner], n_tokens[paragraph[owner]] - start)

    inside = answers[owner] - start[:, None]
    held = (answers[owner, 0] >= 0) & (inside[:, 0] >= 0) & (inside[:, 1] < length)
    labels = np.where(held[:, None], inside + (n_question[owner] + SPECIAL - 1)[:, None], 0)
    labels[answers[owner, 0] == UNKNOWN] = UNKNOWN
    asked = _compact(questions.ids[ranges(questions.cu_seqlens[:-1], n_question)]), n_question
    read = _compact(paragraphs.ids), n_tokens, _compact(paragraphs.offsets)
    laid_out = (one.astype(np.int32) for one in (n_windows, start, length, labels))
    return _Part(*asked, *read, paragraph, *laid_out), np.flatnonzero(n_pieces > max_question)


# -> (Q,2) int64: first and last token within the paragraph
def _answer_tokens(
    block: list[Question], texts: list[str], paragraph: np.ndarray, paragraphs: BatchEncoding
) -> np.ndarray:
    """Find the tokens that the first answer to each question touches; NOWHERE or UNKNOWN for both."""
    found = np.array([_characters(question) for question in block])
    # Characters of all paragraphs are counted on, so that one search serves all questions.
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    before = np.cumsum(lengths) - lengths
    bounds = paragraphs.cu_seqlens.astype(np.int64)
    begins, ends = (paragraphs.offsets + np.repeat(before, np.diff(bounds))[:, None]).T
    wanted = found + before[paragraph][:, None]
    first = np.searchsorted(ends, wanted[:, 0], side="right") - bounds[paragraph]
    last = np.searchsorted(begins, wanted[:, 1], side="left") - 1 - bounds[paragraph]
    touched = (found[:, 0] >= 0) & (first <= last)
    tokens = np.where(touched[:, None], np.stack([first, last], axis=1), UNKNOWN)
    tokens[found[:, 0] == NOWHERE] = NOWHERE
    return tokens


def _characters(question: Question) -> tuple[int, int]:
    """Find the first answer in the paragraph; NOWHERE, or UNKNOWN if something else stands there."""
    if question.impossible:
        return NOWHERE, NOWHERE
    for text, begin in question.answers[:1]:
        if text and begin >= 0 and question.context.startswith(text, begin):
            return begin, begin + len(text)
    return UNKNOWN, UNKNOWN


def _compact(values: np.ndarray) -> np.ndarray:
    """Store in 16 bits where they fit, else as they are; joining parts widens what has to be."""
    return values.astype(np.uint16) if values.max(initial=0) < 2**16 else values


def _bounds(lengths: np.ndarray) -> np.ndarray:
    """Return where each of several stretches begins, and the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _report(ids: list[str], total: int, what: str) -> None:
    if ids:
        warn(f"{len(ids):,} of {total:,} questions {what}; the first is {ids[0]!r}.")
