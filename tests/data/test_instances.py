"""Instances: pairs, masks and their statistics, determinism, resuming, and every way to ask wrongly."""

import itertools
import time
from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from marks import examples

from minibert.base.errors import InputError
from minibert.data import instances as instances_module
from minibert.data.corpus import embedded_corpus, sentences
from minibert.data.instances import InstanceOptions, Instances, Position, split_documents
from minibert.data.nsp_spans import Spans, cut_sentences, truncated
from minibert.data.shards.store import write_shards
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer

PAD, UNK, CLS, SEP, MASK = range(5)
WORDS = 6_000
# Every word of the test corpora is a token of its own, written once: a token tells where it stood.
NUMBERED = Tokenizer([*SPECIAL_TOKENS, *(f"w{number}" for number in range(WORDS))])


def numbered_text(*documents):
    """Documents as lists of sentence lengths -> the stream of sentences w0 w1 w2 …"""
    words = (f"w{number}" for number in itertools.count())
    for number, document in enumerate(documents):
        if number:
            yield None
        for length in document:
            yield " ".join(itertools.islice(words, length))


@pytest.mark.parametrize("whole_word_mask", [False, True])
def test_special_tokens_in_a_text_are_never_predicted(tmp_path, whole_word_mask):
    rng = Random(1)
    written = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(6))]
    text = [" ".join(rng.choices(written, k=8)) for _ in range(200)]
    stream = itertools.chain.from_iterable([*text[n : n + 10], None] for n in range(0, 200, 10))
    with pytest.warns(UserWarning, match="special tokens written out"):
        made = write_shards(stream, NUMBERED, tmp_path / "shards")
    options = {"seq_length": 32, "whole_word_mask": whole_word_mask, "masked_lm_prob": 1.0}
    n_predicted = n_special = 0
    for sequence in one_epoch(made_from(made, max_predictions_per_seq=99, **options), 0):
        labels = np.asarray(sequence.masked_labels)
        assert not np.isin(labels, [PAD, CLS, SEP, MASK]).any() and len(labels)
        others = np.delete(sequence.input_ids, sequence.masked_positions)
        assert np.isin(others, [PAD, CLS, SEP, MASK]).all()  # everything else was asked for
        n_predicted, n_special = n_predicted + len(labels), n_special + len(others)
    assert n_predicted > 500 and n_special > 500


def test_a_sequence_of_special_tokens_still_predicts(tmp_path):
    with pytest.warns(UserWarning, match="special tokens written out"):
        text = iter(["[SEP] [MASK]", "[SEP]", None, "w1 w2", "w3"])
        made = write_shards(text, NUMBERED, tmp_path / "shards")
    sequences = list(one_epoch(made_from(made, seq_length=16, next_sentence=False), 0))
    assert all(len(sequence.masked_labels) for sequence in sequences)


def some_documents(count=40, seed=0):
    rng = Random(seed)
    return [[rng.randint(1, 20) for _ in range(rng.randint(2, 18))] for _ in range(count)]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(numbered_text(*some_documents()), NUMBERED, tmp_path_factory.mktemp("n") / "shards")


def made_from(shards, documents=None, seed=0, **options):
    documents = np.arange(shards.n_documents) if documents is None else documents
    return Instances(shards, documents, NUMBERED, InstanceOptions(**options), seed)


def one_epoch(instances, epoch):
    """Every instance of an epoch."""
    for sequence, after in instances.stream(Position(epoch, 0, 0)):
        yield sequence
        if after.epoch > epoch:
            return


def original(sequence):
    """The ids before masking."""
    ids = sequence.input_ids.copy()
    ids[sequence.masked_positions] = sequence.masked_labels
    return ids


def halves(sequence):
    """The text of A and of B, unmasked."""
    first, second, *rest = np.flatnonzero(original(sequence) == SEP)
    assert not rest
    return original(sequence)[1:first], original(sequence)[first + 1 : second]


def as_key(sequence):
    return tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in sequence)


def same(a, b):
    return as_key(a) == as_key(b)


