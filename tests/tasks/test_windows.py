"""Questions become windows: which tokens they hold, where the answer is, which window has most context."""

import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st
from questions import TOKENIZER, WORDS, asked, most_context_by_loop, starts_of_loop, words
from real_data import real_data

from minibert.base.errors import InputError
from minibert.data import squad
from minibert.data.squad import Answer
from minibert.tasks import windows
from minibert.tasks.windows import Windows, most_context
from minibert.tokenizer import Tokenizer


def pieces(feature):
    return [TOKENIZER.vocab[i] for i in feature.sequences[0].input_ids]


# Which window has most context


def test_bought_has_most_context_in_the_third_window_of_the_published_example():
    text = "the man went to the store and bought a gallon of milk".split()
    found = starts_of_loop(len(text), room=5, stride=3)
    spans = [" ".join(text[start : start + length]) for start, length in found]
    assert spans[:3] == ["the man went to the", "to the store and bought", "and bought a gallon of"]
    best = most_context(*np.array(found).T)
    assert best[text.index("bought")] == 2
    assert best.tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3]


@given(tokens=st.integers(1, 300), room=st.integers(1, 60), stride=st.integers(1, 60))
def test_most_context_is_that_of_the_loop_over_windows(tokens, room, stride):
    found = starts_of_loop(tokens, room, stride)
    best = most_context(*np.array(found).T)
    assert best.tolist() == [most_context_by_loop(found, token) for token in range(tokens)]


def test_a_hundredth_of_the_length_can_outweigh_a_token_of_context():
    # Token 250 has 49 tokens behind it in the window of 300, and 50 before it in the window of 150.
    assert most_context(np.array([0, 200]), np.array([300, 150]))[250] == 0
    assert most_context_by_loop([(0, 300), (200, 150)], 250) == 0


# What stands in a window


@pytest.mark.parametrize(("max_length", "stride"), [(25, 7), (25, 20), (25, 128), (6, 1), (200, 128)])
@pytest.mark.parametrize("tokens", [1, 19, 20, 21, 27, 28, 100])
def test_windows_are_those_of_googles_loop_and_leave_out_no_token(tokens, max_length, stride):
    made = Windows([asked(words(0, tokens))], TOKENIZER, max_length, stride=stride)
    room = max_length - 5  # [CLS] w1 w2 [SEP] ... [SEP]
    expected = starts_of_loop(tokens, room, stride)
    assert [pieces(feature) for feature in made] == [
        ["[CLS]", "w1", "w2", "[SEP]", *WORDS[start : start + length], "[SEP]"] for start, length in expected
    ]
    assert made.lengths.tolist() == [length + 5 for _, length in expected]
    seen = {piece for feature in made for piece in pieces(feature)[4:-1]}
    assert seen == set(WORDS[:tokens])


def test_second_segment_begins_with_the_paragraph():
    [feature] = Windows([asked(words(3, 6))], TOKENIZER)
    [sequence] = feature.sequences
    assert sequence.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert sequence.input_ids.dtype == sequence.token_type_ids.dtype == np.int32
    assert len(sequence.masked_positions) == len(sequence.masked_labels) == 0


def test_windows_are_counted_by_question():
    made = Windows([asked(words(0, n)) for n in (3, 50, 4)], TOKENIZER, 25, stride=10)
    assert made.bounds.tolist() == [0, 1, 5, 6]
    assert made.example.tolist() == [feature.example for feature in made] == [0, 1, 1, 1, 1, 2]
    assert [mask.tolist() for mask in made.most_context(0)] == [[True] * 3]
    expected = starts_of_loop(50, 20, 10)
    for number, (mask, (start, length)) in enumerate(zip(made.most_context(1), expected, strict=True)):
        assert mask.tolist() == [
            most_context_by_loop(expected, token) == number for token in range(start, start + length)
        ]


def test_blocks_of_questions_join_without_a_seam(monkeypatch):
    contexts = [words(0, 40), words(10, 15), "", words(0, 40), "日本語 " * 9]
    questions = [
        asked(context, id=str(n), question=words(n, 2 * n)) for n, context in enumerate(contexts * 2)
    ]
    whole = Windows(questions, TOKENIZER, 25, stride=7)
    monkeypatch.setattr(windows, "BLOCK", 3)
    parted = Windows(iter(questions), TOKENIZER, 25, stride=7)
    assert [pieces(feature) for feature in parted] == [pieces(feature) for feature in whole]
    assert parted.example.tolist() == whole.example.tolist()
    assert len(whole) == 28
    for number in range(len(whole)):
        assert parted.offsets(number).tolist() == whole.offsets(number).tolist()


