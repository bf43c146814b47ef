"""Questions and paragraphs to windows of ids, as in Hugging Face's example run_qa.

Windows share `STRIDE` tokens with their neighbours; minibert's, like Google's, begin that many apart. Nearly
all paragraphs fit into one window.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minibert.data.squad import Question

LENGTH, STRIDE = 384, 128
AT_ONCE = 1000  # questions, as `datasets.map` has them


def labelled(tokenizer: Any, questions: Sequence[Question], length: int = LENGTH) -> list[dict[str, Any]]:
    """Windows to learn from, as run_qa makes them.

    Parameters
    ----------
    tokenizer : Hugging Face's fast one.
    questions : whose first answer is learnt.
    length : most tokens of a window.

    Returns
    -------
    Of every window `input_ids`, `token_type_ids`, and the tokens of the answer's ends, `start_positions` and
    `end_positions`: both that of [CLS] where the answer is not wholly in the window.
    """
    found = []
    for encoded, number in _windows(tokenizer, questions, length):
        begin, end = 0, 0
        if answers := questions[number].answers:
            first, last = answers[0].start, answers[0].start + len(answers[0].text)
            begin, end = _tokens_of(encoded, first, last)
        found.append(
            {
                "input_ids": encoded.ids,
                "token_type_ids": encoded.type_ids,
                "start_positions": begin,
                "end_positions": end,
            }
        )
    return found


def _tokens_of(encoded: Any, first: int, last: int) -> tuple[int, int]:
    """The tokens that hold the characters from `first` up to `last`, or twice [CLS]."""
    kinds, offsets = encoded.sequence_ids, encoded.offsets
    begin, end = 0, len(kinds) - 1
    while kinds[begin] != 1:
        begin += 1
    while kinds[end] != 1:
        end -= 1
    if not (offsets[begin][0] <= first and last <= offsets[end][1]):
        return 0, 0
    behind = end
    while begin <= behind and offsets[begin][0] <= first:
        begin += 1
    while offsets[end][1] >= last:
        end -= 1
    return begin - 1, end + 1


def asked(tokenizer: Any, questions: Sequence[Question], length: int = LENGTH) -> list[dict[str, Any]]:
    """Windows to answer from: `question`, its number, and (n,2) `offsets`, (-1, -1) outside the paragraph."""
    found = []
    for encoded, number in _windows(tokenizer, questions, length):
        paragraph = np.array([kind == 1 for kind in encoded.sequence_ids])
        found.append(
            {
                "input_ids": encoded.ids,
                "token_type_ids": encoded.type_ids,
                "question": number,
                "offsets": np.where(paragraph[:, None], np.array(encoded.offsets), -1),
            }
        )
    return found


def _windows(tokenizer: Any, questions: Sequence[Question], length: int) -> Any:
    """Every window, with the number of its question."""
    for at in range(0, len(questions), AT_ONCE):
        some = questions[at : at + AT_ONCE]
        made = tokenizer(
            [question.question.lstrip() for question in some],
            [question.context for question in some],
            truncation="only_second",
            max_length=length,
            stride=min(STRIDE, length // 3),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        owners = made["overflow_to_sample_mapping"]
        yield from ((encoded, at + owner) for encoded, owner in zip(made.encodings, owners, strict=True))
