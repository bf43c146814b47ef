"""Dropout as a function of its place: known bits, statistical quality, independence of the batch's layout."""

import dataclasses
import json

import numpy as np
import pytest
from engines import ENGINES
from hypothesis import given, strategies as st
from paths import GOLDEN as FOLDER

from minibert import engines
from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.core.gradcheck.cases import SIZES, config_of
from minibert.core.ops import dropout_bits
from minibert.gradcheck.drawn import random_parameters, random_task_batch
from minibert.model import heads
from minibert.model.ops import Ops
from minibert.model.params import Head

GOLDEN = json.loads((FOLDER / "dropout.json").read_text(encoding="utf-8"))
# Inputs are fixed, so a test that passes once passes always; a good hash fails one bound in 16,000.
SIGMAS = 4


def sequence(length):
    """Tokens of no interest."""
    return Sequence(np.full(length, 7), np.zeros(length, int), np.empty(0, int), np.empty(0, int))


def kept(batch, *, rate=0.5, seed=0, step=0, site=0, columns=64, ops=None):
    """(T, columns) bool: what survives, by the public operations alone."""
    ops = ops or Ops()
    drop = ops.dropout(batch, rate, 0.0, seed, step)
    return np.asarray(ops.dropout_mask(drop, site, columns, np.float32)) > 0


def attention_kept(batch, *, rate=0.5, seed=0, step=0, site=0, heads=1, ops=None):
    """(T, heads, longest sequence) bool: which probabilities survive.

    With q = k = 0 attention is uniform, and with one-hot values the result is the row of multipliers itself.
    """
    ops = ops or Ops()
    drop = ops.dropout(batch, 0.0, rate, seed, step)
    longest = int(np.diff(batch.cu_seqlens).max())
    zeros = np.zeros((batch.T, heads, longest))
    values = zeros + np.eye(longest)[batch.positions][:, None]
    y, _ = ops.attention(zeros, zeros, values, batch.cu_seqlens, False, drop, site)
    return np.asarray(y) > 0


def at(*places):
    """A batch whose sequences have these numbers, each as long as its place: (number, length)."""
    batch = Batch.pack([sequence(length) for _, length in places])
    return dataclasses.replace(batch, sequence_index=np.array([number for number, _ in places], np.uint32))


SQUARE = at(*((number, 64) for number in range(64)))  # 4,096 rows


def as_text(bits):
    """Kept as 1, dropped as 0."""
    return "".join("01"[int(bit)] for bit in bits)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("record", GOLDEN["dropout_mask"])
def test_dropped_elements_are_the_recorded_ones(engine, record):
    seed, step, number, position, site, rate, bits = record
    place = {"seed": seed, "step": step, "site": site, "rate": rate}
    found = kept(at((number, position + 1)), **place, columns=len(bits), ops=engines.create(engine))
    assert as_text(found[position]) == bits


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("record", GOLDEN["attention"])
def test_dropped_probabilities_are_the_recorded_ones(engine, record):
    seed, step, number, position, site, head, rate, bits = record
    place = {"seed": seed, "step": step, "site": site, "rate": rate}
    batch = at((number, max(position + 1, len(bits))))
    found = attention_kept(batch, **place, heads=head + 1, ops=engines.create(engine))
    assert as_text(found[position, head, : len(bits)]) == bits


def test_keys_and_mixing_are_the_recorded_ones():
    words, mixed = np.array(GOLDEN["mix"], np.uint32).T
    assert np.array_equal(dropout_bits.mix(np, words), mixed)
    for seed, step, number, position, key in GOLDEN["row_key"]:
        assert dropout_bits.row_keys(np, seed, step, [number], [position]).tolist() == [key]


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_rate_is_kept_in_both_halves_of_the_hash(rate):
    mask = kept(SQUARE, rate=rate, columns=256)
    for half in (mask[:, 0::2], mask[:, 1::2]):
        dropped = half.size - half.sum()
        assert abs(dropped - rate * half.size) < SIGMAS * np.sqrt(half.size * rate * (1 - rate))


