"""The learner: which merge comes next, as the plain learner finds it, and what the vocabulary looks like."""

import ctypes
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from decimal import Decimal, localcontext
from itertools import pairwise
from math import log

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from marks import examples
from paths import ROOT

from minibert.base.errors import InputError
from minibert.core import wordpiece as simple
from minibert.data.corpus import embedded_corpus
from minibert.tokenizer import SPECIAL_TOKENS, BasicTokenizer, Tokenizer, count_words, learn_vocab, native
from minibert.tokenizer.counting import count_files
from minibert.tokenizer.learner import OBJECTIVES
from minibert.tokenizer.merging import fall, logarithm
from minibert.tokenizer.report import nats_per_byte, segmented

needs_c = pytest.mark.skipif(not native.available(), reason="the C core of the tokenizer is not installed")
CORES = ["python", pytest.param("c", marks=needs_c)]

LOW = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
WORD_COUNTS = st.dictionaries(
    st.text("ab", min_size=1, max_size=8), st.integers(1, 9), min_size=1, max_size=8
)


def merges(word_counts, n_pieces=10**6, **options):
    """The learned pieces after special tokens and alphabet."""
    letters = set("".join(word_counts))
    return learn_vocab(word_counts, n_pieces, **options)[5 + 2 * len(letters) :]


# Against the plain learner


@pytest.mark.parametrize("core", CORES)
@settings(deadline=None, max_examples=examples(200))
@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=10), st.integers(1, 9), min_size=1, max_size=9),
    st.lists(st.text("abcd", min_size=1, max_size=10)),
    st.sampled_from(OBJECTIVES),
    st.integers(1, 4),
    st.integers(12, 60),
)
def test_vocabulary_and_ids_are_those_of_the_plain_learner(
    core, word_counts, others, objective, min_frequency, vocab_size
):
    vocab = simple.learn(word_counts, vocab_size, objective, min_frequency)
    options = {"objective": objective, "min_frequency": min_frequency, "core": core}
    assert learn_vocab(word_counts, vocab_size, **options) == vocab
    tokenizer, ids = Tokenizer(vocab, core=core), {piece: i for i, piece in enumerate(vocab)}
    for word in [*word_counts, *others]:
        assert tokenizer.encode(word, add_special_tokens=False) == simple.encode(word, ids)


@pytest.mark.slow
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_plain_learner_learns_the_same_from_english(core, objective):
    counted = count_files([embedded_corpus()], BasicTokenizer()).words
    words = dict(Counter({word: n for word, n in counted.items() if word.isalpha()}).most_common(400))
    assert learn_vocab(words, 300, objective=objective, core=core) == simple.learn(words, 300, objective)


def log_likelihood(text):
    counts = Counter(piece for pieces, count in text for piece in pieces for _ in range(count))
    return sum(c * log(c / counts.total()) for c in counts.values()), counts


@given(WORD_COUNTS)
def test_the_gain_is_what_joining_a_pair_adds_to_the_log_likelihood(word_counts):
    text = [([word[0], *("##" + c for c in word[1:])], count) for word, count in word_counts.items()]
    before, counts = log_likelihood(text)
    for pair in {pair for pieces, _ in text for pair in pairwise(pieces)}:
        joined = [(simple.join(pieces, pair, "".join(pair)), count) for pieces, count in text]
        n = sum(count * (len(old) - len(new)) for (old, count), (new, _) in zip(text, joined, strict=True))
        assert n == sum(count * list(simple.neighbours(pieces)).count(pair) for pieces, count in text)
        assert simple.gain(pair, n, counts) == pytest.approx(log_likelihood(joined)[0] - before, abs=1e-9)


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
    assert learn_vocab(LOW, 34) == learn_vocab(LOW, 34, objective="likelihood")
    assert learn_vocab(LOW, 34) != learn_vocab(LOW, 34, objective="frequency")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_overlapping_pairs_count_once(objective):
    # x aaa holds the pair aa once, x aaaa twice: 5 + 2 * 4 = 13, not 2 * 5 + 3 * 4 = 22.
    words = {"xaaa": 5, "xaaaa": 4, "yb": 14}
    assert merges(words, objective="frequency")[0] == "yb"
    assert merges(words | {"yb": 12}, objective="frequency")[0] == "##aa"
    assert "xaaaa" in merges(words, objective=objective)


# Two cores


def learned_twice(word_counts, vocab_size, **options):
    return [learn_vocab(word_counts, vocab_size, core=core, **options) for core in ("c", "python")]


