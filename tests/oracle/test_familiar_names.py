"""What a tokenizer offers under names of `transformers` gives what it gives there."""

import pytest
from transformers import BertTokenizer

from minibert import Tokenizer
from minibert.base.errors import InputError
from minibert.tokenizer import SPECIAL_TOKENS

PIECES = [*SPECIAL_TOKENS, "un", "##aff", "##able", "!", "a", "[NEW]"]
TEXTS = ["unaffable!", "a [MASK] unaffable", "what a [NEW] a"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    ours = Tokenizer(PIECES, additional_special_tokens=["[NEW]"])
    ours.save_pretrained(folder)
    return ours, BertTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("token", ["pad", "unk", "cls", "sep", "mask"])
def test_special_tokens_and_their_ids_are_theirs(both, token):
    ours, theirs = both
    assert getattr(ours, f"{token}_token") == getattr(theirs, f"{token}_token")
    assert getattr(ours, f"{token}_token_id") == getattr(theirs, f"{token}_token_id")


def test_the_vocabulary_is_theirs(both):
    ours, theirs = both
    assert ours.get_vocab() == theirs.get_vocab() and len(ours.get_vocab()) == len(PIECES)
    assert set(ours.all_special_tokens) == set(theirs.all_special_tokens)
    assert set(ours.all_special_ids) == set(theirs.all_special_ids)


def test_pieces_become_ids_and_ids_pieces_as_theirs(both):
    ours, theirs = both
    pieces = ["un", "##able", "nowhere", "[NEW]", "[CLS]"]
    assert ours.convert_tokens_to_ids(pieces) == theirs.convert_tokens_to_ids(pieces)
    assert ours.convert_tokens_to_ids("!") == theirs.convert_tokens_to_ids("!") == 8
    ids = list(range(len(PIECES)))
    assert ours.convert_ids_to_tokens(ids) == theirs.convert_ids_to_tokens(ids) == PIECES
    assert ours.convert_ids_to_tokens(6) == theirs.convert_ids_to_tokens(6) == "##aff"
    with pytest.raises(
        InputError, match="id 11 is outside the vocabulary of 11 pieces; give one from 0 to 10"
    ):
        ours.convert_ids_to_tokens([0, 11])


@pytest.mark.parametrize("skip", [False, True])
def test_a_batch_is_decoded_as_theirs(both, skip):
    ours, theirs = both
    ids = [encoding.ids for encoding in ours(TEXTS)]
    texts = ours.batch_decode(ids, skip_special_tokens=skip)
    assert texts[0].endswith(" !") if skip else " ! " in texts[0]  # where they take the space away
    expected = theirs.batch_decode(ids, skip_special_tokens=skip)
    assert [text.replace(" !", "!") for text in texts] == expected