@pytest.mark.parametrize("axis", [0, 1], ids=["columns", "rows"])
def test_no_row_and_no_column_is_favoured(axis):
    rate = 0.1
    mask = kept(SQUARE, rate=rate, columns=256)
    n, count = mask.shape[axis], mask.shape[1 - axis]
    chi_square = ((mask.sum(axis) - n * (1 - rate)) ** 2 / (n * rate * (1 - rate))).sum()
    assert abs(chi_square - count) < SIGMAS * np.sqrt(2 * count)  # mean and variance of chi-square: n and 2n


def test_draws_are_uniform_over_their_range():
    # What is dropped at one rate is dropped at any higher one: the draw stays, only the threshold moves.
    rates = np.arange(1, 16) / 16
    masks = np.stack([kept(SQUARE, rate=rate, columns=128) for rate in rates])
    assert not (masks[1:] & ~masks[:-1]).any()
    bins = np.bincount(masks.sum(0).ravel(), minlength=16)
    expected = masks[0].size / 16
    assert ((bins - expected) ** 2 / expected).sum() < 15 + SIGMAS * np.sqrt(2 * 15)


def test_every_draw_of_the_range_has_its_share():
    masks = [kept(SQUARE, rate=draw / dropout_bits.DRAWS, columns=256) for draw in range(1000, 1005)]
    drawn = [int((before & ~after).sum()) for before, after in zip(masks, masks[1:], strict=False)]
    expected = SQUARE.T * 256 / dropout_bits.DRAWS
    assert all(abs(one - expected) < SIGMAS * np.sqrt(expected) for one in drawn)


def correlation(a, b):
    """Pearson's, in units of its standard deviation 1/sqrt(n) for independent draws."""
    a, b = a.ravel().astype(float), b.ravel().astype(float)
    return np.corrcoef(a, b)[0, 1] * np.sqrt(len(a))


@pytest.mark.representatives(rate=0.1)
@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_neighbours_are_uncorrelated(lag, rate):
    mask = kept(SQUARE, rate=rate, columns=256).reshape(64, 64, 256)
    pairs = {"columns": (mask[..., :-lag], mask[..., lag:])}
    if lag < 64:
        pairs |= {"positions": (mask[:, :-lag], mask[:, lag:]), "sequences": (mask[:-lag], mask[lag:])}
    for name, (one, other) in pairs.items():
        assert abs(correlation(one, other)) < SIGMAS, name


@pytest.mark.parametrize("lag", [1, 2, 16, 2**16, 2**31])
@pytest.mark.parametrize("word", ["seed", "step", "site"])
def test_other_seeds_steps_and_sites_are_uncorrelated(word, lag):
    for first in (0, 1, 12_345):
        one, other = (kept(SQUARE, rate=0.1, **{word: value}) for value in (first, first + lag))
        assert abs(correlation(one, other)) < SIGMAS


class Watching(Ops):
    """Notes the sites at which it draws."""

    def __init__(self):
        super().__init__()
        self.attended, self.masked = [], []

    def attention(self, *given):
        self.attended.append(given[-1])
        return super().attention(*given)

    def dropout_mask(self, drop, site, columns, dtype):
        self.masked.append(site)
        return super().dropout_mask(drop, site, columns, dtype)


@pytest.mark.parametrize(
    ("head", "behind"), [(Head("classify", 3), [7]), (Head("tag", 5, lstm=True), [8, 9, 7])], ids=str
)
def test_no_two_places_of_a_model_share_their_draws(head, behind):
    rng = np.random.default_rng(0)
    config = config_of(SIZES["ugly"])
    batch, ops = random_task_batch(SIZES["ugly"], head, rng), Watching()
    drop = ops.dropout(batch, 0.1, 0.1, 0, 0)
    heads.logits(ops, config, head, random_parameters(config, rng, head).tree, batch, drop)
    assert config.L == 2 and ops.attended == [1, 4]
    assert ops.masked == [0, 2, 3, 5, 6, *behind]


def test_weak_mixing_is_noticed(monkeypatch):
    monkeypatch.setattr(dropout_bits, "mix", lambda xp, x: x)
    found = [abs(correlation(kept(SQUARE), kept(SQUARE, step=1 << bit))) for bit in range(32)]
    assert max(found) > SIGMAS