def test_two_tiny_documents_give_what_one_can_work_out_by_hand(tmp_path):
    # w0 | w1 and w2 | w3, room for one token each: A is w0, and B is w1 (next) or w2 or w3 (random), after
    # which w1 is put back and makes an instance alone, with w2 or w3; the same with documents exchanged.
    shards = write_shards(numbered_text([1, 1], [1, 1]), NUMBERED, tmp_path / "shards")
    seen = Counter()
    for epoch in range(400):
        for sequence in one_epoch(made_from(shards, seq_length=5), epoch):
            assert original(sequence)[[0, 2, 4]].tolist() == [CLS, SEP, SEP]
            assert sequence.token_type_ids.tolist() == [0, 0, 0, 1, 1]
            assert len(sequence.masked_positions) == 1
            seen[(*(original(sequence)[[1, 3]] - 5).tolist(), sequence.next_sentence_label)] += 1
    random = {(a, b, 1) for a, b in [(0, 2), (0, 3), (1, 2), (1, 3), (2, 0), (2, 1), (3, 0), (3, 1)]}
    assert set(seen) == {(0, 1, 0), (2, 3, 0), *random}
    assert 160 < seen[0, 1, 0] < 240 and 160 < seen[2, 3, 0] < 240
    assert all(60 < seen[pair] < 140 for pair in random)


def test_sequences_are_cls_a_sep_b_sep_within_the_length(shards):
    for sequence in one_epoch(made_from(shards, seq_length=32), 0):
        ids = original(sequence)
        n = len(ids)
        assert 5 <= n <= 32
        assert ids[0] == CLS and ids[-1] == SEP and (ids == SEP).sum() == 2
        first = int(np.flatnonzero(ids == SEP)[0])
        assert sequence.token_type_ids.tolist() == [0] * (first + 1) + [1] * (n - first - 1)
        assert {array.dtype for array in sequence[:4]} == {np.dtype(np.int32)}


def test_is_next_is_what_follows_and_not_next_is_from_another_document(shards):
    document_of = np.repeat(np.arange(shards.n_documents), shards.document_lengths)
    labels = Counter()
    for epoch in range(3):
        for sequence in one_epoch(made_from(shards, seq_length=48), epoch):
            a, b = (half - 5 for half in halves(sequence))
            assert (np.diff(a) == 1).all() and (np.diff(b) == 1).all()
            labels[sequence.next_sentence_label] += 1
            if sequence.next_sentence_label == 0:
                assert document_of[a[0]] == document_of[b[0]] and a[-1] < b[0]
                if len(a) + len(b) < 45:
                    assert b[0] == a[-1] + 1  # nothing was cut, so nothing lies between
            else:
                assert document_of[a[0]] != document_of[b[0]]
    assert set(labels) == {0, 1}


def test_half_of_the_pairs_are_true_next_spans(tmp_path):
    # Sentences of one token: no chunk has a single sentence but the last of a document.
    shards = write_shards(numbered_text(*[[1] * 300] * 18), NUMBERED, tmp_path / "shards")
    labels = [
        sequence.next_sentence_label
        for epoch in range(12)
        for sequence in one_epoch(made_from(shards, seq_length=23), epoch)
    ]
    assert len(labels) > 4_000
    assert abs(np.mean(labels) - 0.5) < 0.03


def test_a_single_long_sentence_always_gets_a_random_next(tmp_path):
    shards = write_shards(numbered_text([140], [140, 140], [140]), NUMBERED, tmp_path / "shards")
    found = list(one_epoch(made_from(shards, seq_length=128, short_seq_prob=0), 0))
    assert [sequence.next_sentence_label for sequence in found] == [1] * 4
    assert {len(sequence.input_ids) for sequence in found} == {128}


def test_half_of_the_short_pairs_are_in_order_however_long_the_sentences(tmp_path):
    shards = write_shards(numbered_text(*[[40] * 20] * 18), NUMBERED, tmp_path / "shards")
    found = [s for epoch in range(4) for s in one_epoch(made_from(shards, seq_length=32), epoch)]
    assert len(found) > 2_000
    # A random short target that one part of a sentence fills still always gets a random B.
    assert 0.46 < np.mean([sequence.next_sentence_label for sequence in found]) < 0.58


