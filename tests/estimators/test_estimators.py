"""Estimators: data as they come, scikit-learn's protocol, and what is said of data that can't be used."""

import dataclasses
import json
import pickle
import warnings
from collections import UserDict

import numpy as np
import pytest
from small_tasks import GOOD, reviews, write_model

import minibert
from minibert.errors import InputError
from minibert.estimators import base
from minibert.estimators.base import OWN, Estimator, NotFitted
from minibert.estimators.inputs import seed_of
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import classify

FAST = dict(engine="numpy", batch_size=16, epochs=6, learning_rates=5e-3)
TEXTS, LABELS = zip(*reviews(160, 1), strict=True)
OTHERS, THEIRS = zip(*reviews(40, 2), strict=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def fitted(model):
    return minibert.TextClassifier(model, **FAST).fit(TEXTS, LABELS)


class Table:
    """A table as pandas and polars have them: columns by name, each of which becomes a list."""

    def __init__(self, **columns):
        self.columns = list(columns)
        self._columns = {name: np.array(values) for name, values in columns.items()}

    def __getitem__(self, name):
        return self._columns[name]


def test_a_classifier_learns_and_is_saved_for_python_and_the_command_line(fitted, tmp_path):
    assert fitted.classes_.tolist() == ["0", "1"]
    assert fitted.score(OTHERS, THEIRS) > 0.9
    chances = fitted.predict_proba(OTHERS)
    assert chances.shape == (40, 2) and np.allclose(chances.sum(1), 1)
    assert (fitted.predict(OTHERS) == fitted.classes_[chances.argmax(1)]).all()
    fitted.save(tmp_path / "kept")
    loaded = minibert.load(tmp_path / "kept", engine="numpy")
    assert isinstance(loaded, minibert.TextClassifier) and loaded.epochs == 6
    assert (loaded.predict_proba(OTHERS) == chances).all()
    assert loaded.report_ == json.loads(json.dumps(fitted.report_))
    said = classify(tmp_path / "kept", OTHERS, engine="numpy")
    assert [one["label"] for one in said] == fitted.predict(OTHERS).tolist()
    assert (pickle.loads(pickle.dumps(fitted)).predict_proba(OTHERS) == chances).all()


@pytest.mark.parametrize("labels", [list(map(int, LABELS)), np.array(LABELS) == "1", np.array(LABELS, float)])
def test_labels_come_back_as_they_were_given(model, labels, tmp_path):
    classifier = minibert.TextClassifier(model, **FAST | {"max_steps": 1}).fit(TEXTS, labels)
    assert classifier.classes_.dtype == np.asarray(labels).dtype
    assert classifier.predict(OTHERS).dtype == classifier.classes_.dtype
    classifier.save(tmp_path)
    assert minibert.load(tmp_path).predict(OTHERS).dtype == classifier.classes_.dtype


@pytest.mark.parametrize(
    "table",
    [
        lambda **columns: Table(**columns),
        lambda **columns: UserDict(columns),
        lambda **columns: {name: np.array(values) for name, values in columns.items()},
    ],
)
def test_a_table_is_read_by_the_names_of_its_columns(model, fitted, table):
    given = dict(review=TEXTS, stars=LABELS)
    same = [
        minibert.TextClassifier(model, **FAST, text="review").fit(table(**given), "stars"),
        minibert.TextClassifier(model, **FAST, text="review", label="stars").fit(table(**given)),
    ]
    for one in same:
        chances = one.predict_proba(table(review=OTHERS))
        assert (chances == fitted.predict_proba(np.array(OTHERS)[:, None])).all()


def test_dev_of_its_own_is_measured_on_instead(model):
    classifier = minibert.TextClassifier(model, **FAST | {"epochs": 1})
    classifier.fit(TEXTS, LABELS, dev=(OTHERS, THEIRS))
    assert classifier.report_["examples"] == 40
    found = classifier.evaluate(OTHERS, THEIRS)
    assert found["scores"] == classifier.report_["scores"]
    assert (
        found["majority"]["scores"]["accuracy"] >= 0.5 and found["interval"][0] <= found["scores"]["accuracy"]
    )


def test_pairs_numbers_tags_and_answers_are_learnt(model, tmp_path):
    pairs, same = (
        list(zip(TEXTS, TEXTS[1:], strict=False)),
        [a == b for a, b in zip(LABELS, LABELS[1:], strict=False)],
    )
    of_pairs = minibert.TextClassifier(model, **FAST | {"epochs": 1}).fit(pairs, same)
    assert of_pairs.predict_proba(pairs[:3]).shape == (3, 2)
    with pytest.raises(InputError, match="has learnt from pairs of texts; give it such"):
        of_pairs.predict(OTHERS)
    numbers = minibert.TextRegressor(model, **FAST).fit(TEXTS, np.array(LABELS, float))
    assert numbers.predict(OTHERS).dtype == np.float64 and numbers.score(OTHERS, list(map(int, THEIRS))) < 1
    words = [text.split() for text in TEXTS]
    tags = [["GOOD" if word in GOOD else "O" for word in row] for row in words]
    tagger = minibert.TokenTagger(model, **FAST).fit(words, tags)
    assert tagger.score(words, tags) > 0.9 and list(map(len, tagger.predict(words))) == list(map(len, words))
    questions = [("the film", text) for text in TEXTS]
    answers = [text.split()[1] for text in TEXTS]
    answerer = minibert.QuestionAnswerer(model, **FAST | {"epochs": 4}).fit(questions, answers)
    assert answerer.score(questions, answers) > 0.5
    asked = [
        {"text": [answer], "answer_start": [text.index(f" {answer}") + 1]}
        for answer, text in zip(answers, TEXTS, strict=True)
    ]
    assert answerer.score(questions, asked) == answerer.score(questions, answers)
    for estimator, rows in ((numbers, OTHERS), (tagger, words), (answerer, questions)):
        estimator.save(tmp_path / estimator.TASK)
        loaded = minibert.load(tmp_path / estimator.TASK, engine="numpy")
        assert type(loaded) is type(estimator)
        assert list(loaded.predict(rows[:5])) == list(estimator.predict(rows[:5]))


def test_any_number_of_classes_is_learnt_from_lists_and_from_a_matrix(model, tmp_path):
    labels = [
        sorted({"good" if word in GOOD else "short" for word in text.split() if word in (*GOOD, "a", "it")})
        for text in TEXTS
    ]
    several = minibert.MultilabelClassifier(model, **FAST | {"epochs": 8}).fit(TEXTS, labels)
    assert several.classes_.tolist() == ["good", "short"]
    matrix = np.array([[name in row for name in several.classes_] for row in labels]).astype(int)
    assert several.predict(TEXTS).shape == matrix.shape and several.score(TEXTS, labels) > 0.8
    of_matrix = minibert.MultilabelClassifier(model, **FAST | {"epochs": 8}).fit(TEXTS, matrix)
    assert of_matrix.classes_.tolist() == [0, 1]
    assert (of_matrix.predict_proba(TEXTS) == several.predict_proba(TEXTS)).all()
    several.save(tmp_path)
    loaded = minibert.load(tmp_path, engine="numpy")
    assert isinstance(loaded, minibert.MultilabelClassifier)
    assert (loaded.predict(TEXTS) == several.predict(TEXTS)).all()
    with pytest.raises(InputError, match="Row 0 of y is no list of labels .'good'."):
        several.fit(TEXTS, ["good"] * len(TEXTS))
    with pytest.raises(InputError, match="y is a matrix with other values than 0 and 1"):
        several.fit(TEXTS, 2 * matrix)


def test_every_option_of_a_run_is_a_parameter_with_its_default():
    columns = {"text", "second", "label", "words", "tags", "question", "context", "answer"}
    replaced = {"task", "data", "columns", "seed", "train_examples", "dev_examples", "stratified"}
    of_taggers = {"feature_based", "width"}  # of minibert.finetune
    options = {field.name: field for field in dataclasses.fields(FinetuneOptions)}
    for kind in (
        minibert.TextClassifier,
        minibert.TextRegressor,
        minibert.TokenTagger,
        minibert.QuestionAnswerer,
    ):
        parameters = {field.name: field for field in dataclasses.fields(kind)}
        assert parameters.keys() - options.keys() <= set(OWN) | columns
        for name in parameters.keys() & options.keys() - {"model", "split_dev"}:
            assert parameters[name].default == options[name].default, name
        for name in parameters:
            assert f"{name} :" in kind.__doc__ or f"{name}," in kind.__doc__
    known = {
        field.name
        for kind in (minibert.TextClassifier, minibert.QuestionAnswerer)
        for field in dataclasses.fields(kind)
    }
    of_several_files = {"also", "also_examples"}
    assert options.keys() - known == replaced | of_taggers | of_several_files


def test_the_protocol_of_scikit_learn(model):
    classifier = minibert.TextClassifier(model, epochs=2, learning_rates=(1e-3,))
    assert repr(classifier) == f"TextClassifier({str(model)!r}, epochs=2, learning_rates=(0.001,))"
    parameters = classifier.get_params()
    assert type(classifier)(**parameters).get_params() == parameters
    assert classifier.set_params(epochs=3) is classifier and classifier.epochs == 3
    with pytest.raises(InputError, match="no parameter 'epoch'; did you mean epochs"):
        classifier.set_params(epoch=3)
    assert not classifier.__sklearn_is_fitted__()
    with pytest.raises(NotFitted, match="This TextClassifier is not fitted yet; call fit first"):
        classifier.predict(["a"])
    assert seed_of(None) == 0 and seed_of(np.int64(7)) == 7
    assert seed_of(np.random.RandomState(3)) == seed_of(np.random.RandomState(3))
    assert seed_of(np.random.default_rng(3)) == seed_of(np.random.default_rng(3))


def test_ctrl_c_keeps_what_was_learnt_and_fit_goes_on(model, fitted, monkeypatch):
    stopped = minibert.TextClassifier(model, **FAST)

    def stop(step, values):
        if step == 20 and "train/loss" in values:
            raise KeyboardInterrupt

    stopped.on_log = stop
    with pytest.raises(KeyboardInterrupt, match="saved in .*; call fit again with the same data"):
        stopped.fit(TEXTS, LABELS)
    stopped.on_log = None
    resumed = []
    real = base.finetune
    monkeypatch.setattr(base, "finetune", lambda *a, **k: resumed.append(k["resume"]) or real(*a, **k))
    stopped.fit(TEXTS, LABELS)
    assert (stopped.predict_proba(OTHERS) == fitted.predict_proba(OTHERS)).all()
    stopped.fit(TEXTS[:40], LABELS[:40])
    assert resumed == [True, False]


def test_a_folder_of_ones_own_is_that_of_a_run_and_not_written_over(model, tmp_path):
    out = tmp_path / "mine"
    classifier = minibert.TextClassifier(model, **FAST | {"max_steps": 2}, out=out).fit(TEXTS, LABELS)
    assert {"report.html", "task.json", "examples"} <= {path.name for path in out.iterdir()}
    assert (
        minibert.load(out, engine="numpy").predict_proba(OTHERS) == classifier.predict_proba(OTHERS)
    ).all()
    with pytest.raises(InputError, match="out=.* already holds a run; load it, or choose another folder"):
        classifier.fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    "X, y, message",
    [
        (["a", "the"], ["x"], "X has 2 rows and y 1; give one label for each row"),
        (["a", "the"], ["x", None], "Row 1 of y is missing .None.; correct it, or leave the row out"),
        (["a", "the"], [0, float("nan")], "Row 1 of y is missing .nan."),
        (
            ["a", "the"],
            [0, 0.5],
            "Row 1 of y is continuous and so no class; a TextRegressor learns numbers .0.5.",
        ),
        (["a", "the"], [0, "x"], "y has both 0 and 'x'|both strings and other labels"),
        (["a", "the"], [["x"], ["y"]], "Row 0 of y is no single label"),
        (["a", "the"], ["x", " "], "Row 1 of y is empty"),
        (["a", " "], ["x", "y"], "Row 1 of X is empty; give a text with words in it"),
        (["a", None], ["x", "y"], "Row 1 of X is missing .None.; leave the row out, or fill it"),
        (["a", 3.5], ["x", "y"], "Row 1 of X is 3.5, a float, and no text; give strings"),
        ([("a", "b"), "c"], ["x", "y"], "X mixes texts and pairs of texts .row 1.; give all or none"),
        ([("a", "b", "c")] * 2, ["x", "y"], "Row 0 of X has 3 parts; give a text, or a pair"),
        ([("a", None)] * 2, ["x", "y"], "Row 0 of X is missing .None."),
        ("a text", ["x"], "X='a text' is one text; give a list of them"),
        (7, ["x"], "X=7 is no list"),
        ([], [], "X has no row; give at least one text"),
        (["a"], ["x"], "X has one sample, and the model is measured on another"),
        (["a", "the"], None, "the target y is None; give a value for each row"),
        (["a", "the"] * 9, ["x"] * 18, "have 1 label .x.; a class needs another one to be told from"),
        (
            {"review": ["a"], "stars": [1]},
            "stars",
            "no column for text='text', but review, stars; name the right",
        ),
        ({"text": ["a"]}, "stars", "no column for label='stars', but text; name the right one"),
    ],
)
def test_data_that_can_not_be_learnt_from_are_refused_with_their_row(model, tmp_path, X, y, message):
    classifier = minibert.TextClassifier(model, engine="numpy", out=tmp_path / "run")
    with warnings.catch_warnings(action="ignore"), pytest.raises(InputError, match=message):
        classifier.fit(X, y)
    assert not (tmp_path / "run" / "finetune.json").exists()


