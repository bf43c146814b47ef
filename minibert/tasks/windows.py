"""Windows over the paragraphs of questions, as features of the span head (Devlin et al. 2019, section 4.2).

    [CLS] question [SEP] tokens of the paragraph from the window's first to its last [SEP]

A paragraph that is too long for one sequence is read in overlapping windows, `stride` tokens from one
beginning to the next, as in Google's run_squad. Nothing is in memory twice: the pieces of all questions and
of all paragraphs are stored end to end, a window is two integers, and a `Feature` is made when it is indexed.
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

SPECIAL = 3  # number of special tokens: [CLS], [SEP], [SEP]
UNKNOWN, NOWHERE = -1, -2  # positions of an answer that is not known, and of an answer that does not exist
BLOCK = 4096  # number of questions to tokenise together


class Windows(abc.Sequence[Feature]):
    """All windows of many questions: a list of features that takes hardly more memory than their pieces.

    Parameters
    ----------
    questions : iterable of Question
        Questions; read once, in order.
    tokenizer : Tokenizer
        The model's tokenizer.
    max_length : int, default 384
        Most tokens in a sequence, [CLS] and [SEP] included.
    stride : int, default 128
        Tokens between the beginnings of two windows; fewer if a long question leaves less room.
    max_question : int, default 64
        Most pieces of a question. Longer questions lose their end, and a warning says how many do.
    training : bool, default False
        Whether to leave out questions whose answer is not in their paragraph. A warning says how many.

    Attributes
    ----------
    lengths : numpy.ndarray
        Number of tokens in each sequence, (W,) int32.
    example : numpy.ndarray
        Index of each window's question, (W,) int32.
    bounds : numpy.ndarray
        (Q+1,) int64: question q has the windows bounds[q]:bounds[q+1]; none if it was left out.

    Raises
    ------
    InputError
        When there is no question, or none to train on; when a question leaves no room for its paragraph; when
        a parameter is out of range.
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
        parts: list[_Part] = []
        cut: list[str] = []  # ids of questions that lost their end
        skipped: list[str] = []  # ids of questions that are left out
        n_questions = n_paragraphs = 0
        source = iter(questions)
        written = WrittenTokens(tokenizer)
        while block := list(islice(source, BLOCK)):
            part, too_long = _encode(block, tokenizer, written, training=training, **sizes)
            cut += [block[index].id for index in too_long]
            skipped += [block[index].id for index in np.flatnonzero(part.n_windows == 0)]
            parts.append(part._replace(paragraph=part.paragraph + n_paragraphs))
            n_questions += len(block)
            n_paragraphs += len(part.paragraph_lengths)
        written.warn()
        if not n_questions:
            raise InputError("There is no question; give one at least.")
        if len(skipped) == n_questions:
            problem = f"None of the {n_questions:,} questions has an answer in its paragraph to train on"
            raise InputError(f"{problem}; give each answer with the position of its first character.")
        _report(cut, n_questions, f"are longer than {max_question} pieces and lose their end")
        _report(skipped, n_questions, "are left out: their answer is not where it should be in the paragraph")

        self._special = [tokenizer.cls_id], [tokenizer.sep_id]
        fields = zip(*parts, strict=True)
        self._all = _Part(*map(np.concatenate, fields))
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
        question_begin, question_end = self._question_bounds[example : example + 2]
        question = self._all.question_ids[question_begin:question_end]
        paragraph = self._all.paragraph_ids[self._tokens(number)]
        cls, sep = self._special
        ids = np.concatenate([cls, question, sep, paragraph, sep], dtype=np.int32)
        types = np.ones(len(ids), np.int32)
        types[:first] = 0
        begin, end = self._all.labels[number].tolist()
        label = None if begin == UNKNOWN else (begin, end)
        return Feature((Sequence(ids, types),), label, example=example)

    def first_row(self, number: int) -> int:
        """Return the position in a window's sequence where its part of the paragraph begins.

        Parameters
        ----------
        number : int
            Index of the window.

        Returns
        -------
        int
            The row after [CLS], the question and [SEP].
        """
        return int(self._all.question_lengths[self.example[number]]) + SPECIAL - 1

    def offsets(self, number: int) -> np.ndarray:
        """Return the character offsets in the paragraph of a window's tokens.

        Parameters
        ----------
        number : int
            Index of the window.

        Returns
        -------
        numpy.ndarray
            First character of each token, and the one after its last, (n,2).
        """
        return self._all.offsets[self._tokens(number)]

    def most_context(self, example: int) -> list[np.ndarray]:
        """Return, for each window of a question, which tokens have more context in it than in any other.

        Parameters
        ----------
        example : int
            Index of the question.

        Returns
        -------
        list of numpy.ndarray
            For each window a bool for each of its tokens of the paragraph, (n,).
        """
        windows = slice(*self.bounds[example : example + 2])
        starts = self._all.start[windows]
        lengths = self._all.length[windows]
        best = most_context(starts, lengths)
        masks = []
        for window, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            masks.append(best[start : start + length] == window)
        return masks

    def _tokens(self, number: int) -> slice:
        """Return the range of a window's tokens among the tokens of all paragraphs."""
        paragraph = self._all.paragraph[self.example[number]]
        first = int(self._paragraph_bounds[paragraph] + self._all.start[number])
        return slice(first, first + int(self._all.length[number]))