@pytest.mark.slow
@needs_c
@settings(deadline=None, max_examples=examples(300))
@given(
    st.dictionaries(
        st.text("abcd", min_size=1, max_size=20),
        st.integers(1, 5) | st.integers(1, 1000) | st.integers(1, 2**50),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from(OBJECTIVES),
    st.integers(1, 10),
)
def test_both_engines_learn_the_same_from_random_words(word_counts, objective, min_frequency):
    c, python = learned_twice(word_counts, 400, objective=objective, min_frequency=min_frequency)
    assert c == python


@pytest.mark.exhaustive
@pytest.mark.slow
@needs_c
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("vocab_size", [2500, 8192])
def test_both_engines_learn_the_same_from_the_embedded_corpus(vocab_size, objective):
    words = count_files([embedded_corpus()], BasicTokenizer()).words
    c, python = learned_twice(words, vocab_size, objective=objective)
    assert len(c) == vocab_size and c == python


@pytest.mark.thorough
@needs_c
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_both_engines_learn_the_same_where_everything_is_equal(objective):
    # Thousands of ties: a word each of two characters that stand nowhere else, or of one that all share.
    for words in (
        {chr(0x4E00 + i) + chr(0xAC00 + i): 2 for i in range(300)},
        {"a" + chr(0x4E00 + i): 2 for i in range(300)},
        {"a" * i: 3 for i in range(1, 100)},
    ):
        c, python = learned_twice(words, 2000, objective=objective)
        assert c == python and max(words) in c


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_counts_are_64_bits_wide(core, objective):
    # In doubles 2**55 + 2 and 2**55 + 1 are equal, and the first of them is taken; 2**55 + 60 is more.
    words = {"ab": 2**55, "cd": 2**55, "abx": 2, "cdx": 1}
    assert merges(words, objective="frequency", core=core)[0] == "ab"
    assert merges(words | {"cdx": 60}, objective="frequency", core=core)[0] == "cd"
    # Differences that doubles lose in the sums: 2**59 + 1 - 2**59 pieces "q" are left, not 0.
    words = {"qu": 2**58, "q": 1, "aq": 3}
    assert set(merges(words, objective=objective, core=core)) == {"qu", "aq"}


@pytest.mark.thorough
@needs_c
def test_likelihood_writes_held_out_text_in_fewer_nats_than_frequency():
    counted = count_files([embedded_corpus()], BasicTokenizer(), held_out=20)
    cost = {}
    for objective in OBJECTIVES:
        tokenizer = Tokenizer(learn_vocab(counted.words, 8192, objective=objective))
        cost[objective] = nats_per_byte(*(segmented(tokenizer, words) for words in counted[:2]))
    assert cost["likelihood"] < cost["frequency"] < 2


# The logarithm


def random_counts(n):
    """Counts of all magnitudes, and as many that are not larger."""
    random = np.random.default_rng(1)
    counts = np.exp(random.uniform(0, np.log(2.0**60), n)).astype(np.int64)
    parts = counts * random.uniform(0, 1, n) ** random.integers(1, 30, n)
    return counts, np.clip(parts.astype(np.int64), 1, counts)


def test_the_logarithm_is_right_to_the_last_bits():
    counts, _ = random_counts(3000)
    counts = np.concatenate([np.arange(1, 1000), counts])
    with localcontext(prec=40):
        exact = [Decimal(float(count)).ln() for count in counts]
        for found, wanted in zip(logarithm(counts), exact, strict=True):
            assert abs(Decimal(float(found)) - wanted) <= wanted * Decimal(2.0**-51)


def test_what_counts_lose_is_right_to_the_last_bits():
    counts, parts = random_counts(3000)
    with localcontext(prec=60):
        for count, n, found in zip(counts.tolist(), parts.tolist(), fall(counts, parts), strict=True):
            f = [Decimal(x) * Decimal(x).ln() if x else Decimal(0) for x in (count, count - n)]
            assert abs(Decimal(float(found)) / (f[0] - f[1]) - 1 if f[0] else found) <= Decimal(2.0**-49)


def test_numpy_and_c_compute_the_same_bits(tmp_path):
    header = ROOT / "csrc" / "wordpiece" / "logarithm.h"
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not header.exists():
        pytest.skip("a C compiler is not installed, or the source of the C core is not there")
    source, library = tmp_path / "falls.c", tmp_path / "falls.so"
    source.write_text(
        f'#include "{header}"\n'
        "void falls(const int64_t *counts, const int64_t *n, double *logs, double *falls, int64_t k) {\n"
        "    for (int64_t i = 0; i < k; i++) {\n"
        "        logs[i] = wp_log((double)counts[i]);\n"
        "        falls[i] = wp_fall(counts[i], logs[i], n[i]);\n"
        "    }\n"
        "}\n"
    )
    options = ["-O3", "-std=c11", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, str(source), "-o", str(library), "-lm"], check=True)
    counts, parts = random_counts(200_000)
    logs, falls = np.empty((2, len(counts)))
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (counts, parts, logs, falls)]
    ctypes.CDLL(str(library)).falls(*pointers, ctypes.c_int64(len(counts)))
    assert (logs.view(np.int64) == logarithm(counts).view(np.int64)).all()
    assert (falls.view(np.int64) == fall(counts, parts).view(np.int64)).all()