def test_other_estimators_refuse_what_they_can_not_learn_from(model):
    cases = [
        (minibert.TextRegressor, ["a", "the"], [1, "much"], "Row 1 of y is no number .'much'."),
        (minibert.TextRegressor, ["a", "the"], [1, float("inf")], "Row 1 of y is no finite number"),
        (minibert.TokenTagger, ["a b"], [["O"]], "Row 0 of X is 'a b'; give a list of words"),
        (minibert.TokenTagger, [["a", "b"]], [["O"]], "Row 0 has 2 words and 1 tags; give every word one"),
        (minibert.TokenTagger, [["a"]], ["O"], "Row 0 of y is 'O'; give a list of tags"),
        (minibert.TokenTagger, [], [], "X has no row; give at least one sentence"),
        (minibert.QuestionAnswerer, ["a"], ["b"], "Row 0 of X is one text; give pairs of question and"),
        (
            minibert.QuestionAnswerer,
            [("a", "b c")],
            ["d"],
            "Row 0 of y: the answer 'd' does not stand in its",
        ),
    ]
    for kind, X, y, message in cases:
        with pytest.raises(InputError, match=message):
            kind(model).fit(X, y)


def test_errors_of_files_name_rows_and_a_useless_model_is_told(model):
    with pytest.raises(InputError, match="^Row 1 of X has an empty sentence, or one without a piece"):
        minibert.TextClassifier(model).fit(["a", "\u200d"] * 9, ["x", "y"] * 9)
    with pytest.raises(InputError, match="^The examples to learn from have 1 label"):
        minibert.TextClassifier(model).fit(["a", "the"] * 9, ["x"] * 18)
    with pytest.raises(TypeError, match=r"TextClassifier\(\) has no argument 'epoch'; did you mean epochs\?"):
        minibert.TextClassifier(model, epoch=2)
    with pytest.warns(
        UserWarning, match="Not better than always answering .* Give more examples, more epochs"
    ):
        minibert.TextClassifier(model, max_steps=1, engine="numpy").fit(TEXTS, LABELS)


