"""The learner: which merge comes next, by formula and by brute force, and what the vocabulary looks like."""

import subprocess
import sys
from collections import Counter
from itertools import pairwise
from math import log

import pytest
from hypothesis import given, settings, strategies as st

from minibert.errors import InputError
from minibert.tokenizer import SPECIAL_TOKENS, BasicTokenizer, Tokenizer, count_words, learn_vocab
from minibert.tokenizer.learner import OBJECTIVES

LOW = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
WORD_COUNTS = st.dictionaries(
    st.text("ab", min_size=1, max_size=8), st.integers(1, 9), min_size=1, max_size=8
)


def merges(word_counts, n_pieces=10**6, **options):
    """The learned pieces after special tokens and alphabet."""
    alphabet = {piece for word in word_counts for piece in characters(word)}
    return learn_vocab(word_counts, n_pieces, **options)[5 + len(alphabet) :]


def characters(word):
    return [word[0], *("##" + c for c in word[1:])]


# Brute force: segment the whole text anew for every pair, and measure


def joined(pieces, pair):
    out, i = [], 0
    while i < len(pieces):
        hit = tuple(pieces[i : i + 2]) == pair
        out.append(pair[0] + pair[1][2:] if hit else pieces[i])
        i += 2 if hit else 1
    return out


def log_likelihood(text):
    counts = Counter(piece for pieces, count in text for piece in pieces for _ in range(count))
    return sum(c * log(c / counts.total()) for c in counts.values())


def brute_force_merges(word_counts, objective, min_frequency):
    text = [(characters(word), count) for word, count in word_counts.items()]
    alphabet, made = sorted({piece for pieces, _ in text for piece in pieces}), []
    while True:
        found = []
        pairs = {pair for pieces, _ in text for pair in pairwise(pieces)}
        for pair in sorted(pairs, key=lambda pair: [[*alphabet, *made].index(piece) for piece in pair]):
            after = [(joined(pieces, pair), count) for pieces, count in text]
            n = sum(count * (len(old) - len(new)) for (old, count), (new, _) in zip(text, after, strict=True))
            gain = (
                n
                if objective == "frequency"
                else round((log_likelihood(after) - log_likelihood(text)) * 2**16)
            )
            if n >= min_frequency:
                found.append((gain, pair, after))
        if not found:
            return made
        best = max(gain for gain, _, _ in found)
        _, (left, right), text = next(candidate for candidate in found if candidate[0] == best)
        made.append(left + right[2:])


@settings(deadline=None, max_examples=200)
@given(WORD_COUNTS, st.sampled_from(OBJECTIVES), st.integers(1, 4))
def test_every_merge_is_the_best_by_brute_force(word_counts, objective, min_frequency):
    found = merges(word_counts, objective=objective, min_frequency=min_frequency)
    assert found == brute_force_merges(word_counts, objective, min_frequency)


# The two objectives


def test_frequency_takes_the_most_frequent_pair():
    # "es" and "st" occur 9 times each, "##e" is before "##s"; "lo" and "ow" 7 times, and "##o" is before "l".
    assert merges(LOW, objective="frequency")[:4] == ["##es", "##est", "##ow", "low"]


def test_likelihood_prefers_parts_that_only_occur_together():
    # "a" goes before everything, "q" only before "u": "qu" is rarer than "at" but tells more.
    words = {"qu": 20, "at": 30, "as": 30, "an": 30, "it": 30, "is": 30, "in": 30}
    assert merges(words, objective="frequency")[0] == "an"
    assert merges(words, objective="likelihood")[0] == "qu"


def test_likelihood_is_the_default():
    assert learn_vocab(LOW, 25) == learn_vocab(LOW, 25, objective="likelihood")
    assert learn_vocab(LOW, 25) != learn_vocab(LOW, 25, objective="frequency")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_overlapping_pairs_count_once(objective):
    # x aaa holds the pair aa once, x aaaa twice: 5 + 2 * 4 = 13, not 2 * 5 + 3 * 4 = 22.
    words = {"xaaa": 5, "xaaaa": 4, "yb": 14}
    assert merges(words, objective="frequency")[0] == "yb"
    assert merges(words | {"yb": 12}, objective="frequency")[0] == "##aa"
    assert "xaaaa" in merges(words, objective=objective)


# The vocabulary


