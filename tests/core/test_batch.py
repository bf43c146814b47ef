"""Batches: sequences end to end, and micro-batches that add up to the whole."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, strategies as st

from minibert.base.errors import InputError
from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig

CONFIG = BertConfig(vocab_size=50, hidden_size=8, num_attention_heads=2, max_position_embeddings=9)


def sequence(ids, masked=(), next_sentence=-1):
    """A sequence, the last half of which is segment B, with labels 40, 41, ... at masked positions."""
    segments, labels = np.arange(len(ids)) * 2 // len(ids), 40 + np.arange(len(masked))
    return Sequence(np.array(ids), segments, np.array(masked, int), labels, next_sentence)


THREE = [sequence([2, 7, 3], [1], 0), sequence([2]), sequence([2, 8, 9, 3], [2, 3], 1)]

sequences = st.lists(
    st.integers(1, 9).flatmap(
        lambda n: st.builds(
            sequence,
            st.lists(st.integers(0, 49), min_size=n, max_size=n),
            st.sets(st.integers(0, n - 1)).map(sorted),
            st.integers(-1, 1),
        )
    ),
    min_size=1,
    max_size=8,
)


def test_packed_sequences_stand_end_to_end():
    batch = Batch.pack(THREE)
    assert (batch.T, batch.S, batch.M) == (8, 3, 3)
    assert batch.input_ids.tolist() == [2, 7, 3, 2, 2, 8, 9, 3]
    assert batch.token_type_ids.tolist() == [0, 0, 1, 0, 0, 0, 1, 1]
    assert batch.positions.tolist() == [0, 1, 2, 0, 0, 1, 2, 3]
    assert batch.cu_seqlens.tolist() == [0, 3, 4, 8]
    assert batch.sequence_index.tolist() == [0, 1, 2]
    assert batch.masked_rows.tolist() == [1, 6, 7]
    assert batch.masked_labels.tolist() == [40, 40, 41]
    assert batch.next_sentence_labels.tolist() == [0, -1, 1]


def test_weights_are_one_over_what_is_predicted_in_the_whole_batch():
    batch = Batch.pack(THREE)
    assert batch.masked_weights.tolist() == [1 / 3] * 3
    assert batch.next_sentence_weights.tolist() == [0.5, 0, 0.5]


def test_batch_with_nothing_to_predict_has_no_weights():
    batch = Batch.pack([sequence([2, 3]), sequence([2])])
    assert batch.M == 0
    assert batch.masked_weights.tolist() == []
    assert batch.next_sentence_weights.tolist() == [0, 0]


@given(sequences)
def test_types_are_those_the_engines_expect(several):
    batch = Batch.pack(several)
    kinds = {field.name: getattr(batch, field.name).dtype for field in dataclasses.fields(batch)}
    special = {"masked_weights": np.float64, "next_sentence_weights": np.float64, "sequence_index": np.uint32}
    assert kinds == dict.fromkeys(kinds, np.int32) | special


@given(sequences, st.data())
def test_micro_batches_hold_every_sequence_once_and_unchanged(several, data):
    whole = Batch.pack(several)
    parts = list(whole.split(data.draw(st.integers(1, whole.S))))
    assert max(part.S for part in parts) - min(part.S for part in parts) <= 1
    for name in set(vars(whole)) - {"cu_seqlens", "masked_rows"}:
        together = np.concatenate([getattr(part, name) for part in parts])
        assert np.array_equal(together, getattr(whole, name)), name
    lengths = np.concatenate([np.diff(part.cu_seqlens) for part in parts])
    assert np.array_equal(lengths, np.diff(whole.cu_seqlens))
    masked = np.concatenate([part.input_ids[part.masked_rows] for part in parts])
    assert np.array_equal(masked, whole.input_ids[whole.masked_rows])


@given(sequences, st.data())
def test_part_of_a_part_is_a_part(several, data):
    whole = Batch.pack(several)
    first = data.draw(st.integers(0, whole.S - 1))
    last = data.draw(st.integers(first + 1, whole.S))
    part = whole.take(first, last)
    alone = whole.take(last - 1, last)
    within = part.take(part.S - 1, part.S)
    assert all(np.array_equal(getattr(within, name), getattr(alone, name)) for name in vars(whole))


@given(sequences)
def test_what_was_packed_from_good_sequences_is_valid(several):
    Batch.pack(several).validate(CONFIG)


@pytest.mark.parametrize("parts", [0, 4, -1])
def test_number_of_micro_batches_that_does_not_fit_is_refused(parts):
    with pytest.raises(InputError, match=f"parts={parts} .*choose from 1 to 3"):
        list(Batch.pack(THREE).split(parts))


def test_no_sequence_and_an_empty_sequence_are_refused():
    with pytest.raises(InputError, match="give at least one sequence"):
        Batch.pack([])
    empty = THREE[0]._replace(input_ids=np.array([], int), token_type_ids=np.array([], int))
    with pytest.raises(InputError, match=r"equence 1 .*is empty; give it at least \[CLS\] and \[SEP\]"):
        Batch.pack([sequence([2]), empty])


@pytest.mark.parametrize("field", ["token_type_ids", "masked_labels"])
def test_parts_of_unequal_length_are_refused(field):
    with pytest.raises(InputError, match=rf"Sequence 1 has \d \w+ and 7 {field}; give one for each"):
        Batch.pack([THREE[0], THREE[1]._replace(**{field: np.zeros(7, int)})])


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        ("input_ids", [2, 2**32 + 5, 3], "input_ids has 4294967301, which is not an integer of at most 32"),
        ("input_ids", [2, 5.5, 3], "input_ids has 5.5, which is not an integer"),
        ("input_ids", [[2], [5], [3]], r"input_ids of sequence 0 has shape \(3, 1\); give a row of them"),
        ("token_type_ids", [0, np.nan, 0], "token_type_ids has nan"),
        ("masked_labels", [2**40], "masked_labels has 1099511627776"),
        ("masked_positions", [3], "masked_positions has 3 in a sequence of 3 tokens; count from its"),
        ("masked_positions", [-1], "masked_positions has -1 in a sequence of 3 tokens"),
    ],
)
def test_what_would_become_another_number_or_another_sequence_is_refused(field, values, message):
    with pytest.raises(InputError, match=message):
        Batch.pack([THREE[0]._replace(**{field: np.array(values)}), THREE[2]])


def test_a_half_of_a_next_sentence_label_is_refused():
    with pytest.raises(InputError, match="next_sentence_label has 0.7, which is not an integer"):
        Batch.pack([THREE[0]._replace(next_sentence_label=0.7), THREE[1]])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("input_ids", 50, r"input_ids\[2\]=50 is outside 0..49 \(vocab_size=50\)"),
        ("input_ids", -1, r"input_ids\[2\]=-1 is outside"),
        ("masked_labels", 50, r"masked_labels\[2\]=50 is outside 0..49"),
        ("token_type_ids", 2, r"token_type_ids\[2\]=2 is outside 0..1 \(type_vocab_size=2\)"),
        ("masked_rows", 8, r"masked_rows\[2\]=8 is outside 0..7"),
        ("masked_rows", -3, r"masked_rows\[2\]=-3 is outside"),
        ("next_sentence_labels", 2, r"next_sentence_labels\[2\]=2 is unknown; give 0"),
    ],
)
def test_index_outside_the_model_is_refused_with_its_place(field, value, message):
    batch = Batch.pack(THREE)
    getattr(batch, field)[2] = value
    with pytest.raises(InputError, match=message):
        batch.validate(CONFIG)


def test_sequence_longer_than_the_positions_is_refused():
    with pytest.raises(InputError, match="10 tokens is longer than the model's 9 positions; shorten"):
        Batch.pack([sequence(range(10))]).validate(CONFIG)
