"""Pieces that are learnt for a vocabulary that there is, and which words these cut anew."""

import numpy as np
import pytest

from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer, count_words
from minibert.tokenizer.added import AddedToken
from minibert.tokenizer.extending import changed_words, extended, learn_pieces, lone_characters

LETTERS = "abcdefghilnoprstuwy"
VOCAB = [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), ".", "the", "##og", "ca", "in"]
TEXT = "The cat sleeps in the house. A dog runs, and the catalogue is a thing of a kind."
MORE = ("the dog sleeps in the house", "a whale dances in the sea", "the whale runs and the dog waits")


def test_the_best_pair_of_pieces_is_that_of_the_largest_gain():
    tokenizer = Tokenizer(VOCAB)
    words = count_words([TEXT] * 3 + ["a dog and a dog and the cat in the house"], tokenizer.basic_tokenizer)
    segmented = [(tokenizer.tokenize(word), count) for word, count in words.items()]
    segmented = [(pieces, count) for pieces, count in segmented if pieces != ["[UNK]"]]

    def likelihood(cut):
        counts = {}
        for pieces, count in cut:
            for piece in pieces:
                counts[piece] = counts.get(piece, 0) + count
        numbers = np.array([*counts.values()], float)
        return (numbers * np.log(numbers / numbers.sum())).sum()

    def joined(pieces, pair):
        text = " ".join(pieces) + " "
        return text.replace(f"{pair[0]} {pair[1]} ", pair[0] + pair[1].removeprefix("##") + " ").split()

    pairs = {pair for pieces, _ in segmented for pair in zip(pieces, pieces[1:], strict=False)}
    frequent = [
        pair
        for pair in pairs
        if sum(c for p, c in segmented for q in zip(p, p[1:], strict=False) if q == pair) >= 2
    ]
    gains = {
        pair: likelihood([(joined(pieces, pair), count) for pieces, count in segmented]) for pair in frequent
    }
    best = max(gains, key=gains.get)
    for core in ("c", "python"):
        [found] = learn_pieces(tokenizer, words, 1, core=core)
        assert gains[best] == pytest.approx(gains[tuple(VOCAB[i] for i in found.replaces)], abs=1e-3)
    assert learn_pieces(tokenizer, words, 30, core="c") == learn_pieces(tokenizer, words, 30, core="python")


def test_words_without_a_new_piece_are_cut_as_before():
    tokenizer = Tokenizer(VOCAB)
    words = count_words([TEXT, *MORE], tokenizer.basic_tokenizer)
    longer = extended(tokenizer, learn_pieces(tokenizer, words, 12))
    listed = changed_words(tokenizer, longer, words)
    assert [one["times"] for one in listed] == sorted((words[one["word"]] for one in listed), reverse=True)
    changed = {one["word"] for one in listed}
    assert 0 < len(changed) < len(words)
    for word in words:
        has_new = any(number >= len(VOCAB) for number in longer.encode(word))
        assert has_new == (word in changed)
    assert longer.core == tokenizer.core and longer.compat == tokenizer.compat


def test_characters_without_a_piece_of_their_own_inside_of_words_are_found():
    assert lone_characters(Tokenizer([*SPECIAL_TOKENS, "c", "a", "##at", "##a", "cab"])) == ["b", "t"]
    assert lone_characters(Tokenizer(VOCAB)) == []


def test_characters_of_special_and_added_tokens_go_on_no_word():
    vocab = [*VOCAB, "«Ort»", "<zz>"]
    added = {len(vocab): AddedToken("µ=5"), len(vocab) - 1: AddedToken("<zz>")}
    tokenizer = Tokenizer(vocab, additional_special_tokens=["«Ort»"], added_tokens=added)
    assert lone_characters(tokenizer) == []


def test_a_learned_piece_is_no_special_token_a_second_time():
    tokenizer = Tokenizer(VOCAB)
    words = count_words([TEXT, *MORE], tokenizer.basic_tokenizer)
    first, second, third = learn_pieces(tokenizer, words, 3)
    assert learn_pieces(tokenizer, words, 2, special=[first.piece]) == [second, third]