@given(WORD_COUNTS, st.randoms(), st.sampled_from(OBJECTIVES))
def test_the_order_of_the_words_does_not_matter(word_counts, random, objective):
    shuffled = random.sample(list(word_counts.items()), len(word_counts))
    assert learn_vocab(dict(shuffled), 100, objective=objective) == learn_vocab(
        word_counts, 100, objective=objective
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_hash_seed_does_not_matter(objective):
    text = "the cat sat on the mat and the rat ate the fat hat that the bat spat at"
    script = (
        "from minibert.tokenizer import *\n"
        f"words = count_words([{text!r}], BasicTokenizer())\n"
        f"print(learn_vocab(words, 60, objective={objective!r}, min_frequency=1))"
    )
    outputs = []
    for seed in "012":
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", script]
        outputs.append(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    assert len(set(outputs)) == 1 and outputs[0]


def test_special_tokens_then_unused_then_the_sorted_alphabet_then_merges():
    vocab = learn_vocab({"ba": 3, "b,": 1}, 12, unused=2)
    assert vocab[:5] == list(SPECIAL_TOKENS)
    assert vocab[5:7] == ["[unused0]", "[unused1]"]
    assert vocab[7:] == ["##,", "##a", "b", "ba"]


def test_characters_get_the_forms_in_which_they_occur():
    assert learn_vocab({"aab": 1, "c": 1}, 100, min_frequency=2)[5:] == ["##a", "##b", "a", "c"]


@given(WORD_COUNTS, st.integers(9, 30))
def test_the_size_is_exact_unless_the_text_has_no_more_pairs(word_counts, vocab_size):
    vocab = learn_vocab(word_counts, vocab_size, min_frequency=1)
    assert len(vocab) == len(set(vocab)) <= vocab_size
    if len(vocab) < vocab_size:
        assert set(word_counts) <= set(vocab)


@given(WORD_COUNTS, st.integers(9, 30))
def test_every_word_learned_from_can_be_written(word_counts, vocab_size):
    tokenizer = Tokenizer(learn_vocab(word_counts, vocab_size))
    assert tokenizer.unk_id not in tokenizer.encode(" ".join(word_counts))


def test_rare_pairs_are_not_merged():
    assert merges({"ab": 2, "cd": 3}, min_frequency=3) == ["cd"]


def test_words_with_rare_characters_are_left_out_under_an_alphabet_limit():
    assert learn_vocab({"ab": 5, "azb": 2}, 100, alphabet_limit=2)[5:] == ["##b", "a", "ab"]


def test_alphabets_of_thousands_of_characters_are_learned_from():
    words = {"a" + chr(code): 2 for code in range(0x4E00, 0x4E00 + 3000)}
    vocab = learn_vocab(words, 7000, alphabet_limit=5000)
    assert len(vocab) == 5 + 3001 + 3000
    assert set(words) <= set(vocab)


def test_words_that_could_never_be_matched_are_left_out():
    assert learn_vocab({"ab": 5, "c" * 201: 9, "d\ud800": 9, "": 3, "e": 0}, 100)[5:] == ["##b", "a", "ab"]


def test_progress_ends_at_the_vocabulary_size():
    calls = []
    words = {f"{a}{b}{c}": 2 for a in "abcdef" for b in "ghijkl" for c in "mnopqr"}
    learn_vocab(words, 170, progress=lambda *call: calls.append(call))
    assert calls == [(64, 170), (128, 170), (170, 170)]


def test_counting_words_is_tokenizing_and_counting():
    lines = ["The cat, the\x0bhat.", "", "THE cat! naïve\u2028cat"]
    tokenizer = BasicTokenizer()
    assert count_words(lines, tokenizer) == Counter(
        word for line in lines for word in tokenizer.tokenize(line)
    )
    assert count_words(["A b"], BasicTokenizer(lower_case=False)) == {"A": 1, "b": 1}


# Bad input


@pytest.mark.parametrize(
    "words, options, sentence",
    [
        ({}, {}, "there is no word"),
        ({"d\ud800": 1}, {}, "there is no word"),
        (LOW, {"vocab_size": 12}, "vocab_size=12 is too small: special tokens and alphabet alone take 16"),
        (LOW, {"objective": "bpe"}, "objective='bpe' is unknown; choose one of likelihood, frequency"),
        (LOW, {"min_frequency": 0}, "min_frequency=0 is too small"),
        (LOW, {"alphabet_limit": -1}, "alphabet_limit=-1 leaves no character"),
        (LOW, {"unused": -1}, "unused=-1 is no number of pieces"),
    ],
)
def test_what_cannot_be_learned_from_is_said_in_a_sentence(words, options, sentence):
    with pytest.raises(InputError, match=sentence):
        learn_vocab(words, **{"vocab_size": 100, **options})