def test_a_long_sentence_is_cut_into_nearly_equal_parts():
    assert cut_sentences(np.array([4, 14, 15, 24]), longest=4).tolist() == [4, 7, 10, 14, 15, 18, 21, 24]


def test_sentences_of_a_random_next_are_put_back(tmp_path):
    # With sentences of one token nothing is cut, so every token comes up in an A or a true B: none is lost.
    shards = write_shards(numbered_text(*[[1] * 50] * 6), NUMBERED, tmp_path / "shards")
    for epoch in range(5):
        used = Counter()
        for sequence in one_epoch(made_from(shards, seq_length=19), epoch):
            a, b = halves(sequence)
            used.update(a.tolist())
            if sequence.next_sentence_label == 0:
                used.update(b.tolist())
        assert used == Counter(range(5, 305))


def test_one_in_ten_targets_is_short(tmp_path):
    shards = write_shards(numbered_text(*[[1] * 300] * 18), NUMBERED, tmp_path / "shards")
    lengths = [
        len(s.input_ids) for epoch in range(8) for s in one_epoch(made_from(shards, seq_length=43), epoch)
    ]
    # The last chunk of a document is short too: one of about ten pairs.
    assert 0.12 < np.mean(np.array(lengths) < 43) < 0.25
    full = [len(s.input_ids) for s in one_epoch(made_from(shards, seq_length=43, short_seq_prob=0), 0)]
    assert np.mean(np.array(full) < 43) < 0.14
    short = [len(s.input_ids) for s in one_epoch(made_from(shards, seq_length=43, short_seq_prob=1), 0)]
    assert min(short) == 5 and 20 < np.mean(short) < 26  # uniform from 2 to 40, and three special tokens
    assert np.quantile(short, 0.1) < 11 and np.quantile(short, 0.9) > 35


def google_truncates(a, b, room):
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@given(st.integers(1, 300), st.integers(1, 300), st.integers(2, 200), st.integers(0, 2**32))
def test_truncation_leaves_the_lengths_that_one_by_one_removal_leaves(a, b, room, seed):
    cut = truncated(Spans(1_000, a, 5_000, b, 0), room, Random(seed))
    assert (cut.a_length, cut.b_length) == google_truncates(a, b, room)
    assert 1_000 <= cut.a_begin <= 1_000 + a - cut.a_length
    assert 5_000 <= cut.b_begin <= 5_000 + b - cut.b_length


def test_truncation_takes_front_or_back_with_equal_chance():
    rng = Random(0)
    fronts = [truncated(Spans(0, 30, 0, 10, 0), 20, rng).a_begin for _ in range(4_000)]
    assert abs(np.mean(fronts) - 10) < 0.15  # of 20 tokens cut
    assert abs(np.var(fronts) - 5) < 0.5  # 20 fair coins


def test_masking_rates_are_fifteen_percent_and_eighty_ten_ten(shards):
    tokens = masked = 0
    seen = Counter()
    random_tokens = []
    for epoch in range(30):
        for sequence in one_epoch(made_from(shards, seq_length=128), epoch):
            tokens += len(sequence.input_ids)
            masked += len(sequence.masked_positions)
            visible = sequence.input_ids[sequence.masked_positions]
            kind = np.where(visible == MASK, 0, np.where(visible == sequence.masked_labels, 1, 2))
            seen.update(kind.tolist())
            random_tokens += visible[kind == 2].tolist()
            count = max(1, round(len(sequence.input_ids) * 0.15))
            assert len(sequence.masked_positions) == count
    assert abs(masked / tokens - 0.15) < 0.005
    shares = np.array([seen[0], seen[1], seen[2]]) / masked
    assert masked > 10_000 and np.abs(shares - [0.8, 0.1, 0.1]).max() < 0.01
    # The random token is any of the vocabulary: evenly spread, special ones not left out.
    assert abs(np.mean(random_tokens) / (WORDS + 5) - 0.5) < 0.03
    assert np.quantile(random_tokens, 0.1) < 0.13 * WORDS and np.quantile(random_tokens, 0.9) > 0.87 * WORDS


