"""Batches with labels: what is packed, what micro-batches hold, what is refused."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, strategies as st

from minibert.base.errors import InputError
from minibert.core.batch import Feature, Sequence
from minibert.core.config import BertConfig
from minibert.model.batch import TaskBatch, VectorBatch
from minibert.model.params import Head

CONFIG = BertConfig(vocab_size=50, hidden_size=8, num_attention_heads=2, max_position_embeddings=9)
MULTILABEL = Head("multilabel", 3)
CLASSIFY, REGRESS, CHOICE = Head("classify", 3), Head("regress", 1), Head("choice", 1)
SPAN, TAG = Head("span", 2), Head("tag", 5)


def sequence(length):
    return Sequence(np.arange(2, 2 + length), np.zeros(length, int), [], [])


def feature(length, label=None, rows=None):
    return Feature((sequence(length),), label, rows)


def packed(head, *features):
    batch = TaskBatch.pack_features(features, head)
    batch.validate(CONFIG)
    return batch


def tagged():
    return packed(TAG, feature(3, [4], [1]), feature(4, [], []), feature(5, [0, 2, 3], [1, 2, 4]))


def test_classes_numbers_and_spans_stand_in_the_order_of_their_examples():
    classes = packed(CLASSIFY, feature(3, 2), feature(1, 0))
    assert (classes.labels.tolist(), classes.labels.dtype) == ([2, 0], np.int32)
    numbers = packed(REGRESS, feature(3, 2.5), feature(1, -1))
    assert (numbers.labels.tolist(), numbers.labels.dtype) == ([2.5, -1.0], np.float64)
    spans = packed(SPAN, feature(3, (1, 2)), feature(1, (0, 0)))
    assert (spans.labels.tolist(), spans.labels.dtype) == ([[1, 2], [0, 0]], np.int32)
    for batch in (classes, numbers, spans):
        assert batch.label_weights.tolist() == [0.5, 0.5]
        assert (batch.E, batch.S, batch.choices, batch.label_rows.tolist()) == (2, 2, 1, [])


def test_tags_stand_at_rows_of_the_whole_batch():
    batch = tagged()
    assert batch.labels.tolist() == [4, 0, 2, 3]
    assert batch.label_rows.tolist() == [1, 8, 9, 11]
    assert batch.row_counts.tolist() == [1, 0, 3]
    assert batch.label_weights.tolist() == [0.25] * 4


def test_choices_are_sequences_side_by_side():
    batch = packed(CHOICE, *(Feature(tuple(map(sequence, n)), 1) for n in ((2, 3), (5, 4))))
    assert (batch.E, batch.S, batch.choices) == (2, 4, 2)
    assert np.diff(batch.cu_seqlens).tolist() == [2, 3, 5, 4]
    assert batch.labels.tolist() == [1, 1]


def test_what_is_not_known_weighs_nothing_and_the_rest_as_if_it_were_alone():
    classes = packed(CLASSIFY, feature(3, 2), feature(1), feature(2, 1))
    assert classes.label_weights.tolist() == [0.5, 0, 0.5]
    tags = packed(TAG, feature(3, [4, 1], [1, 2]), feature(4, None, [0, 3]))
    assert tags.labels.tolist() == [4, 1, 0, 0]
    assert tags.label_weights.tolist() == [0.5, 0.5, 0, 0]
    spans = packed(SPAN, feature(3))
    assert (spans.labels.tolist(), spans.label_weights.tolist()) == ([[0, 0]], [0])


lengths = st.lists(st.integers(1, 9), min_size=1, max_size=8)


@given(lengths, st.sampled_from([CLASSIFY, MULTILABEL, REGRESS, CHOICE, SPAN, TAG]), st.data())
def test_micro_batches_hold_every_example_once_and_unchanged(several, head, data):
    rng = np.random.default_rng(0)
    features = []
    for n in several:
        rows = np.flatnonzero(rng.random(n) < 0.5) if head.kind == "tag" else None
        label = {
            "classify": 1,
            "multilabel": np.array([0, 2.5, 1]),
            "regress": 0.5,
            "choice": 2,
            "span": (0, n - 1),
            "tag": rng.integers(5, size=0 if rows is None else len(rows)),
        }[head.kind]
        features.append(Feature((sequence(n),) * (3 if head.kind == "choice" else 1), label, rows))
    whole = TaskBatch.pack_features(features, head)
    parts = list(whole.split(data.draw(st.integers(1, whole.E))))
    for part in parts:
        part.validate(CONFIG)
    for name in ("labels", "label_weights", "row_counts", "input_ids", "sequence_index"):
        together = np.concatenate([getattr(part, name) for part in parts])
        assert np.array_equal(together, getattr(whole, name)), name
    tokens = np.concatenate([part.input_ids[part.label_rows] for part in parts])
    assert np.array_equal(tokens, whole.input_ids[whole.label_rows])
    assert sum(part.S for part in parts) == whole.S and {part.choices for part in parts} == {whole.choices}


def test_part_of_a_part_keeps_its_tags():
    within = tagged().take(1, 3).take(1, 2)
    assert within.label_rows.tolist() == [1, 2, 4]
    assert within.labels.tolist() == [0, 2, 3]
    assert within.sequence_index.tolist() == [2]


def test_vectors_go_where_their_tokens_go():
    rng = np.random.default_rng(0)
    for layers in ((), (3,)):
        vectors = [rng.standard_normal((*layers, n, 4)) for n in (3, 1, 5)]
        batch = VectorBatch.pack_vectors(vectors, [[0, 1, 2], None, [1, 1]], [[0, 1, 2], [0], [2, 4]])
        assert batch.vectors.shape == (*layers, 9, 4)
        assert batch.label_rows.tolist() == [0, 1, 2, 3, 6, 8]
        assert batch.label_weights.tolist() == [0.2, 0.2, 0.2, 0, 0.2, 0.2]
        for number, part in enumerate(batch.split(3)):
            assert isinstance(part, VectorBatch)
            assert np.array_equal(part.vectors, vectors[number])
        assert part.label_rows.tolist() == [2, 4]


def test_every_vector_has_a_tag_when_rows_are_left_out():
    batch = VectorBatch.pack_vectors([np.zeros((2, 4)), np.zeros((3, 4))], [[1, 2], [3, 4, 0]])
    assert (batch.label_rows.tolist(), batch.labels.tolist()) == ([0, 1, 2, 3, 4], [1, 2, 3, 4, 0])


# What is refused.


def test_features_that_make_no_batch_are_refused():
    with pytest.raises(InputError, match=r"features=\[\] makes no batch; give at least one"):
        TaskBatch.pack_features([], CLASSIFY)
    two = Feature((sequence(2),) * 2, 0)
    with pytest.raises(InputError, match="Feature 1 has 1 sequences and feature 0 has 2; put examples with"):
        TaskBatch.pack_features([two, feature(2, 0)], CHOICE)
    with pytest.raises(InputError, match="Feature 1 has 1 tags and 2 rows; give as many"):
        TaskBatch.pack_features([feature(2, [0], [1]), feature(3, [0], [1, 2])], TAG)
    with pytest.raises(InputError, match="equence 1 .*is empty"):
        VectorBatch.pack_vectors([np.zeros((2, 4)), np.zeros((0, 4))], [None, None])


@pytest.mark.parametrize(
    ("head", "label", "rows", "message"),
    [
        (CLASSIFY, 1.7, None, "label has 1.7, which is not an integer"),
        (CLASSIFY, -1, None, "A label is -1; give 0 or more, and None where it is not known"),
        (TAG, [0, -100], [0, 1], "A label is -100; give 0 or more, and None where it is not known"),
        (TAG, [0, 1], [0, 9], "Feature 0 has a label for row 9 in a sequence of 3 tokens; count from its"),
        (TAG, [0, 1], [-1, 0], "Feature 0 has a label for row -1 in a sequence of 3 tokens; count from its"),
        (CLASSIFY, "positive", None, "label has 'positive', which is not an integer"),
        (SPAN, (0, 1.5), None, "label has 1.5, which"),
        (TAG, [2.5], [1], "label has 2.5, which"),
        (TAG, [2], [1.5], "rows has 1.5, which"),
    ],
)
def test_a_label_or_row_that_would_become_another_is_refused(head, label, rows, message):
    with pytest.raises(InputError, match=message):
        packed(head, feature(3, label, rows))


def test_what_every_batch_is_checked_for_is_checked_here_too():
    batch = TaskBatch.pack_features([feature(10, 0)], CLASSIFY)
    with pytest.raises(InputError, match="10 tokens is longer than the model's 9 positions"):
        batch.validate(CONFIG)
    beyond = dataclasses.replace(batch.take(0, 1), input_ids=np.full(10, 50, np.int32))
    with pytest.raises(InputError, match=r"input_ids\[0\]=50 is outside 0..49"):
        beyond.validate(CONFIG)
