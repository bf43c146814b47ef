"""Gradient times input, against differences of the score when the word's vector is made longer or shorter."""

import numpy as np
import pytest
from small_tasks import reviews, write_model

import minibert
from minibert.base.errors import InputError
from minibert.data.glue import TextExample
from minibert.finetuning import explaining
from minibert.finetuning.explaining import CAVEAT, Word, explain
from minibert.model import heads
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops

FAST = dict(engine="numpy", batch_size=16, epochs=6, optimizer="adamw", learning_rates=5e-3)
TEXTS, LABELS = zip(*reviews(160, 1), strict=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def classifier(folder):
    return minibert.TextClassifier(folder, **FAST).fit(TEXTS, LABELS)


def log_odds(model, ids, stretched, by):
    """The log-odds of class 1 where the word vector of one token is `1 + by` times as long."""
    params = model.params.astype(np.float64)
    features = model.features([TextExample("0", TEXTS[0], None, None)])
    batch = TaskBatch.pack_features(features, model.head)
    assert batch.input_ids.tolist() == ids
    tree = params.tree
    position = tree["embeddings"]["position"].copy()
    position[stretched] += by * tree["embeddings"]["word"][ids[stretched]]
    tree = tree | {"embeddings": tree["embeddings"] | {"position": position}}
    logits, _ = heads.logits(Ops(), model.config, model.head, tree, batch)
    return logits[0, 1] - logits[0, 0]


def test_scores_are_slopes_of_the_log_odds_along_each_word(classifier):
    model = classifier.model_
    explanation = explain(model, TextExample("0", TEXTS[0], None, None), "1")
    encoding = model.tokenizer(TEXTS[0])
    ids = encoding.ids.tolist()
    h = 1e-4
    slopes = [
        (log_odds(model, ids, at, h) - log_odds(model, ids, at, -h)) / (2 * h) for at in range(len(ids))
    ]
    assert explanation.score == pytest.approx(log_odds(model, ids, 0, 0), abs=1e-4)
    pieces = [score for _, score in explanation.words]
    assert len(pieces) == len(ids) - 2  # every word of these texts is one piece
    np.testing.assert_allclose(pieces, slopes[1:-1], atol=2e-4)
    assert explanation.rest == pytest.approx(slopes[0] + slopes[-1], abs=2e-4)
    assert max(map(abs, slopes)) > 0.01


def test_pieces_of_a_word_are_added_up_and_a_class_is_explained_against_the_others(classifier):
    odds = [classifier.explain(TEXTS[0], label) for label in ("0", "1")]
    np.testing.assert_allclose([score for _, score in odds[0].words], [-score for _, score in odds[1].words])
    assert odds[0].score == pytest.approx(-odds[1].score)
    chances = classifier.predict_proba([TEXTS[0]])[0]
    assert odds[1].score == pytest.approx(np.log(chances[1] / chances[0]), abs=1e-4)
    likelier = classifier.explain(TEXTS[0])
    assert likelier.answer == classifier.predict([TEXTS[0]])[0] and likelier.score > 0


def test_words_of_several_pieces_have_the_sum_of_their_scores():
    from minibert.finetuning.explaining import _by_words
    from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer

    tokenizer = Tokenizer([*SPECIAL_TOKENS, "un", "##able", "!"])
    words, rest = _by_words(tokenizer, [2, 5, 6, 7, 3], [1.0, 0.25, 0.5, -2.0, 4.0])
    assert words == [Word("unable", 0.75), Word("!", -2.0)] and rest == 5.0


def test_an_explanation_is_shown_with_its_caveat_and_hostile_words_stay_text(classifier):
    explanation = classifier.explain(TEXTS[0])
    assert str(explanation).splitlines()[0] == f"{explanation.answer}: {explanation.score:+.3f}"
    assert str(explanation).endswith(CAVEAT)
    largest = explanation.top(1)[0]
    assert abs(largest.score) == max(abs(word.score) for word in explanation.words)
    hostile = type(explanation)("<b>", 1.0, [Word("<script>", 1.0), Word("x", -0.5)], 0.0)
    page = hostile._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page and "&lt;b&gt;" in page


@pytest.mark.thorough
def test_numbers_and_several_classes_are_explained(folder):
    regressor = minibert.TextRegressor(folder, **FAST | {"max_steps": 3}).fit(TEXTS, range(160))
    explanation = regressor.explain(TEXTS[1])
    assert explanation.answer == "value"
    assert explanation.score == pytest.approx(regressor.predict([TEXTS[1]])[0], rel=1e-5)
    several = minibert.MultilabelClassifier(folder, **FAST | {"max_steps": 3})
    several.fit(TEXTS, [[label] for label in LABELS])
    chance = several.predict_proba([TEXTS[1]])[0, 1]
    assert several.explain(TEXTS[1], "1").score == pytest.approx(np.log(chance / (1 - chance)), abs=1e-4)


def test_what_can_not_be_explained_is_refused(classifier, folder):
    with pytest.raises(InputError, match="answer='2' is not a class of this model; choose one of 0, 1"):
        classifier.explain(TEXTS[0], "2")
    with pytest.raises(InputError, match="text=None is not a text; give one text, or a pair as a tuple"):
        classifier.explain(None)
    with pytest.raises(InputError, match="text=.* is several; give one text"):
        classifier.explain([TEXTS[0], TEXTS[1]])
    long = minibert.TextClassifier(folder, **FAST | {"max_steps": 1}, long="windows", max_length=8)
    long.fit(TEXTS, LABELS)
    with pytest.raises(InputError, match=r"takes \d+ windows; give a part of at most 8 tokens"):
        long.explain(" ".join(TEXTS[:3]))


@pytest.mark.parametrize(("scores", "shares"), [([4.0, -2.0], [1.0, -0.5]), ([0.0], [0.0]), ([], [])])
def test_a_word_is_coloured_by_its_share_of_the_largest_contribution(scores, shares, monkeypatch):
    shown = {}
    monkeypatch.setattr(explaining, "rendered", lambda template, **values: shown.update(values))
    words = [Word(f"w{number}", score) for number, score in enumerate(scores)]
    explaining.Explanation("good", 1.0, words, 0.0)._repr_html_()
    assert [share for *_, share in shown["words"]] == shares