# The vocabulary


@given(WORD_COUNTS, st.randoms(), st.sampled_from(OBJECTIVES))
def test_the_order_of_the_words_does_not_matter(word_counts, random, objective):
    shuffled = random.sample(list(word_counts.items()), len(word_counts))
    assert learn_vocab(dict(shuffled), 100, objective=objective) == learn_vocab(
        word_counts, 100, objective=objective
    )


@pytest.mark.thorough
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
    vocab = learn_vocab({"ba": 3, "b,": 1}, 14, unused=2)
    assert vocab[:5] == list(SPECIAL_TOKENS)
    assert vocab[5:7] == ["[unused0]", "[unused1]"]
    assert vocab[7:] == ["##,", "##a", "##b", ",", "a", "b", "ba"]


@pytest.mark.parametrize("core", CORES)
def test_words_of_known_letters_can_be_written_wherever_the_letters_stood(core):
    words = count_words(["roses are red"], BasicTokenizer())
    tokenizer = Tokenizer(learn_vocab(words, 100, core=core))
    assert tokenizer("odes", add_special_tokens=False).tokens == ["o", "##d", "##e", "##s"]


@given(st.lists(st.text("aé我ß,가", min_size=1, max_size=6), min_size=1), st.randoms(use_true_random=False))
def test_no_new_word_of_known_letters_is_unknown(texts, random):
    tokenizer = BasicTokenizer()
    vocab = Tokenizer(learn_vocab(count_words(texts, tokenizer), 100))
    known = sorted(set("".join(texts)))
    assert vocab.unk_id not in vocab(" ".join(random.choices([*known, " "], k=50))).ids


def test_letters_get_both_forms_and_what_is_a_word_of_its_own_the_first():
    learned = learn_vocab(count_words(["ab c, d. 我x"], BasicTokenizer()), 100)[5:]
    assert learned == ["##a", "##b", "##c", "##d", "##x", ",", ".", "a", "b", "c", "d", "x", "我"]


def test_unused_forms_of_rare_letters_go_first():
    words = {"ab": 5, "cd": 1, "ef": 9, "g": 7}
    everything = ["##a", "##b", "##c", "##d", "##e", "##f", "##g", "a", "b", "c", "d", "e", "f", "g"]
    dropped = ["d", "##c", "b", "##a", "##g", "f", "##e"]  # of equals, the last
    for short in range(len(dropped) + 1):
        vocab = learn_vocab(words, 5 + len(everything) - short)
        assert vocab[5:] == [piece for piece in everything if piece not in dropped[:short]]
    with pytest.raises(InputError, match="alphabet alone take 12"):
        learn_vocab(words, 11)
    assert learn_vocab(words, 13, alphabet_limit=5)[5:] == ["##b", "##e", "##f", "##g", "a", "e", "f", "g"]


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


@pytest.mark.parametrize("core", CORES)
def test_no_pair_is_as_frequent_as_the_largest_number(core):
    assert merges({"ab": 2**58}, min_frequency=2**70, core=core) == []


def test_words_with_rare_characters_are_left_out_under_an_alphabet_limit():
    assert learn_vocab({"ab": 5, "azb": 2}, 100, alphabet_limit=2)[5:] == ["##a", "##b", "a", "b", "ab"]


def test_all_characters_but_lone_surrogates_are_learned():
    beside, surrogates = "\ud7ff\ue000\U0010ffff", "\ud800\udfff"
    learned = learn_vocab({one: 5 for one in beside + surrogates}, 100)[5:]
    assert {piece.removeprefix("##") for piece in learned} == set(beside)


@pytest.mark.parametrize("rare, told", [(1, False), (2, True)])
def test_many_words_that_become_unknown_are_warned_of(rare, told):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        learn_vocab({"ab": 198, "azb": rare}, 100, alphabet_limit=2)
        learn_vocab({"ab": 198, "azb": rare}, 100)
    assert [str(one.message)[:17] for one in said] == ["1.0% of the words"] * told


@pytest.mark.thorough
def test_alphabets_of_thousands_of_characters_are_learned_from():
    words = {"a" + chr(code): 2 for code in range(0x4E00, 0x4E00 + 3000)}
    vocab = learn_vocab(words, 10_000, alphabet_limit=5000)
    assert len(vocab) == 5 + 3001 + 1 + 3000 + 3000
    assert set(words) <= set(vocab)


def test_words_that_could_never_be_matched_are_left_out():
    words = {"ab": 5, "c" * 201: 9, "d\ud800": 9, "": 3, "e": 0}
    assert learn_vocab(words, 100)[5:] == ["##a", "##b", "a", "b", "ab"]


