"""Asking a pre-trained model: words for gaps, and how likely texts are."""

import dataclasses
import json
import math
import weakref

import numpy as np
import pytest
from command import ends_badly
from one_text import fill_masks

from minibert import Bert, BertConfig, Tokenizer, cli
from minibert.ask import gaps, scoring
from minibert.ask.gaps import Guess, fill_texts
from minibert.ask.scoring import score_texts
from minibert.base.errors import InputError
from minibert.core.batch import Batch, Sequence
from minibert.model.params import Parameters, initialise
from minibert.tokenizer import SPECIAL_TOKENS

WORDS = "the a cat dog sat swam on mat un ##aff ##able ##s play ##ing . !"
TEXTS = ["the cat sat on the mat.", "Unaffable dogs!", "a"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer([*SPECIAL_TOKENS, *WORDS.split()])


@pytest.fixture(scope="module")
def model(tokenizer):
    config = BertConfig.from_size("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=16)
    params = initialise(config, 0, np.float64)
    params.flat[:] = np.random.default_rng(0).normal(0, 0.2, params.flat.shape)  # so that guesses differ
    return Bert(config, params, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def left_to_right(model):
    config = dataclasses.replace(model.config, is_decoder=True)
    return Bert(config, Parameters(config, model.params.flat), model.ops, model.tokenizer)


@pytest.fixture(scope="module")
def folder(model, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def log_p(model, ids, place, piece):
    """log p of one piece, computed the long way."""
    batch = Batch.pack([Sequence(np.array(ids), np.zeros(len(ids), int))])
    (row,) = model.masked_lm_logits(batch, [place])
    return math.log(np.exp(row[piece]) / np.exp(row).sum())


# Words for gaps


def test_texts_get_the_same_guesses_together_as_alone(model, tokenizer):
    texts = ["the [MASK] sat.", "a [MASK] [MASK]", "[MASK]"]
    together = fill_texts(model, texts, top=4)
    assert [len(masks) for masks in together] == [1, 2, 1]
    for text, masks in zip(texts, together, strict=True):
        for found, expected in zip(masks, fill_masks(model, text, 4), strict=True):
            assert [guess.token for guess in found] == [guess.token for guess in expected]
            assert np.allclose([g.probability for g in found], [g.probability for g in expected], atol=1e-12)
    assert fill_texts(model, []) == []


def test_target_has_the_product_of_the_probabilities_of_its_pieces(model, tokenizer):
    (guesses,) = fill_masks(model, "the [MASK] sat", targets=["cat", "unaffable", "Playing"])
    ids, mask = tokenizer.ids, tokenizer.mask_id
    begin, end = [tokenizer.cls_id, ids["the"]], [ids["sat"], tokenizer.sep_id]
    expected = {"cat": log_p(model, [*begin, mask, *end], 2, ids["cat"])}
    for word, pieces in {"unaffable": ["un", "##aff", "##able"], "Playing": ["play", "##ing"]}.items():
        known = [ids[piece] for piece in pieces]
        expected[word] = sum(
            log_p(model, [*begin, *known[:n], *[mask] * (len(known) - n), *end], 2 + n, known[n])
            for n in range(len(known))
        )
    assert {guess.token: guess.log_probability for guess in guesses} == pytest.approx(expected, abs=1e-10)
    assert [g.probability for g in guesses] == sorted((g.probability for g in guesses), reverse=True)
    assert Guess("x", 0.0).log_probability == -math.inf


def test_wide_beam_finds_the_likeliest_word_of_several_pieces(model, tokenizer):
    whole = len(tokenizer.vocab)
    (guesses,) = fill_masks(model, "a [MASK] .", top=whole**2, pieces=2)
    going_on = [piece for piece in tokenizer.vocab if piece.startswith("##")]
    starts = [piece for piece in tokenizer.vocab[5:] if piece not in going_on]
    words = {start + end[2:] for start in starts for end in going_on}
    assert {guess.token for guess in guesses} == words | set(tokenizer.vocab)
    (targets,) = fill_masks(model, "a [MASK] .", targets=["unaff", "cats", "playing"])
    found = dict(guesses)
    for target in targets:
        assert found[target.token] == pytest.approx(target.probability, rel=1e-9)
    (few,) = fill_masks(model, "a [MASK] .", top=3, pieces=2)
    assert len(few) == 3 and few[0] == guesses[0]


def test_probabilities_of_the_vocabulary_are_not_kept_for_every_target(model, monkeypatch):
    rows, most = [], 0
    compute = gaps._probabilities

    def watched(logits):
        nonlocal most
        result = compute(logits)
        rows.append(weakref.ref(result))
        most = max(most, sum(row() is not None for row in rows))
        return result

    monkeypatch.setattr(gaps, "_probabilities", watched)
    fill_masks(model, "a [MASK] .", targets=["unaff", "cats", "playing", "unable", "dogs"])
    assert len(rows) > most == 2  # the one that is read, and the next


def test_left_to_right_target_is_scored_from_the_text_before_it(left_to_right, tokenizer):
    ids = tokenizer.ids
    (guesses,) = fill_masks(left_to_right, "the [MASK] sat .", targets=["unaffable"])
    pieces = [ids["un"], ids["##aff"], ids["##able"]]
    whole = [tokenizer.cls_id, ids["the"], *pieces]
    expected = sum(log_p(left_to_right, whole, 1 + n, piece) for n, piece in enumerate(pieces))
    assert guesses[0].log_probability == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("texts", "asked", "message"),
    [
        (["no gap"], {}, r"'no gap' has no \[MASK\]; write \[MASK\] where"),
        (
            ["the " * 15 + "[MASK]"],
            {},
            "takes 18 tokens with .*, more than the model's 16 positions; shorten",
        ),
        (["a " * 12 + "[MASK]"], {"pieces": 3}, "takes 17 tokens"),
        (
            ["[MASK]"],
            {"targets": ["cat", "xyz"]},
            r"targets=\['cat', 'xyz'\]: 'xyz' is not in the voc",
        ),
        (["[MASK]"], {"targets": ["", "cat"]}, "`targets` has an empty word; leave it out"),
        (
            ["[MASK]"],
            {"targets": []},
            r"targets=\[\] has no word; give one, or leave it out",
        ),
        (["[MASK]"], {"targets": ["cat", "cat"]}, "'cat' is given twice; give it once"),
        (["[MASK]"], {"targets": "cat"}, "targets='cat' is one string; give a list"),
        (
            ["[MASK]"],
            {"targets": ["cat"], "pieces": 2},
            "pieces=2 is for free guesses, but `targets` names the words",
        ),
        (["[MASK]"], {"pieces": 0}, "pieces=0 is not possible; give a whole number, 1 or more"),
        (["[MASK]"], {"top": 2.0}, "top=2.0 is not possible; give a whole number, 1 or more"),
        (["[MASK]"], {"top": 0}, "top=0 is not possible"),
        ("[MASK]", {}, "is one text; give a list"),
    ],
)
def test_gaps_that_cannot_be_filled_are_refused(model, tokenizer, texts, asked, message):
    with pytest.raises(InputError, match=message):
        fill_texts(model, texts, **asked)


def test_gap_is_one_token_for_a_tokenizer_that_splits_special_tokens(model, tokenizer, folder):
    vocab = tokenizer.vocab
    letters = Tokenizer(vocab, split_special_tokens=True)
    other = Bert(model.config, model.params, model.ops, letters)
    text = "the [MASK] sat."
    for asked in ({}, {"pieces": 2}, {"targets": ["cat", "[MASK]"]}):
        assert fill_texts(other, [text], **asked) == fill_texts(model, [text], **asked)
    assert other.fill_mask(text) == model.fill_mask(text)
    for read in (text, (text, "the [SEP]")):
        assert other.encode(read).tokens == model.encode(read).tokens
    # Texts that are scored are data.
    (score,) = score_texts(other, [text])
    pieces = [piece for _, word in score.words for piece, _ in word]
    assert pieces == letters.tokenize(text) and "[MASK]" not in pieces


# How likely texts are


@pytest.mark.parametrize("within_word", ["token", "l2r"])
def test_each_piece_is_masked_in_turn_and_predicted_from_the_others(model, tokenizer, within_word):
    for text, score in zip(TEXTS, score_texts(model, TEXTS, within_word), strict=True):
        ids, words = tokenizer(text).ids, tokenizer(text).word_ids
        expected = []
        for place in range(1, len(ids) - 1):
            hidden = ids.copy()
            behind = [n for n in range(place, len(ids)) if words[n] == words[place]]
            hidden[behind if within_word == "l2r" else place] = tokenizer.mask_id
            expected.append(log_p(model, hidden, place, ids[place]))
        np.testing.assert_allclose(score.log_probabilities, expected, atol=1e-10)
        facts = score.to_dict()
        assert facts["log_probability"] == pytest.approx(sum(expected))
        assert facts["mean"] == pytest.approx(np.mean(expected)) and facts["tokens"] == len(expected)
        assert facts["perplexity"] == pytest.approx(math.exp(-np.mean(expected)))


def test_words_have_the_sum_of_the_scores_of_their_pieces(model, tokenizer):
    (score,) = score_texts(model, ["Unaffable dogs!"])
    assert [word for word, _ in score.words] == ["Unaffable", "dogs", "!"]
    assert [piece for _, pieces in score.words for piece, _ in pieces] == [
        "un",
        "##aff",
        "##able",
        "dog",
        "##s",
        "!",
    ]
    pieces, as_json = score.log_probabilities, score.to_dict()
    np.testing.assert_allclose(
        [word["log_probability"] for word in as_json["words"]],
        [pieces[:3].sum(), pieces[3:5].sum(), pieces[5]],
        atol=1e-12,
    )
    assert as_json["words"][1] == {
        "word": "dogs",
        "log_probability": pieces[3] + pieces[4],
        "pieces": [("dog", pieces[3]), ("##s", pieces[4])],
    }


def test_left_to_right_the_score_is_the_chain_rule(left_to_right, tokenizer):
    for text, score in zip(TEXTS, score_texts(left_to_right, TEXTS), strict=True):
        ids = tokenizer(text).ids
        expected = [log_p(left_to_right, ids[:n], n - 1, ids[n]) for n in range(1, len(ids) - 1)]
        np.testing.assert_allclose(score.log_probabilities, expected, atol=1e-10)


def test_scores_do_not_depend_on_the_batch(model, left_to_right, tokenizer, monkeypatch):
    for one in (model, left_to_right):
        whole = [score.log_probabilities for score in score_texts(one, TEXTS)]
        with monkeypatch.context() as small:
            small.setattr(gaps, "BATCH_TOKENS", 1)
            small.setattr(scoring, "TEXTS_AT_ONCE", 1)
            small.setattr(gaps, "MAX_LOGITS", 1)
            parts = [score.log_probabilities for score in score_texts(one, TEXTS)]
        np.testing.assert_allclose(np.concatenate(parts), np.concatenate(whole), atol=1e-10)


@pytest.mark.parametrize(
    ("texts", "within_word", "message"),
    [
        (["a cat", ""], "token", "'' has no piece to score; give a text with words in it"),
        (["the " * 15], "token", "takes 17 tokens with .* more than the model's 16 positions"),
        (["a"], "r2l", "within_word='r2l' is unknown; choose token or l2r"),
        ("a", "token", "texts='a' is one text; give a list"),
    ],
)
def test_texts_that_cannot_be_scored_are_refused(model, tokenizer, texts, within_word, message):
    with pytest.raises(InputError, match=message):
        list(score_texts(model, texts, within_word))


def test_scoring_refuses_a_model_without_its_head(folder, model, tokenizer):
    bare = Bert(model.config, model.params, model.ops, model.tokenizer)
    bare.missing = ("cls.predictions.bias",)
    with pytest.raises(InputError, match="^This model has no trained masked-LM head"):
        score_texts(bare, [])


# The commands


def lines(capsys, *words, status=0):
    assert cli.main(list(map(str, words))) == status
    out, err = capsys.readouterr()
    return out.splitlines(), err


def test_fill_mask_command_takes_targets_and_several_pieces(folder, capsys):
    model = ("fill-mask", "--model", folder, "the [MASK] sat")
    found, _ = lines(capsys, *model, "--targets", "cat, unaffable")
    assert {line.split()[1] for line in found} == {"cat", "unaffable"} and "(log p -" in found[0]
    found, _ = lines(capsys, *model, "--pieces", "2", "--top", "3", "--json")
    (guesses,) = json.loads(found[0])["masks"]
    (expected,) = Bert.from_pretrained(folder).fill_mask("the [MASK] sat", 3, pieces=2)
    assert guesses == pytest.approx(dict(expected))
    line = ends_badly(capsys, 2, *map(str, model), "--targets", "cat,xyz")
    assert "--targets cat,xyz: 'xyz' is not in the vocabulary; leave it out." in line


def test_only_the_unanswerable_line_has_an_empty_answer(folder, tmp_path, capsys):
    (tmp_path / "texts").write_text("a [MASK]\nno gap\n \t\nthe [MASK]\n")
    found, err = lines(
        capsys, "fill-mask", "--model", folder, "--file", tmp_path / "texts", "--json", status=1
    )
    answers = list(map(json.loads, found))
    assert [answer and answer["text"] for answer in answers] == ["a [MASK]", None, None, "the [MASK]"]
    place = f"{tmp_path / 'texts'}, line 2"
    assert err == f"minibert: {place}: 'no gap' has no [MASK]; write [MASK] where a word is to be guessed.\n"
    (tmp_path / "texts").write_text("the cat sat\n\u200b\na dog\n", encoding="utf-8")
    found, err = lines(capsys, "score-text", "--model", folder, "--file", tmp_path / "texts", status=1)
    assert [line.split("\t")[3:] for line in found] == [["the cat sat"], [], ["a dog"]]
    assert err.startswith(f"minibert: {place}: ") and err.count("\n") == 1 and "no piece to score" in err


def test_a_line_that_has_no_answer_is_named_by_its_place_in_its_file(folder, tmp_path, capsys):
    contents = {"first": "a [MASK]\nno gap\n", "empty": "", "second": "the [MASK]\nnone\n"}
    files = []
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        files += ["--file", tmp_path / name]
    _, err = lines(capsys, "fill-mask", "--model", folder, *files, status=1)
    places = [line.split(": ")[1] for line in err.splitlines()]
    assert places == [f"{tmp_path / 'first'}, line 2", f"{tmp_path / 'second'}, line 2"]


@pytest.mark.parametrize("command", ["fill-mask", "score-text"])
def test_a_blank_line_has_an_empty_answer_and_no_message(folder, tmp_path, capsys, command):
    (tmp_path / "texts").write_text("\nthe [MASK]\n \t\na [MASK]\n\n", encoding="utf-8")
    words = (command, "--model", folder, "--file", tmp_path / "texts", "--json")
    found, err = lines(capsys, *words)
    assert [answer and answer["text"] for answer in map(json.loads, found)] == [
        None, "the [MASK]", None, "a [MASK]", None,
    ]  # fmt: skip
    assert "line" not in err
    (tmp_path / "blank").write_text("\n\n")
    assert (
        lines(capsys, command, "--model", folder, "--file", tmp_path / "blank", "--json")[0] == ["null"] * 2
    )


def test_answers_to_several_texts_stand_below_their_texts(folder, capsys):
    found, _ = lines(capsys, "fill-mask", "--model", folder, "a [MASK]", "the [MASK]", "--top", "1")
    assert [found[0], found[2], found[3]] == ["a [MASK]", "", "the [MASK]"] and len(found) == 5
    found, _ = lines(capsys, "score-text", "--model", folder, "a", "Unaffable cats")
    assert [found[0], found[3], found[4]] == ["a", "", "Unaffable cats"] and len(found) == 8
    alone, _ = lines(capsys, "fill-mask", "--model", folder, "a [MASK]", "--top", "1")
    assert len(alone) == 1 and alone[0].split()[0].endswith("%")


def test_guesses_for_lines_stand_below_their_lines(folder, tmp_path, capsys):
    (tmp_path / "texts").write_text("a [MASK]\n\nthe [MASK]\n")
    words = ("fill-mask", "--model", folder, "--file", tmp_path / "texts", "--top", "1")
    found, _ = lines(capsys, *words)
    assert [line for line in found if "%" not in line] == ["a [MASK]", "", "", "", "the [MASK]"]


def test_score_text_shows_words_and_sums(folder, model, tokenizer, capsys):
    total = next(score_texts(model, ["Unaffable cats"])).to_dict()["log_probability"]
    found, _ = lines(capsys, "score-text", "--model", folder, "Unaffable cats")
    assert [line.split()[1] for line in found[:2]] == ["Unaffable", "cats"] and "##able -" in found[0]
    assert float(found[2].split()[0]) == pytest.approx(total, abs=2e-3) and "in all: 5 pieces" in found[2]
    found, _ = lines(capsys, "score-text", "--model", folder, "Unaffable cats", "--json")
    assert json.loads(found[0])["log_probability"] == pytest.approx(total, abs=1e-4)
    line = ends_badly(capsys, 2, "score-text", "--model", str(folder), "a", "")
    assert line == "minibert: A text is empty; give one with words in it.\n"