def test_wide_numbers_in_one_block_widen_all(monkeypatch):
    far = " " * 70_000 + "w7"
    monkeypatch.setattr(windows, "BLOCK", 1)
    made = Windows([asked("w3 w4"), asked(far)], TOKENIZER)
    assert made.offsets(0).tolist() == [[0, 2], [3, 5]]
    assert made.offsets(1).tolist() == [[70_000, 70_002]]


def test_a_paragraph_without_a_token_has_one_window():
    made = Windows([asked(""), asked(" \u200b ")], TOKENIZER)
    assert [pieces(feature) for feature in made] == [["[CLS]", "w1", "w2", "[SEP]", "[SEP]"]] * 2
    assert [mask.tolist() for mask in made.most_context(0)] == [[]]
    assert made.offsets(1).shape == (0, 2)


def test_only_existing_windows_are_given():
    made = Windows([asked("w3"), asked("w4")], TOKENIZER)
    assert pieces(made[-1]) == pieces(made[1])
    for number in (2, -3):
        with pytest.raises(IndexError, match=f"number={number} is not one of the 2 windows"):
            made[number]


# Questions that are too long


def test_a_long_question_loses_its_end_with_a_warning():
    questions = [asked("w9"), asked("w9", id="long", question=words(0, 70))]
    with pytest.warns(UserWarning, match="1 of 2 questions are longer than 64 pieces .* first is 'long'"):
        made = Windows(questions, TOKENIZER)
    assert pieces(made[1]) == ["[CLS]", *WORDS[:64], "[SEP]", "w9", "[SEP]"]


def test_question_longer_than_the_window_is_refused():
    question = asked(words(0, 9), id="wide", question=words(0, 29))
    with pytest.raises(InputError, match="'wide' has 29 pieces, .* no room .* max_length=32"):
        Windows([asked("w9"), question], TOKENIZER, 32)
    made = Windows([question], TOKENIZER, 33)
    assert [pieces(feature)[-2] for feature in made] == WORDS[:9]