def test_user_tokens_stand_after_the_unused_ones_and_change_no_merge():
    plain = learn_vocab(LOW, 34, objective="frequency")
    vocab = learn_vocab(LOW, 37, objective="frequency", unused=1, user_tokens=["##est", "<user>", "q"])
    assert vocab[5:9] == ["[unused0]", "##est", "<user>", "q"]
    # A piece that is merged to one of them is not repeated, so one more merge fits in.
    assert vocab[9:] == [piece for piece in plain[5:] if piece != "##est"]
    assert "##est" in plain and len(set(vocab)) == 37


def test_user_tokens_may_be_characters_of_the_text():
    assert learn_vocab({"ab": 2}, 10, user_tokens=["##b"])[5:] == ["##b", "##a", "a", "b", "ab"]


def test_no_piece_stands_in_the_vocabulary_twice():
    # "#" and "###" make "##", and with "##a" that is "##a" again; "[PAD]" is made of five characters.
    words = {"##a": 9, "ba": 9, "[PAD]": 9}
    vocab = learn_vocab(words, 100)
    assert len(vocab) == len(set(vocab)) and vocab.index("[PAD]") == 0


@pytest.mark.parametrize("core", CORES)
def test_words_of_one_character_have_nothing_to_merge(core):
    assert learn_vocab({"a": 5, "b": 1}, 100, core=core)[5:] == ["##a", "##b", "a", "b"]


@pytest.mark.parametrize("core", CORES)
def test_progress_ends_at_the_vocabulary_size(core):
    calls = []
    words = {f"{a}{b}{c}": 2 for a in "abcdef" for b in "ghijkl" for c in "mnopqr"}
    learn_vocab(words, 170, progress=lambda *call: calls.append(call), core=core)
    assert calls == [(64, 170), (128, 170), (170, 170)]


# Bad input


@pytest.mark.parametrize(
    "words, options, sentence",
    [
        ({}, {}, "there is no word"),
        ({"d\ud800": 1}, {}, "there is no word"),
        (LOW, {"vocab_size": 12}, "vocab_size=12 is too small: special tokens and alphabet alone take 16"),
        (
            LOW,
            {"vocab_size": 12, "unused": 10},
            "alphabet alone take 26; give 26 or more, or keep fewer",
        ),
        (
            LOW,
            {"vocab_size": 12, "unused": 9999},
            "9,999 unused pieces and alphabet alone take 10,015; .*, or for less than unused=9999",
        ),
        (LOW, {"objective": "bpe"}, "objective='bpe' is unknown; choose likelihood or frequency"),
        (LOW, {"vocab_size": 8.5}, "vocab_size=8.5 is not possible; give a whole number"),
        (LOW, {"vocab_size": "8"}, "vocab_size='8' is not possible; give a whole number"),
        (LOW, {"min_frequency": 0}, "min_frequency=0 is not possible; give a whole number, at least 1"),
        (LOW, {"min_frequency": 1.5}, "min_frequency=1.5 is not possible"),
        ({"ab": 2, "ac": 1}, {"alphabet_limit": 1}, "alphabet_limit=1 leaves no word to learn from"),
        ({"a" * 201: 2}, {"alphabet_limit": 1}, "there is no word to learn a vocabulary from"),
        (LOW, {"alphabet_limit": -1}, "alphabet_limit=-1 is not possible; .* at least 1"),
        (LOW, {"unused": -1}, "unused=-1 is not possible; .* at least 0"),
        (LOW, {"unused": 10**20}, "unused=1.* is more than 1,000,000"),
        (LOW, {"user_tokens": ["a b"]}, "user_token='a b' is not a token; give a string without white space"),
        (LOW, {"user_tokens": [""]}, "user_token='' is not a token"),
        (LOW, {"user_tokens": ["[PAD]"]}, r"user_token='\[PAD\]' is in the vocabulary already"),
        (LOW, {"user_tokens": ["x", "x"]}, "user_token='x' is in the vocabulary already, or given twice"),
        (LOW, {"core": "rust"}, "core='rust' is unknown; choose auto, c or python"),
        ({"a": 2**63}, {}, "the count of 'a' is 9223372036854775808; give integers below 2\\*\\*63"),
        ({"a": 2, 7: 2}, {}, "the word 7 is not a string; give strings with their counts"),
        (["a"], {}, "'a'. has no counts of words; give what count_words returns"),
        ({"a": 1.5}, {}, "the count of 'a' is 1.5; give integers"),
        ({"a": 2**60, "b": 2**60}, {}, "word_counts adds up to more than 2\\*\\*60 characters"),
    ],
)
def test_words_that_nothing_can_be_learned_from_get_a_sentence(words, options, sentence):
    with pytest.raises(InputError, match=sentence):
        learn_vocab(words, **{"vocab_size": 100, **options})