# start (w,) length (w,) -> (tokens,)
def most_context(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Find the window in which each token has most context, by the rule of Google's run_squad.

    The context is the number of tokens on the side with fewer of them, plus a hundredth of the window's
    length. Among equal windows the first one counts.

    Parameters
    ----------
    start : numpy.ndarray
        First token of each window within the paragraph, (w,), ascending.
    length : numpy.ndarray
        Number of the paragraph's tokens in each window, (w,). Every token is in a window.

    Returns
    -------
    numpy.ndarray
        Index of a window for each token of the paragraph, (n,).
    """
    end = start + length
    token = np.arange(end[-1])
    first = np.searchsorted(end, token, side="right")
    last = np.searchsorted(start, token, side="right") - 1
    # (tokens, most windows at one token): a book has thousands of windows, but only three share a token.
    most_shared = np.max(last - first, initial=0) + 1
    window = first[:, None] + np.arange(most_shared)
    holds = window <= last[:, None]
    window = np.minimum(window, len(start) - 1)
    on_the_left = token[:, None] - start[window]
    on_the_right = end[window] - 1 - token[:, None]
    smaller = np.minimum(on_the_left, on_the_right)
    context = smaller + 0.01 * length[window]
    best = np.where(holds, context, -1.0).argmax(axis=1)
    return first + best


class _Part(NamedTuple):
    """Q questions, P paragraphs and W windows. Parts are joined field by field."""

    question_ids: np.ndarray  # (n,) uint16 or int32, pieces of all questions
    question_lengths: np.ndarray  # (Q,) int32, number of pieces of each question
    paragraph_ids: np.ndarray  # (m,) uint16 or int32, pieces of all paragraphs
    paragraph_lengths: np.ndarray  # (P,) int32, number of pieces of each paragraph
    offsets: np.ndarray  # (m,2) uint16 or int32, characters of each piece of a paragraph
    paragraph: np.ndarray  # (Q,) int32, index of the paragraph that a question is about
    n_windows: np.ndarray  # (Q,) int32, number of windows of each question
    start: np.ndarray  # (W,) int32, first token of a window within its paragraph
    length: np.ndarray  # (W,) int32, number of the paragraph's tokens in a window
    labels: np.ndarray  # (W,2) int32, rows of the answer in the sequence; 0 if it is not there, or UNKNOWN


def _encode(
    block: list[Question],
    tokenizer: Any,
    written: WrittenTokens,
    max_length: int,
    stride: int,
    max_question: int,
    training: bool,
) -> tuple[_Part, np.ndarray]:
    """Lay windows over the paragraphs of some questions; return which questions lost their end as well.

    Every distinct paragraph is tokenised once.
    """
    texts: dict[str, int] = {}  # indices of the distinct paragraphs
    indices = [texts.setdefault(question.context, len(texts)) for question in block]
    paragraph = np.array(indices, np.int32)
    question_texts = [question.question for question in block]
    questions = tokenizer.encode_batch(question_texts, add_special_tokens=False)
    paragraphs = tokenizer.encode_batch(list(texts), offsets=True, add_special_tokens=False)
    written.add(questions)
    written.add(paragraphs)

    n_pieces = np.diff(questions.cu_seqlens)
    n_question = np.minimum(n_pieces, max_question)
    room = max_length - SPECIAL - n_question  # for the paragraph, in each window of a question
    without_room = np.flatnonzero(room < 1)
    if len(without_room):
        index = without_room[0]
        question = f"Question {block[index].id!r} has {n_pieces[index]} pieces"
        problem = f"{question}, which leaves no room for its paragraph in windows of {max_length=}"
        raise InputError(f"{problem}; raise that, or shorten the question.", max_length=max_length)

    n_tokens = np.diff(paragraphs.cu_seqlens)
    answers = _answer_tokens(block, list(texts), paragraph, paragraphs)
    is_left_out = training & (answers[:, 0] == UNKNOWN)
    step = np.minimum(room, stride)
    n_windows = _window_counts(n_tokens[paragraph], room, step)
    n_windows[is_left_out] = 0
    owner = np.repeat(np.arange(len(block)), n_windows)  # (W,) index of each window's question
    index_within = ranges(np.zeros_like(n_windows), n_windows)  # among the windows of its question
    start = index_within * step[owner]
    length = np.minimum(room[owner], n_tokens[paragraph[owner]] - start)
    first_row = n_question[owner] + SPECIAL - 1  # of the paragraph, after [CLS], question and [SEP]
    labels = _labels(answers[owner], start, length, first_row)
    kept_pieces = ranges(questions.cu_seqlens[:-1], n_question)
    part = _Part(
        question_ids=_compact(questions.ids[kept_pieces]),
        question_lengths=n_question,
        paragraph_ids=_compact(paragraphs.ids),
        paragraph_lengths=n_tokens,
        offsets=_compact(paragraphs.offsets),
        paragraph=paragraph,
        n_windows=n_windows.astype(np.int32),
        start=start.astype(np.int32),
        length=length.astype(np.int32),
        labels=labels.astype(np.int32),
    )
    return part, np.flatnonzero(n_pieces > max_question)


# n_tokens (Q,) room (Q,) step (Q,) -> (Q,)
def _window_counts(n_tokens: np.ndarray, room: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Count the windows over each paragraph: one, and one for each step that the first has no room for."""
    missing = np.maximum(0, n_tokens - room)
    further = -(-missing // step)  # rounded up
    return 1 + further


# answers (W,2) start (W,) length (W,) first_row (W,) -> (W,2)
def _labels(answers: np.ndarray, start: np.ndarray, length: np.ndarray, first_row: np.ndarray) -> np.ndarray:
    """Return the rows of the answer in each window's sequence; 0 where it is not all there, or UNKNOWN."""
    inside = answers - start[:, None]
    begin, end = inside.T
    is_held = answers[:, 0] >= 0
    is_held &= begin >= 0
    is_held &= end < length
    rows = inside + first_row[:, None]
    rows[~is_held] = 0
    is_unknown = answers[:, 0] == UNKNOWN
    rows[is_unknown] = UNKNOWN
    return rows


# -> (Q,2) int64: first and last token within the paragraph
def _answer_tokens(
    block: list[Question],
    texts: list[str],
    paragraph: np.ndarray,
    paragraphs: BatchEncoding,
) -> np.ndarray:
    """Find the tokens that the first answer to each question touches; NOWHERE or UNKNOWN for both."""
    characters = np.array([_characters(question) for question in block])
    # Characters are counted through all paragraphs, so that one search serves all questions.
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    before = np.cumsum(lengths) - lengths
    bounds = paragraphs.cu_seqlens.astype(np.int64)
    before_token = np.repeat(before, np.diff(bounds))
    begins, ends = (paragraphs.offsets + before_token[:, None]).T
    wanted_begin = characters[:, 0] + before[paragraph]
    wanted_end = characters[:, 1] + before[paragraph]
    first_token = bounds[paragraph]
    first = np.searchsorted(ends, wanted_begin, side="right") - first_token
    last = np.searchsorted(begins, wanted_end, side="left") - 1 - first_token
    is_known = characters[:, 0] >= 0
    touched = is_known & (first <= last)
    spans = np.stack([first, last], axis=1)
    tokens = np.where(touched[:, None], spans, UNKNOWN)
    tokens[characters[:, 0] == NOWHERE] = NOWHERE
    return tokens


def _characters(question: Question) -> tuple[int, int]:
    """Find the characters of the first answer; NOWHERE without one, UNKNOWN if they have another text."""
    if question.impossible:
        return NOWHERE, NOWHERE
    for text, begin in question.answers[:1]:
        if text and begin >= 0 and question.context.startswith(text, begin):
            return begin, begin + len(text)
    return UNKNOWN, UNKNOWN


def _compact(values: np.ndarray) -> np.ndarray:
    """Store values in 16 bits if they fit; joining parts widens them again where that is needed."""
    return values.astype(np.uint16) if values.max(initial=0) < 2**16 else values


def _bounds(lengths: np.ndarray) -> np.ndarray:
    """Return where each of several ranges begins, and the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _report(ids: list[str], total: int, what: str) -> None:
    """Warn of some questions, unless there are none."""
    if ids:
        warn(f"{len(ids):,} of {total:,} questions {what}; the first is {ids[0]!r}.")