def test_columns_of_a_table_are_known_to_the_commands(model, tmp_path):
    table = {"review": TEXTS, "stars": LABELS}
    classifier = minibert.TextClassifier(model, **FAST | {"max_steps": 2}, text="review").fit(table, "stars")
    classifier.save(tmp_path)
    stored = json.loads((tmp_path / "task.json").read_text())
    assert stored["columns"] == {"text": "review", "label": "stars"}
    assert repr(classifier.report_).startswith("Your own table, classes of texts")


def test_a_label_of_dev_alone_is_refused_with_its_row(model):
    with pytest.raises(InputError, match="Row 1 of dev has the label '7', which no row to learn from has"):
        minibert.TextClassifier(model).fit(TEXTS, LABELS, dev=(["a", "the"], ["1", "7"]))
    with pytest.raises(InputError, match="dev is not X and y; give a tuple of the two"):
        minibert.TextClassifier(model).fit(TEXTS, LABELS, dev=["a"])


def test_a_classifier_of_a_loop_of_ones_own_is_saved_for_the_commands(fitted, tmp_path):
    params, tokenizer = fitted._model.params, fitted._model.tokenizer
    mine = minibert.TextClassifier.of(params, tokenizer, ["0", "1"], max_length=24)
    mine.save(tmp_path)
    said = classify(tmp_path, OTHERS, engine="numpy")
    chances = [list(one["probabilities"].values()) for one in said]
    assert np.allclose(chances, fitted.predict_proba(OTHERS), atol=1e-5)
    with pytest.raises(InputError, match="'classify' of 2 outputs, not one for each of 3 classes"):
        minibert.TextClassifier.of(params, tokenizer, ["a", "b", "c"])


def test_what_no_estimator_asks_is_named(model, tmp_path):
    assert isinstance(minibert.load(model), minibert.Bert)
    (tmp_path / "finetune.json").write_text("{}")
    with pytest.raises(InputError, match="holds a run on its way, or LSTMs"):
        minibert.load(tmp_path)
    assert issubclass(minibert.TextClassifier, Estimator)