@pytest.mark.parametrize("name", ["max_length", "stride", "max_question"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_impossible_sizes_are_refused(name, value):
    with pytest.raises(InputError, match=f"{name}={value}"):
        Windows([asked("w1")], TOKENIZER, **{name: value})


def test_no_question_at_all_is_refused():
    with pytest.raises(InputError, match="no question"):
        Windows([], TOKENIZER)


# Where the answer is


def test_answer_is_labelled_in_the_windows_that_hold_all_of_it():
    made = Windows([asked(words(0, 50), "w22 w23")], TOKENIZER, 25, stride=10)
    starts = [start for start, _ in starts_of_loop(50, 20, 10)]
    assert starts == [0, 10, 20, 30]
    # Windows hold w0-w19, w10-w29, w20-w39, w30-w49; the paragraph begins at row 4.
    assert [feature.label for feature in made] == [(0, 0), (16, 17), (6, 7), (0, 0)]


def test_answer_cut_by_the_border_of_a_window_is_not_in_it():
    made = Windows([asked(words(0, 30), "w18 w19 w20")], TOKENIZER, 25, stride=10)
    assert [feature.label for feature in made] == [(0, 0), (12, 14)]


def test_answer_longer_than_every_window_is_in_none():
    made = Windows([asked(words(0, 30), words(2, 29))], TOKENIZER, 25, stride=10)
    assert [feature.label for feature in made] == [(0, 0), (0, 0)]


def test_unanswerable_and_unanswered_questions_differ():
    made = Windows([asked("w3", impossible=True), asked("w3")], TOKENIZER)
    assert [feature.label for feature in made] == [(0, 0), None]


def test_first_of_several_answers_is_learnt():
    question = asked(words(0, 9))._replace(answers=(Answer("w5", 15), Answer("w2", 6)), impossible=False)
    assert Windows([question], TOKENIZER, training=True)[0].label == (9, 9)


@pytest.mark.parametrize(
    ("context", "answer", "expected"),
    [
        ("the Japanese shops.", "Japan", ["japanese"]),  # inside a piece: the whole piece
        ("the Japanese shops.", "shop", ["shop"]),
        ("the Japanese shops.", "nese shops", ["japanese", "shop", "##s"]),
        ("the shops.", " shops ", None),  # not what stands there
        ("the shops .", " shops ", ["shop", "##s"]),
        ("CAFÉ 日本語😀.", "本語", ["本", "語"]),
        ("CAFÉ 日本語😀.", "CAFÉ", ["cafe"]),
        ("Cafe\u0301 w3.", "Cafe\u0301", ["cafe"]),
        ("日本😀語", "語", ["語"]),
    ],
)
def test_answer_is_the_pieces_that_it_touches(context, answer, expected):
    question = asked(context, answer, start=max(0, context.find(answer)))
    [feature] = Windows([question], TOKENIZER)
    label = feature.label
    assert (None if label is None else pieces(feature)[label[0] : label[1] + 1]) == expected


def test_what_cannot_be_learnt_is_left_out_of_training_and_counted():
    questions = [
        asked("w3 w4", "w4", id="good"),
        asked("w3 w4", "w4", id="misplaced", start=0),
        asked("w3 .", ".", id="lost", start=-1),
        asked("w3 \u200b w4", "\u200b", id="nothing"),
        asked("w3 w4", id="unanswered"),
        asked("w3 w4", id="impossible", impossible=True),
    ]
    with pytest.warns(UserWarning, match="4 of 6 questions are left out.*first is 'misplaced'"):
        made = Windows(questions, TOKENIZER, training=True)
    assert made.example.tolist() == [0, 5]
    assert made.bounds.tolist() == [0, 1, 1, 1, 1, 1, 2]
    assert [feature.label for feature in made] == [(5, 5), (0, 0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Windows(questions, TOKENIZER)) == 6


def test_nothing_to_train_on_is_refused():
    with pytest.raises(InputError, match="None of the 1 questions has an answer"):
        Windows([asked("w3 w4")], TOKENIZER, training=True)


@given(
    context=st.text("aé日本 語w1.\u0301\u200b😀Ａ\n\ud800", max_size=30),
    cut=st.tuples(st.integers(0, 30), st.integers(1, 8)),
)
def test_answer_of_any_text_is_the_tokens_that_share_a_character_with_it(context, cut):
    begin = min(cut[0], len(context))
    answer = context[begin : begin + cut[1]]
    question = asked("w5 " + context, answer or None, start=begin + 3)
    # Before and behind it stand other paragraphs, from which no token must be taken.
    made = Windows([asked("w1 w2 w3"), question, asked("w4")], TOKENIZER)
    touched = [
        row
        for row, (first, behind) in enumerate(made.offsets(1).tolist())
        if first < begin + 3 + len(answer) and behind > begin + 3
    ]
    rows = made.first_row(1)
    expected = (rows + touched[0], rows + touched[-1]) if answer and touched else None
    assert made[1].label == expected


# Real questions


def answers_of(path):
    """A question for each of the different answers in a file."""
    return [
        question._replace(answers=(answer,))
        for question in squad.read(path)
        for answer in dict.fromkeys(question.answers)
    ]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*lose their end")
@pytest.mark.parametrize(
    ("file", "vocabulary", "within_a_piece"),
    [
        ("dev-v1.1.json", "bert-base-uncased", 123),  # of 18,015: "Roman" of Romanian, "90" of 1990s
        ("dev-v2.0.json", "bert-base-uncased", 65),  # of 10,279
        ("xquad/xquad.zh.json", "bert-base-multilingual-cased", 0),  # of 1,190, as in the other two
        ("xquad/xquad.ar.json", "bert-base-multilingual-cased", 3),
        ("xquad/xquad.th.json", "bert-base-multilingual-cased", 1),
    ],
)
def test_every_real_answer_comes_back_from_its_tokens(file, vocabulary, within_a_piece):
    questions = answers_of(real_data(f"squad/{file}"))
    cased = not vocabulary.endswith("uncased")
    tokenizer = Tokenizer.from_pretrained(real_data(f"vocab/{vocabulary}"), lower_case=not cased)
    made = Windows(questions, tokenizer)
    n_within = n_nowhere = 0
    for number, question in enumerate(questions):
        [answer] = question.answers
        back = None
        for window in range(*made.bounds[number : number + 2]):
            first, last = made[window].label
            if first:
                places = made.offsets(window)[[first - made.first_row(window), last - made.first_row(window)]]
                back = question.context[places[0, 0] : places[1, 1]]
        if back is None:
            n_nowhere += 1
        elif back != answer.text:
            assert answer.text in back and not back.startswith(" ")
            n_within += 1
    assert (n_nowhere, n_within) == (0, within_a_piece)