def test_random_tokens_come_from_the_whole_vocabulary_special_tokens_too(tmp_path):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "b"])
    shards = write_shards(["a b a b a b a b"] * 400, tokenizer, tmp_path / "shards")
    options = InstanceOptions(seq_length=66, next_sentence=False, mask_rates=(0, 0, 1), masked_lm_prob=0.5)
    seen = Counter()
    for epoch in range(5):
        for sequence in one_epoch(Instances(shards, [0], tokenizer, options), epoch):
            seen.update(sequence.input_ids[sequence.masked_positions].tolist())
    shares = np.array([seen[token] for token in range(7)]) / seen.total()
    assert np.abs(shares - 1 / 7).max() < 0.015


@pytest.mark.parametrize(
    "rates", [(0.8, 0.1, 0.1), (1, 0, 0), (0.8, 0, 0.2), (0.8, 0.2, 0), (0, 0.2, 0.8), (0, 0, 1)]
)
def test_the_rates_of_table_8_are_kept(shards, rates):
    seen = np.zeros(3)
    for epoch in range(8):
        for sequence in one_epoch(made_from(shards, seq_length=64, mask_rates=rates), epoch):
            visible = sequence.input_ids[sequence.masked_positions]
            same_token = visible == sequence.masked_labels
            seen += [(visible == MASK).sum(), same_token.sum(), (~same_token & (visible != MASK)).sum()]
    assert np.abs(seen / seen.sum() - rates).max() < 0.02


@pytest.mark.thorough
def test_special_tokens_are_never_predicted_and_every_other_position_is_as_often(shards):
    hits, chances = np.zeros(64), np.zeros(64)
    for epoch in range(80):
        for sequence in one_epoch(made_from(shards, seq_length=64), epoch):
            ids = original(sequence)
            assert not np.isin(sequence.masked_labels, [PAD, UNK, CLS, SEP, MASK]).any()
            assert (np.diff(sequence.masked_positions) > 0).all()
            if len(ids) == 64:
                chances[: len(ids)] += ids >= 5
                hits[sequence.masked_positions] += 1
    rate = hits[1:62] / chances[1:62]
    assert chances[1] > 3_000
    assert np.abs(rate - 10 / 61).max() < 0.035  # 10 of 61; five standard deviations


def test_most_predictions_default_to_a_share_of_the_length(shards):
    assert InstanceOptions(seq_length=128).most_predictions == 20
    assert InstanceOptions(seq_length=512).most_predictions == 77
    assert InstanceOptions(seq_length=100, masked_lm_prob=0.07).most_predictions == 7
    counts = [len(s.masked_positions) for s in one_epoch(made_from(shards, max_predictions_per_seq=3), 0)]
    assert max(counts) == 3
    everything = next(one_epoch(made_from(shards, seq_length=16, masked_lm_prob=1.0), 0))
    assert len(everything.masked_positions) == len(everything.input_ids) - 3


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """Words of one to four pieces."""
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *"abcd", *(f"##{letter}" for letter in "abcd")])
    rng = Random(1)
    text = [" ".join("".join(rng.choices("abcd", k=rng.randint(1, 4))) for _ in range(9)) for _ in range(400)]
    for border in range(20, 400, 20):
        text[border] = None
    return tokenizer, write_shards(text, tokenizer, tmp_path_factory.mktemp("p") / "shards")


def test_whole_words_are_predicted_or_left_alone(pieces):
    tokenizer, shards = pieces
    options = InstanceOptions(seq_length=64, whole_word_mask=True)
    sizes, masked, wanted = Counter(), 0, 0
    for sequence in one_epoch(Instances(shards, np.arange(shards.n_documents), tokenizer, options), 0):
        ids = original(sequence)
        special = (ids == CLS) | (ids == SEP)
        # A word begins at a piece without ##, at a special token, and behind a special token.
        begins = ~tokenizer.continuation[ids] | special | np.concatenate([[False], special[:-1]])
        word = np.cumsum(begins)
        chosen = np.zeros(len(ids), bool)
        chosen[sequence.masked_positions] = True
        for number in set(word[chosen]):
            assert chosen[word == number].all()
            sizes[int((word == number).sum())] += 1
        assert not chosen[special].any()
        assert chosen.sum() <= round(len(ids) * 0.15)
        masked, wanted = masked + chosen.sum(), wanted + round(len(ids) * 0.15)
    assert set(sizes) == {1, 2, 3, 4}
    assert masked / wanted > 0.97  # a short word fills up nearly every time


