"""The plain files of the core make what the product makes of any amount of text: words, pairs and masks."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from minibert.core.__main__ import MASK, hide
from minibert.core.draws import draw, key
from minibert.core.pairs import contiguous_spans, sentence_pairs
from minibert.core.wordpiece import SPECIAL_TOKENS, decode, encode, split_words
from minibert.data.corpus import embedded_corpus, sentences
from minibert.data.instances import CONTENT, InstanceOptions, Instances
from minibert.data.shards.store import write_shards
from minibert.tokenizer import Tokenizer

SEED, SHORT_SHARE = 3, 0.3
LENGTHS = [[Random(number).randint(1, 20) for _ in range(2 + number % 16)] for number in range(30)]


@pytest.fixture(scope="module")
def documents():
    """Thirty documents of sentences of up to twenty tokens; each token stands in one place."""
    ids = iter(range(len(SPECIAL_TOKENS), 10_000))
    return [[[next(ids) for _ in range(length)] for length in document] for document in LENGTHS]


@pytest.fixture(scope="module")
def instances(documents, tmp_path_factory):
    """What the product makes of these documents, by options."""
    count = sum(len(sentence) for document in documents for sentence in document)
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *(f"w{number}" for number in range(count))])
    texts = []
    for document in documents:
        texts += [None] if texts else []
        texts += [" ".join(tokenizer.vocab[n] for n in sentence) for sentence in document]
    shards = write_shards(iter(texts), tokenizer, tmp_path_factory.mktemp("plain") / "shards")

    def made(**options):
        chosen = InstanceOptions(short_seq_prob=SHORT_SHARE, **options)
        return Instances(shards, np.arange(len(documents)), tokenizer, chosen, SEED)

    return made


def epoch(instances, number=0):
    """Everything of one epoch, in an order that depends on the content alone."""
    found = []
    for sequence, after in instances.stream((number, 0, 0)):
        found.append(sequence)
        if after.epoch > number:
            return sorted(map(as_tuple, found))
    return None


def as_tuple(sequence):
    return tuple(np.asarray(part).tolist() for part in sequence[:5])


def plainly(documents, spans, vocab_size):
    """The same by the plain functions; keys as in `Instances._draw_spans`."""
    found = []
    for number in range(len(documents)):
        document_key = key(CONTENT, SEED, 0, number)
        for place, pair in enumerate(spans(number, Random(document_key))):
            own = int(draw(np.array([document_key], np.uint64), place)[0])
            found.append(as_tuple(hide(pair, own, vocab_size)))
    return sorted(found)


@pytest.mark.parametrize("seq_length", [48, 128])
def test_pairs_and_masks_equal_the_plain_ones(documents, instances, seq_length):
    made = instances(seq_length=seq_length)

    def spans(number, rng):
        return sentence_pairs(number, documents, seq_length - 3, SHORT_SHARE, rng)

    expected = plainly(documents, spans, made.tokenizer.vocab_size)
    assert len(expected) > 40
    assert {label for *_, label in expected} == {0, 1}
    assert epoch(made) == expected


def test_single_segments_equal_the_plain_ones(documents, instances):
    made = instances(seq_length=24, next_sentence=False)

    def spans(number, rng):
        return contiguous_spans(documents[number], 22, SHORT_SHARE, rng)

    assert epoch(made) == plainly(documents, spans, made.tokenizer.vocab_size)


def test_hidden_tokens_are_masked_kept_and_replaced(documents):
    pair = next(sentence_pairs(3, documents, 125, 0.0, Random(1)))
    shown, hidden = [], []
    for draw_key in range(400):
        sequence = hide(pair, draw_key, vocab_size=5_000)
        shown += sequence.input_ids[sequence.masked_positions].tolist()
        hidden += sequence.masked_labels.tolist()
    masked = np.mean(np.array(shown) == MASK)
    kept = np.mean(np.array(shown) == np.array(hidden))
    margin = 4 * 0.5 / len(shown) ** 0.5
    assert abs(masked - 0.8) < margin
    assert abs(kept - 0.1) < margin


def test_words_of_the_books_equal_those_of_the_tokenizer():
    text = [sentence for sentence in sentences([embedded_corpus()]) if sentence][:3_000]
    vocab = [*SPECIAL_TOKENS, *sorted({word for line in text for word in split_words(line)})]
    tokenizer = Tokenizer(vocab)
    for line in text:
        assert tokenizer.tokenize(line) == split_words(line)


@given(st.text("abcd", min_size=1, max_size=12))
def test_decode_undoes_encode(word):
    vocab = [*SPECIAL_TOKENS, *"abcd", *("##" + letter for letter in "abcd"), "ab", "##cd"]
    ids = {piece: number for number, piece in enumerate(vocab)}
    assert decode(encode(word, ids), vocab) == word
