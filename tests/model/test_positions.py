"""More positions for a trained model: what it computed stays, and the new ones are copies of its own."""

import dataclasses

import numpy as np
import pytest

from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.model.params import PRETRAINING, Head, initialise
from minibert.model.positions import with_positions

CONFIG = BertConfig(7, 6, 2, 3, 5, max_position_embeddings=8)


@pytest.mark.parametrize("head", [PRETRAINING, Head("classify", 3), Head("span", 2)])
def test_other_parameters_stay_bit_for_bit(head):
    params = initialise(CONFIG, 1, head=head)
    grown = with_positions(params, 20, "it")
    assert grown.config.P == 20 and grown.head == head and grown.flat.dtype == params.flat.dtype
    for name, value in params.items():
        np.testing.assert_array_equal(grown[name][: len(value)], value)
    rows = params["embeddings.position"]
    expected = np.concatenate([rows, rows, rows[:4]])
    np.testing.assert_array_equal(grown["embeddings.position"], expected)


def test_only_rows_that_were_trained_are_copied():
    config = dataclasses.replace(CONFIG, trained_length=3)
    params = initialise(config, 1)
    rows = params["embeddings.position"]
    grown = with_positions(params, 10, "it")
    expected = np.concatenate([rows[:3], rows[:3], rows[:3], rows[:1]])
    np.testing.assert_array_equal(grown["embeddings.position"], expected)
    assert grown.config.trained_length == 3


def test_short_texts_are_encoded_as_before():
    params = initialise(CONFIG, 1)
    grown = with_positions(params, 20, "it")
    batch = Batch.pack([Sequence([2, 5, 6, 3], [0, 0, 0, 0])])
    before = Bert(CONFIG, params).encode(batch).hidden_states[-1]
    np.testing.assert_array_equal(Bert(grown.config, grown).encode(batch).hidden_states[-1], before)


def test_as_many_change_nothing_and_fewer_are_refused():
    params = initialise(CONFIG, 1)
    assert with_positions(params, 8, "it") is params
    with pytest.raises(
        InputError, match="extend_positions=7 is less than the 8 positions of 'it'; give more"
    ):
        with_positions(params, 7, "it")