def test_whole_word_mode_draws_what_to_do_for_each_piece(pieces):
    tokenizer, shards = pieces
    options = InstanceOptions(seq_length=64, whole_word_mask=True, mask_rates=(0.5, 0.5, 0))
    mixed = 0
    for sequence in one_epoch(Instances(shards, np.arange(shards.n_documents), tokenizer, options), 0):
        masked = sequence.input_ids[sequence.masked_positions] == MASK
        inside = np.diff(sequence.masked_positions) == 1
        inside &= tokenizer.continuation[sequence.masked_labels[1:]]
        mixed += int((masked[1:] != masked[:-1])[inside].sum())
    assert mixed > 50


def test_without_next_sentences_the_spans_of_an_epoch_are_the_text(shards):
    for epoch in range(2):
        spans = []
        for sequence in one_epoch(made_from(shards, seq_length=24, next_sentence=False), epoch):
            ids = original(sequence)
            assert ids[0] == CLS and ids[-1] == SEP and len(ids) <= 24
            assert not sequence.token_type_ids.any() and sequence.next_sentence_label == -1
            spans.append(ids[1:-1].tolist())
        assert sorted(itertools.chain(*spans)) == list(range(5, 5 + shards.n_tokens))
        assert all(span == list(range(span[0], span[0] + len(span))) for span in spans)


def test_left_to_right_predicts_every_next_token_and_masks_none(shards):
    spans = []
    for sequence in one_epoch(made_from(shards, seq_length=24, left_to_right=True), 0):
        n = len(sequence.input_ids)
        assert sequence.masked_positions.tolist() == list(range(n - 1))
        assert sequence.masked_labels.tolist() == sequence.input_ids[1:].tolist()
        assert sequence.input_ids[0] == CLS and sequence.input_ids[-1] == SEP
        assert not sequence.token_type_ids.any() and sequence.next_sentence_label == -1
        spans.append(sequence.input_ids[1:-1].tolist())
    assert sorted(itertools.chain(*spans)) == list(range(5, 5 + shards.n_tokens))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=8), min_size=2, max_size=6),
    st.integers(5, 40),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**40),
)
def test_any_documents_give_proper_instances(tmp_path_factory, documents, seq_length, pairs, words, seed):
    folder = tmp_path_factory.mktemp("any") / "shards"
    shards = write_shards(numbered_text(*documents), NUMBERED, folder)
    pairs = pairs and max(map(len, documents)) > 1
    instances = made_from(
        shards, seq_length=seq_length, next_sentence=pairs, whole_word_mask=words, seed=seed
    )
    found = list(one_epoch(instances, seed % 3))
    assert shards.n_tokens == sum(map(sum, documents))
    assert found
    for sequence in found:
        ids = original(sequence)
        n = len(ids)
        assert (5 if pairs else 3) <= n <= seq_length
        assert len(sequence.token_type_ids) == n and (np.diff(sequence.token_type_ids) >= 0).all()
        assert (np.flatnonzero(ids < 5) == np.flatnonzero((ids == CLS) | (ids == SEP))).all()
        untouched = np.setdiff1d(np.arange(n), sequence.masked_positions)
        assert (sequence.input_ids[untouched] == ids[untouched]).all()
        assert 1 <= len(sequence.masked_positions) <= n - (3 if pairs else 2)
        assert (sequence.masked_labels >= 5).all()
        parts = halves(sequence) if pairs else (ids[1:-1],)
        assert all(len(part) and (np.diff(part) == 1).all() for part in parts)


