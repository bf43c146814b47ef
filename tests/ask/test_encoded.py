"""What a notebook shows of encoded texts: numbers and pixels beside the arrays."""

import base64
import io
import re
import warnings

import numpy as np
import pytest
from html_page import Page
from matplotlib.image import imread

from minibert import Bert, BertConfig, Tokenizer
from minibert.ask.inference import Encoded
from minibert.base.errors import InputError
from minibert.core.batch import Batch, Sequence
from minibert.model.params import initialise
from minibert.tokenizer import SPECIAL_TOKENS

WORDS = "the film was dull <b> & fine".split()


@pytest.fixture(scope="module")
def model():
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *WORDS])
    config = BertConfig.from_size("3-8-2", vocab_size=len(tokenizer) + 2)
    params = initialise(config, 0)
    params.flat[...] *= 9
    return Bert(config, params, tokenizer=tokenizer)


def pictures(shown):
    """The pixels of each picture, (h,w) of the red channel from 0 to 255."""
    found = re.findall(r'src="data:image/png;base64,([^"]*)"', shown)
    return [np.rint(255 * imread(io.BytesIO(base64.b64decode(one)))[..., 0]) for one in found]


def test_encoded_shows_cosines_of_its_vectors_and_pieces_of_its_tokens(model):
    encoded = model.encode(["the film", "dull"])
    rows = re.findall(r'<th scope="row"[^>]*><bdi>(.*?)</bdi></th>(.*?)</tr>', encoded._repr_html_(), re.S)
    assert [token for token, _ in rows] == encoded.tokens
    assert encoded.tokens == ["[CLS]", "the", "film", "[SEP]", "[CLS]", "dull", "[SEP]"]
    shown = np.array([[float(x) for x in re.findall(r">(-?\d\.\d\d)<", cells)] for _, cells in rows])
    first = encoded.hidden_states[0]
    for number, state in enumerate(encoded.hidden_states):
        products = (first * state).sum(1)
        expected = products / np.linalg.norm(first, axis=1) / np.linalg.norm(state, axis=1)
        assert np.allclose(shown[:, number], expected, atol=0.0051)
    assert np.ptp(shown[:, 1:]) > 0.1


def test_attention_maps_are_drawn_in_a_row_for_each_layer(model):
    encoded = model.encode(["the film was", "dull"], attentions=True)
    found = pictures(encoded._repr_html_())
    assert len(found) == 2
    for sequence, picture in enumerate(found):
        n = len(encoded.attentions[0][sequence][0])
        assert picture.shape == (3 * (n + 1), 2 * (n + 1))
        for layer, maps in enumerate(encoded.attentions):
            for head, probabilities in enumerate(maps[sequence]):
                y, x = layer * (n + 1), head * (n + 1)
                expected = 255 + (31 - 255) * np.sqrt(probabilities)
                assert np.abs(picture[y : y + n, x : x + n] - expected).max() <= 1
                assert np.ptp(expected) > 20


def test_page_counts_tokens_and_sequences_it_leaves_out(model):
    shown = model.encode(["the film was dull " * 12, *["dull"] * 4])._repr_html_()
    assert "… and 10 tokens more" in shown and "… and 2 sequences more" in shown
    assert shown.count("<table") == 3 and shown.count('scope="row"') == 40 + 3 + 3


def test_encoded_without_vocabulary_numbers_its_tokens(model):
    encoded = Bert(model.config, model.params).encode([model.tokenizer("the film")], layers=[1, 3])
    assert encoded.tokens is None
    assert re.findall(r"<bdi>(.*?)</bdi>", encoded._repr_html_()) == ["0", "1", "2", "3"]
    assert "<img" not in encoded._repr_html_()


def test_indexing_encoded_gives_one_sequence_with_its_tokens(model):
    encoded = model.encode(["the film", "dull"], attentions=True)
    one = encoded[1]
    assert one.tokens == ["[CLS]", "dull", "[SEP]"]
    whole = pictures(encoded._repr_html_())
    assert np.array_equal(pictures(one._repr_html_())[0], whole[1])


