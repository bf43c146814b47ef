"""The report on a vocabulary: its figures worked out by hand, and what they say about the two objectives."""

import json
import math

import pytest

from minibert.data.corpus import embedded_corpus
from minibert.tokenizer import SPECIAL_TOKENS, BasicTokenizer, Tokenizer, learn_vocab
from minibert.tokenizer.counting import WordCounts, count_files
from minibert.tokenizer.report import nats_per_byte, report_text, segmented, vocabulary_report

VOCAB = [*SPECIAL_TOKENS, "[unused0]", "a", "b", "##a", "##b", "ab", "##ab", "bab", "babab"]
WORDS = WordCounts.of({"a": 3, "ab": 2, "abab": 5, "bab": 1, "ba": 4})
HELD_OUT = WordCounts.of({"ab": 6, "bba": 2, "éa": 1, "a": 1})


@pytest.fixture(scope="module")
def cased():
    return Tokenizer(VOCAB, lower_case=False)


def test_words_are_cut_greedily_and_counted_as_often_as_they_occur(cased):
    found = segmented(cased, WORDS)
    counts = dict(zip(VOCAB, found.piece_counts.tolist(), strict=True))
    assert {piece: count for piece, count in counts.items() if count} == {
        "a": 3,  # a
        "ab": 2 + 5,  # ab, ab ##ab
        "##ab": 5,
        "bab": 1,
        "b": 4,  # b ##a
        "##a": 4,
    }
    assert found[1:] == (15, 3 + 2 + 1, 0, 3 + 2 * 2 + 5 * 4 + 3 + 4 * 2)


def test_unknown_words_and_bytes_are_counted(cased):
    assert segmented(cased, HELD_OUT)[1:] == (10, 7, 1, 6 * 2 + 2 * 3 + 3 + 1)


def test_nats_per_byte_is_the_formula_of_its_docstring(cased):
    total = 3 + 7 + 5 + 1 + 4 + 4 + len(VOCAB)
    cost = -sum(
        count * math.log((learned + 1) / total)
        for count, learned in (
            (6, 7),  # ab
            (2, 4),  # b
            (2, 0),  # ##b
            (2, 4),  # ##a
            (1, 0),  # [UNK]
            (1, 3),  # a
        )
    )
    found = nats_per_byte(segmented(cased, WORDS), segmented(cased, HELD_OUT))
    assert found == pytest.approx(cost / 22, rel=1e-12)


def test_report_has_every_figure(cased):
    report = vocabulary_report(cased, WORDS, HELD_OUT, {"shorter": Tokenizer(VOCAB[:10], False)})
    assert report["vocab_size"] == 14
    assert report["words"] == {"learned_from": 15, "different": 5, "held_out": 10}
    assert report["held_out"]["coverage"] == 0.7
    assert report["held_out"]["pieces_per_word"] == (6 + 2 * 3 + 1 + 1) / 10
    assert report["held_out"]["unknown_words"] == 0.1
    assert report["others"]["shorter"]["vocab_size"] == 10
    assert report["others"]["shorter"]["nats_per_byte"] > 0
    assert report["longest"] == [
        {"piece": "bab", "count": 1},
        {"piece": "ab", "count": 7},
        {"piece": "##ab", "count": 5},
    ]
    assert report["rarest"] == [
        {"piece": "bab", "count": 1},
        {"piece": "##ab", "count": 5},
        {"piece": "ab", "count": 7},
    ]
    assert report["never_used"] == {"count": 1, "pieces": ["babab"]}
    assert json.loads(json.dumps(report)) == report


def test_requested_pieces_do_not_count_as_learned():
    vocab = [*VOCAB, "[NEW]", "whale"]
    tokenizer = Tokenizer(vocab, lower_case=False, additional_special_tokens=["[NEW]"])
    report = vocabulary_report(tokenizer, WORDS, HELD_OUT, user_tokens=["[NEW]", "whale", "bab"])
    assert report["never_used"] == {"count": 1, "pieces": ["babab"]}
    assert [one["piece"] for one in report["longest"]] == ["ab", "##ab"]


def test_report_text_says_the_figures(cased):
    text = report_text(vocabulary_report(cased, WORDS, HELD_OUT, {"frequency": cased}))
    assert "From 15 words, 5 different ones." in text
    assert "On 10 words of lines that were held out:" in text
    assert "coverage: words that are one piece    70.00%" in text
    assert "words that are [UNK]                  10.0000%" in text
    assert "of a vocabulary by frequency" in text
    assert "bab 1" in text and text.endswith("\n1 piece is never used: babab")


def test_report_text_counts_one_word_as_one(cased):
    text = report_text(vocabulary_report(cased, WordCounts.of({"ab": 1}), WordCounts.of({"ab": 1})))
    assert "From 1 word, 1 different ones." in text and "On 1 word of lines" in text


@pytest.mark.parametrize(
    "count, sentence",
    [
        (0, "Every piece is used."),
        (2, "2 pieces are never used: p0 p1"),
        (1234, "1,234 pieces are never used, such as: p0 p1 p2 p3 p4 p5 p6 p7 p8 p9"),
    ],
)
def test_report_text_says_which_pieces_are_never_used(cased, count, sentence):
    report = vocabulary_report(cased, WORDS, HELD_OUT)
    report["never_used"] = {"count": count, "pieces": [f"p{i}" for i in range(min(count, 10))]}
    assert report_text(report).endswith(f"\n{sentence}")


def test_without_held_out_text_only_the_pieces_are_reported(cased):
    report = vocabulary_report(cased, WORDS, WordCounts.of({}), {"frequency": cased})
    assert report["held_out"] is None
    assert report["others"]["frequency"] == {"vocab_size": 14, "nats_per_byte": None}
    assert "No line was held out" in report_text(report)


@pytest.mark.thorough
def test_likelihood_needs_fewer_nats_for_a_byte_than_frequency_on_the_books():
    counted = count_files([embedded_corpus()], BasicTokenizer(), held_out=20)
    cost = {}
    for objective in ("likelihood", "frequency"):
        tokenizer = Tokenizer(learn_vocab(counted.words, 1000, objective=objective))
        learned, held_out = (segmented(tokenizer, words) for words in (counted.words, counted.held_out))
        cost[objective] = nats_per_byte(learned, held_out)
    assert cost["likelihood"] < cost["frequency"] - 0.01