def test_heads_queries_and_keys_are_uncorrelated():
    mask = attention_kept(SQUARE, rate=0.1, heads=4).reshape(64, 64, 4, 64)
    for axis in range(mask.ndim):
        one = np.take(mask, range(mask.shape[axis] - 1), axis)
        other = np.take(mask, range(1, mask.shape[axis]), axis)
        assert abs(correlation(one, other)) < SIGMAS
    query, key = np.triu_indices(64, 1)
    mask = mask.swapaxes(2, 3)
    assert abs(correlation(mask[:, query, key], mask[:, key, query])) < SIGMAS


def test_attention_shares_no_bits_with_the_other_sites():
    heads = attention_kept(SQUARE, heads=2, site=5)
    for head in (0, 1):
        assert abs(correlation(heads[:, head], kept(SQUARE, site=5))) < SIGMAS


def test_each_bit_into_mix_flips_half_of_those_out():
    n = 1 << 15
    words = np.random.default_rng(0).integers(1 << 32, size=n, dtype=np.uint32)
    flipped = words[:, None] ^ (np.uint32(1) << np.arange(32, dtype=np.uint32))
    changes = dropout_bits.mix(np, words[:, None]) ^ dropout_bits.mix(np, flipped)
    share = np.array([((changes >> np.uint32(bit)) & 1).mean(0) for bit in range(32)])
    # 1,024 shares, of which the furthest may be a little over 4 sigma from a half.
    assert np.abs(share - 0.5).max() < 5 * 0.5 / np.sqrt(n)


def test_mix_loses_nothing():
    words = np.arange(1 << 18, dtype=np.uint32) * np.uint32(4001)
    assert len(np.unique(dropout_bits.mix(np, words))) == len(words)


@pytest.mark.parametrize("word", ["seed", "step", "site"])
def test_every_bit_of_a_counter_changes_half_of_what_is_dropped(word):
    reference = kept(SQUARE, rate=0.5)
    for bit in range(32):
        changed = (kept(SQUARE, rate=0.5, **{word: 1 << bit}) != reference).mean()
        assert abs(changed - 0.5) < SIGMAS * 0.5 / np.sqrt(reference.size), bit


def test_every_bit_of_a_sequence_s_number_changes_half_of_what_is_dropped():
    reference = kept(at((0, 64)), columns=1024)
    for bit in range(32):
        changed = (kept(at((1 << bit, 64)), columns=1024) != reference).mean()
        assert abs(changed - 0.5) < SIGMAS * 0.5 / np.sqrt(reference.size), bit


def shared_stretches(mask, width=64):
    """How many stretches of `width` columns occur more than once, anywhere in any row."""
    windows = np.lib.stride_tricks.sliding_window_view(mask, width, axis=1).reshape(-1, width)
    return len(windows) - len(np.unique(np.packbits(windows, axis=1), axis=0))


def test_rows_never_share_a_stretch_of_bits():
    # Of some 10^5 stretches of 64 fair bits, the chance that any two are equal is 10^-9.
    assert shared_stretches(kept(SQUARE, columns=128)[:1536]) == 0


def test_keys_whose_counters_overlap_still_share_no_stretch():
    # First halves that are one counter apart read the same counters; the second half tells them apart.
    first = (np.arange(64, dtype=np.uint32) * np.uint32(dropout_bits.GOLDEN)).reshape(-1, 1)
    second = dropout_bits.mix(np, np.arange(64, dtype=np.uint32)).reshape(-1, 1)
    assert shared_stretches(dropout_bits.keep(np, np.hstack([first, second]), 256, 0.5)) == 0
    assert shared_stretches(dropout_bits.keep(np, np.hstack([first, 0 * second]), 256, 0.5)) > 1000


