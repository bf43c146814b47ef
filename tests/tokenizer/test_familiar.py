"""Names of transformers that a tokenizer has, given what they do not take."""

import numpy as np
import pytest

from minibert import Tokenizer
from minibert.base.errors import InputError

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ship", "##s"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(PIECES)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("convert_tokens_to_ids", 5, "tokens has 5, which is not a piece; give strings."),
        ("convert_tokens_to_ids", ["ship", None], "tokens has None, which is not a piece; give strings."),
        ("convert_ids_to_tokens", "ship", "ids has 's', which is not an id; give whole numbers."),
        ("convert_ids_to_tokens", None, "ids has None, which is not an id; give whole numbers."),
        (
            "convert_ids_to_tokens",
            np.array([[5, 6]]),
            "ids has array([5, 6]), which is not an id; give whole numbers.",
        ),
        ("convert_ids_to_tokens", [5, 6.0], "ids has 6.0, which is not an id; give whole numbers."),
        ("batch_decode", None, "sequences=None is not a list of sequences; give lists of ids."),
        ("batch_decode", [5, 6], "ids=5 is not a list of ids; give whole numbers."),
    ],
)
def test_what_is_not_a_piece_or_an_id_is_refused(tokenizer, method, given, message):
    with pytest.raises(InputError) as refused:
        getattr(tokenizer, method)(given)
    assert str(refused.value) == message


def test_pieces_and_ids_of_any_iterable_are_converted(tokenizer):
    assert tokenizer.convert_tokens_to_ids(iter(["ship", "sail"])) == [5, 1]
    assert tokenizer.convert_ids_to_tokens(iter([5, 6])) == ["ship", "##s"]
    assert tokenizer.batch_decode(iter([[5, 6], []])) == ["ships", ""]