def test_the_same_seed_gives_the_same_instances_and_another_others(shards):
    first = [as_key(s) for s in one_epoch(made_from(shards, seed=3, seq_length=32), 1)]
    assert first == [as_key(s) for s in one_epoch(made_from(shards, seed=3, seq_length=32), 1)]
    for other in (
        one_epoch(made_from(shards, seed=4, seq_length=32), 1),
        one_epoch(made_from(shards, seed=3, seq_length=32), 2),
    ):
        assert len(set(first) & {as_key(s) for s in other}) < 0.05 * len(first)


def test_an_instance_depends_on_its_document_and_not_on_its_neighbours(shards):
    options = {"seq_length": 32, "next_sentence": False}
    everything = Counter(as_key(s) for s in one_epoch(made_from(shards, **options), 0))
    for documents in ([7], [30, 2, 7]):
        some = Counter(as_key(s) for s in one_epoch(made_from(shards, documents, **options), 0))
        assert some and some <= everything


@pytest.mark.thorough
def test_a_stream_goes_on_from_any_position_as_if_it_had_never_stopped(shards, monkeypatch):
    monkeypatch.setattr(instances_module, "BLOCK_TOKENS", 700)
    instances = made_from(shards, seq_length=40)
    begin = Position(0, 0, 0)
    whole = list(itertools.islice(instances.stream(), 400))
    assert whole[-1][1].epoch >= 2 and {position.block for _, position in whole} >= {0, 1, 2, 3}
    for stopped in range(0, 390):
        position = whole[stopped - 1][1] if stopped else begin
        assert type(position.offset) is int
        resumed = itertools.islice(made_from(shards, seq_length=40).stream(position), 3)
        for (a, after_a), (b, after_b) in zip(resumed, whole[stopped:], strict=False):
            assert same(a, b) and after_a == after_b


def test_an_epoch_is_shuffled_and_blocks_change_nothing_but_the_order(shards, monkeypatch):
    one = list(one_epoch(made_from(shards, seq_length=40), 0))
    firsts = [int(halves(sequence)[0][0]) for sequence in one]
    assert len(firsts) > 100
    assert abs(np.corrcoef(np.arange(len(firsts)), firsts)[0, 1]) < 0.25
    monkeypatch.setattr(instances_module, "BLOCK_TOKENS", 700)
    many = [as_key(sequence) for sequence in one_epoch(made_from(shards, seq_length=40), 0)]
    one = [as_key(sequence) for sequence in one]
    assert one != many and sorted(one) == sorted(many)


def test_static_masks_come_back_after_dupe_factor_epochs_in_another_order(shards):
    instances = made_from(shards, seq_length=40, dupe_factor=2)
    epochs = [[as_key(s) for s in one_epoch(instances, epoch)] for epoch in range(4)]
    assert sorted(epochs[0]) == sorted(epochs[2]) and sorted(epochs[1]) == sorted(epochs[3])
    assert epochs[0] != epochs[2]
    assert sorted(epochs[0]) != sorted(epochs[1])
    dynamic = made_from(shards, seq_length=40)
    assert sorted(map(as_key, one_epoch(dynamic, 0))) == sorted(epochs[0])
    assert sorted(map(as_key, one_epoch(dynamic, 2))) != sorted(epochs[2])


def test_random_next_spans_come_from_the_same_part_of_the_split(shards):
    train, held_out = split_documents(shards.n_documents, 0.2)
    document_of = np.repeat(np.arange(shards.n_documents), shards.document_lengths)
    for documents in (train, held_out):
        for sequence in one_epoch(made_from(shards, documents, seq_length=32), 0):
            for half in halves(sequence):
                assert set(document_of[half - 5]) <= set(documents)