@given(st.floats(0, 1, exclude_max=True))
def test_expectation_is_exact_at_the_rounded_rate(rate):
    survivors = dropout_bits.DRAWS - dropout_bits.threshold(rate)
    assert 0 < survivors <= dropout_bits.DRAWS
    assert dropout_bits.kept_scale(rate) * survivors == pytest.approx(dropout_bits.DRAWS, rel=1e-15)
    assert abs(dropout_bits.threshold(rate) / dropout_bits.DRAWS - rate) <= 1 / dropout_bits.DRAWS


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multipliers_are_zero_or_the_inverse_of_what_survives(dtype):
    ops = Ops()
    mask = ops.dropout_mask(ops.dropout(SQUARE, 0.1, 0.0, 0, 0), 0, 64, dtype)
    assert mask.dtype == dtype
    assert np.unique(mask).tolist() == [0, np.dtype(dtype).type(65536 / (65536 - 6554))]


def test_there_is_no_dropout_at_rate_zero():
    assert Ops().dropout(SQUARE, 0.0, 0.0, 0, 0) is None
    drop = Ops().dropout(SQUARE, 0.0, 0.1, 0, 0)
    assert (drop.rate, drop.attention_rate) == (0.0, 0.1)


def test_hidden_rate_alone_leaves_attention_alone_and_the_reverse():
    config = BertConfig(vocab_size=9, hidden_size=8, num_attention_heads=2, intermediate_size=8)
    x = np.random.default_rng(0).standard_normal((64, 8))
    params = {name: np.zeros((8, 8)) for name in ("in_weight", "out_weight")}
    params |= {"in_bias": np.ones(8), "out_bias": np.ones(8), "gamma": np.ones(8), "beta": np.zeros(8)}
    batch, qkv = at((0, 64)), x.reshape(64, 2, 4)
    for hidden, attention in ((0.5, 0.0), (0.0, 0.5)):
        drop = Ops().dropout(batch, hidden, attention, 0, 0)
        blocks = [Ops().feed_forward_block(x, params, config, one, 0)[0] for one in (None, drop)]
        mixed = [Ops().attention(qkv, qkv, qkv, batch.cu_seqlens, False, one, 1)[0] for one in (None, drop)]
        assert np.array_equal(*blocks) == (hidden == 0)
        assert np.array_equal(*mixed) == (attention == 0)


@given(st.permutations(range(6)))
def test_bits_follow_the_sequence_wherever_it_stands_in_the_batch(order):
    lengths = (1, 2, 7, 13, 7, 31)
    together = at(*enumerate(lengths))
    shuffled = at(*((number, lengths[number]) for number in order))
    masks = {}
    for name, batch in (("together", together), ("shuffled", shuffled)):
        hidden, attention = kept(batch, site=3), attention_kept(batch, site=4, heads=2)
        begins, ends = batch.cu_seqlens[:-1], batch.cu_seqlens[1:]
        for number, begin, end in zip(batch.sequence_index, begins, ends, strict=True):
            masks[name, int(number)] = hidden[begin:end], attention[begin:end]
    for number in order:
        for one, other in zip(masks["together", number], masks["shuffled", number], strict=True):
            assert np.array_equal(one, other)


def test_bits_do_not_depend_on_the_length_the_width_or_the_words():
    short, long = at((5, 7)), at((5, 31))
    assert np.array_equal(kept(short, columns=10), kept(long, columns=33)[:7, :10])
    assert np.array_equal(attention_kept(short), attention_kept(long)[:7, :, :7])
    assert np.array_equal(kept(dataclasses.replace(long, input_ids=long.input_ids + 1)), kept(long))


def test_micro_batches_drop_what_the_whole_batch_drops():
    whole = Batch.pack([sequence(length) for length in (3, 1, 4, 1, 5)])
    for parts in range(1, 6):
        assert np.array_equal(np.concatenate([kept(part) for part in whole.split(parts)]), kept(whole))


def test_seeds_and_steps_may_be_numpy_integers_and_longer_than_32_bits():
    assert np.array_equal(kept(SQUARE, seed=3, step=9), kept(SQUARE, seed=np.int64(3), step=np.int64(9)))
    assert not np.array_equal(kept(SQUARE, seed=3), kept(SQUARE, seed=3 + 2**32))
    assert np.array_equal(kept(SQUARE, seed=3 + 2**40), kept(SQUARE, seed=np.int64(3 + 2**40)))
