"""Blocks of sequences laid out end to end: which tokens, targets and labels each sequence has."""

import numpy as np
import pytest

from minibert.data.layout import Block

# Two sequences, [CLS] a b [SEP] c [SEP] and [CLS] d [SEP] e f [SEP], of which 10 to 15 are text.
IDS = [2, 10, 11, 3, 12, 3, 2, 13, 3, 14, 15, 3]
SEGMENTS = [0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1]
BEGINS = [0, 6, 12]
TEXT = [1, 2, 4, 7, 9, 10]


@pytest.fixture
def block():
    sequence = np.array([0, 0, 0, 1, 1, 1])
    ids, segments = np.array(IDS, np.int32), np.array(SEGMENTS, np.int32)
    return Block(ids, segments, np.array(BEGINS), [1, 0], np.array(TEXT), sequence, np.ones(6, bool))


def parts(block):
    """What each of the two sequences has, as lists."""
    fields = ("input_ids", "token_type_ids", "masked_positions", "masked_labels")
    sequences = [block.sequence_at(n) for n in (0, 1)]
    assert [sequence.next_sentence_label for sequence in sequences] == [1, 0]
    return [[getattr(sequence, name).tolist() for name in fields] for sequence in sequences]


def test_sequences_have_their_own_tokens_and_targets(block):
    block.predict(np.array([1, 2, 4]), np.array([4, 12, 4], np.int32))
    assert parts(block) == [
        [[2, 10, 4, 3, 12, 3], [0, 0, 0, 0, 1, 1], [2, 4], [11, 12]],
        [[2, 13, 3, 4, 15, 3], [0, 0, 0, 1, 1, 1], [3], [14]],
    ]


def test_next_tokens_are_asked_for_everywhere_but_at_the_end(block):
    block.predict_next_tokens()
    assert parts(block) == [
        [IDS[:6], SEGMENTS[:6], [0, 1, 2, 3, 4], IDS[1:6]],
        [IDS[6:], SEGMENTS[6:], [0, 1, 2, 3, 4], IDS[7:]],
    ]


def test_nobody_can_write_into_arrays_that_sequences_share(block):
    block.predict(np.array([1, 4]), np.array([4, 4], np.int32))
    block.freeze()
    sequence = block.sequence_at(0)
    for name in ("input_ids", "token_type_ids", "masked_positions", "masked_labels"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(sequence, name)[:] = 0