def test_sequences_are_read_only_views(shards):
    sequence = next(one_epoch(made_from(shards), 0))
    for array in sequence[:4]:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    "options, words",
    [
        ({"seq_length": 4}, "seq_length=4 is not possible; give a length from 5 to 65,535"),
        ({"seq_length": 1 << 16}, "seq_length=65536"),
        ({"short_seq_prob": 1.5}, "short_seq_prob=1.5"),
        ({"masked_lm_prob": 0}, "masked_lm_prob=0"),
        ({"max_predictions_per_seq": 0}, "max_predictions_per_seq=0"),
        ({"mask_rates": (0.8, 0.1)}, "mask_rates=.*sum to 1"),
        ({"mask_rates": (0.8, 0.1, 0.2)}, "mask_rates=.*sum to 1"),
        ({"mask_rates": (1.1, 0.0, -0.1)}, "mask_rates=.*sum to 1"),
        ({"dupe_factor": -1}, "dupe_factor=-1"),
    ],
)
def test_impossible_options_are_named_with_their_value(options, words):
    with pytest.raises(InputError, match=words):
        InstanceOptions(**options)


def test_texts_that_give_no_instances_are_refused(shards, tmp_path):
    with pytest.raises(InputError, match="One document alone has no other"):
        made_from(shards, [3])
    assert list(one_epoch(made_from(shards, [3], next_sentence=False), 0))
    assert list(one_epoch(made_from(shards, [3], left_to_right=True), 0))
    with pytest.raises(InputError, match="gives no instance"):
        made_from(shards, [])
    with pytest.raises(InputError, match="are not all there; shards hold 0 to 39"):
        made_from(shards, [0, 40])
    lines = write_shards(numbered_text([5], [6], [7]), NUMBERED, tmp_path / "lines")
    with pytest.raises(InputError, match="No document has two sentences"):
        made_from(lines)
    with pytest.raises(InputError, match="were made with another vocabulary"):
        Instances(shards, [0, 1], Tokenizer([*SPECIAL_TOKENS, "a"]))


@pytest.mark.parametrize("position", [Position(0, 99, 0), Position(0, 0, 10_000), Position(0, 0, -1)])
def test_a_position_of_another_text_is_refused(shards, position):
    with pytest.raises(InputError, match="does not exist: there are"):
        next(made_from(shards).stream(position))


def test_a_split_holds_out_documents_evenly_and_never_too_few():
    train, held_out = split_documents(1_381)
    assert len(held_out) == 69 and len(train) == 1_312
    assert sorted([*train, *held_out]) == list(range(1_381))
    assert set(np.diff(held_out)) == {20, 21}
    assert [part.tolist() for part in split_documents(4)] == [[0, 2], [1, 3]]
    assert [part.tolist() for part in split_documents(2, next_sentence=False)] == [[0], [1]]
    assert [len(part) for part in split_documents(10, 0.99)] == [2, 8]
    needed = "and 4 are needed for next sentences: 2 to train on and 2 to hold out; give"
    continuous = r"layout='continuous' \(the text is cut into documents\)"
    for text, advice in (
        ("0 documents", continuous),
        ("1 document", rf"layout='documents' \(each line is one\) or {continuous}"),
        ("3 documents", f"{continuous}, or set next_sentence=False"),
    ):
        with pytest.raises(InputError, match=rf"^The text is {text}, {needed} .* {advice}\.$"):
            split_documents(int(text[0]))
    with pytest.raises(InputError, match="1 document, and 2 are needed: 1 to train on and 1 to hold out;"):
        split_documents(1, next_sentence=False)
    with pytest.raises(InputError, match="held_out=1"):
        split_documents(100, 1)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_instances_are_made_faster_than_any_cpu_trains_on_them(tmp_path):
    stream = [s for s in sentences(embedded_corpus(), "sentences")]
    words = Counter(" ".join(s for s in stream if s).lower().split())
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *(word for word, _ in words.most_common(8_000))])
    shards = write_shards(stream, tokenizer, tmp_path / "shards")
    for seq_length, least in ((32, 15_000), (128, 6_000)):
        options = InstanceOptions(seq_length=seq_length)
        instances = Instances(shards, np.arange(shards.n_documents), tokenizer, options)
        began = time.process_time()  # others may be at work, and take from the clock
        count = sum(1 for _ in one_epoch(instances, 0))
        rate = count / (time.process_time() - began)
        print(f"seq_length={seq_length}: {count:,} instances, {rate:,.0f} a second")
        assert rate > least