def test_pieces_are_escaped_in_html(model):
    ids = [len(SPECIAL_TOKENS) + WORDS.index(piece) for piece in ("<b>", "&")]
    assert model.tokenizer.vocab[ids[0]] == "<b>"
    encoded = model.encode(Batch.pack([Sequence(ids, [0, 0])]), attentions=True)
    page = Page(encoded._repr_html_())
    assert page.said("bdi") == encoded.tokens == ["<b>", "&"]
    assert not {"script", "iframe", "b", "link"} & {name for name, _ in page.tags}
    [picture] = page.of("img")
    assert picture["alt"] == "3 by 2 attention maps of 2 tokens" and picture["src"].startswith("data:")


def test_embedding_without_a_piece_is_shown_by_its_id(model):
    last = model.config.V - 1
    assert model.encode(Batch.pack([Sequence([last], [0])])).tokens == [f"[id {last}]"]


def test_empty_encoded_is_shown():
    empty = Encoded([np.zeros((0, 4), np.float32)], None, None, np.array([0]), [])
    assert "Encoded(1 × (0, 4))" in empty._repr_html_()


def test_key_of_transformers_is_explained(model):
    encoded = model.encode("the film")
    with pytest.raises(InputError, match="no 'last_hidden_state'; use hidden_states\\[-1\\]"):
        encoded["last_hidden_state"]
    with pytest.raises(InputError, match="no 'pooler_output'; use pooled"):
        encoded["pooler_output"]
    with pytest.raises(InputError, match="no 'ids'; use an attribute, such as"):
        encoded["ids"]


@pytest.mark.parametrize(
    ("inputs", "which"),
    [
        ("", "A text"),
        ("  ", "A text"),
        ([("the film", " ")], "A text"),
        (["the film", ""], "The text at index 1"),
        (["the film", "a film", ("", "the film")], "The text at index 2"),
    ],
)
def test_empty_text_is_refused(model, inputs, which):
    with pytest.raises(InputError, match=f"^{which} is empty; give one with words in it"):
        model.encode(inputs)


def test_second_text_is_not_mistaken_for_attentions(model):
    with pytest.raises(InputError) as raised:
        model.encode("the film", "dull")
    advice = "give a pair of texts as a tuple, encode(('a', 'b'))."
    assert str(raised.value) == f"attentions='dull' is not True or False; {advice}"


def test_fill_mask_refuses_none(model):
    with pytest.raises(InputError, match="^text=None is not a string; give a text"):
        model.fill_mask(None)


@pytest.mark.parametrize(("rows", "is_warned"), [(18, True), (13, False)])
def test_much_smaller_vocabulary_than_the_model_gives_a_warning(rows, is_warned):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *WORDS])
    config = BertConfig.from_size("3-8-2", vocab_size=rows)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        Bert(config, initialise(config, 0), tokenizer=tokenizer)
    expected = ["The vocabulary has 12 pieces and the model 18; is it another model's?"]
    assert [str(one.message) for one in told] == expected * is_warned


def test_rows_of_different_lengths_are_lists_or_tuples_or_arrays(model):
    rows = [[2, 5, 3], [2, 5, 6, 3]]
    expected = [one.hidden_states[-1] for one in model.encode({"input_ids": rows})]
    for given in ([tuple(row) for row in rows], [np.array(row) for row in rows]):
        found = model.encode({"input_ids": given})
        for one, right in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.hidden_states[-1], right)
    with pytest.raises(InputError, match="give a row of numbers for each sequence"):
        model.encode({"input_ids": [[[2], [5]], [[2, 5, 6]]]})
    with pytest.raises(InputError, match="give a row of numbers for each sequence"):
        model.encode({"input_ids": [5, [2, 5, 6]]})


@pytest.mark.parametrize(("size", "said"), [("1-8-2", "2 heads in 1 layer"), ("2-8-1", "1 head in 2 layers")])
def test_the_picture_of_attention_maps_says_how_many_there_are(size, said):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *WORDS])
    config = BertConfig.from_size(size, vocab_size=len(tokenizer))
    model = Bert(config, initialise(config, 0), tokenizer=tokenizer)
    shown = model.encode(["the film"], attentions=True)._repr_html_()
    assert f"Attention of {said}, a row" in shown
