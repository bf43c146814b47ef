"""Estimators: data as they come, scikit-learn's protocol, and what is said of data that can't be used."""

import dataclasses
import gc
import json
import pickle
import random
import warnings
from collections import UserDict
from types import SimpleNamespace

import numpy as np
import pytest
from small_tasks import GOOD, reviews, write_model, write_table

import minibert
from minibert import cli
from minibert.api import base
from minibert.api.base import Estimator, NotFitted
from minibert.api.inputs import listed, seed_of, text_pairs
from minibert.base.errors import DivergedError, InputError, InputWarning
from minibert.base.files import sole_writer
from minibert.finetuning.examples import read_examples
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import classify
from minibert.model.ops import Ops
from minibert.tasks import registry
from minibert.tasks.stored import TaskFile

FAST = dict(engine="numpy", batch_size=16, epochs=6, optimizer="adamw", learning_rates=5e-3)
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


def test_custom_engine_object_trains_and_predicts(model):
    calls = []

    class Counting(Ops):
        def layer_norm(self, *given, **named):
            calls.append(1)
            return super().layer_norm(*given, **named)

    options = FAST | {"max_steps": 2}
    plain = minibert.TextClassifier(model, **options).fit(TEXTS, LABELS)
    counted = minibert.TextClassifier(model, **options, ops=Counting()).fit(TEXTS, LABELS)
    in_training = len(calls)
    assert in_training > 10
    assert (counted.predict_proba(OTHERS) == plain.predict_proba(OTHERS)).all()
    assert len(calls) > in_training
    with pytest.raises(InputError, match="ops='numpy' is not valid; give an engine object, or one by its"):
        minibert.TextClassifier(model, **options, ops="numpy").fit(TEXTS, LABELS)


def test_classifier_learns_and_loads_from_python_and_the_command_line(fitted, tmp_path):
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


def test_score_on_trained_texts_warns_also_after_loading(fitted, tmp_path):
    fitted.save(tmp_path)
    known = r"The model was trained on the texts of \d+ of 50 examples, so its scores say little"
    for classifier in (fitted, minibert.load(tmp_path, "numpy"), pickle.loads(pickle.dumps(fitted))):
        for ask in (classifier.score, classifier.evaluate):
            with pytest.warns(InputWarning, match=known):
                ask(TEXTS[:50], LABELS[:50])
    new = [f"{text} {number}" for number, text in enumerate(OTHERS)]
    with warnings.catch_warnings(action="error"):
        fitted.score(new, THEIRS)


def test_optimize_for_inference_keeps_predictions(fitted, tmp_path):
    pytest.importorskip("minibert.engines.cpp._kernels", reason="the kernels in C++ are not built")
    fitted.save(tmp_path / "kept")
    loaded = minibert.load(tmp_path / "kept", engine="cpp", threads=2)
    chances, params = loaded.predict_proba(OTHERS), loaded.model_.params
    own = params.flat
    assert loaded.optimize_for_inference() is loaded
    weight = params["layers.0.feed_forward.in_weight"]
    place = (weight.ctypes.data - own.ctypes.data) // own.itemsize
    own[place : place + weight.size] = 0  # what is read lies elsewhere now
    assert not weight.any() and (loaded.predict_proba(OTHERS) == chances).all()
    with pytest.raises(ValueError, match="read-only"):
        weight[...] = 0
    assert loaded.fit(TEXTS[:32], LABELS[:32]).predict(OTHERS).shape == (40,)


def test_classifier_score_is_accuracy_whatever_the_metric_of_its_task(fitted, tmp_path):
    fitted.save(tmp_path)
    stored = TaskFile.load(tmp_path)
    dataclasses.replace(stored, task="cola", columns={}).save(tmp_path)  # whose only metric is Matthews'
    of_cola, right = minibert.load(tmp_path), np.mean(fitted.predict(OTHERS) == THEIRS)
    assert of_cola.score(OTHERS, THEIRS) == fitted.score(OTHERS, THEIRS) == right
    assert fitted.score(OTHERS, THEIRS) == fitted.evaluate(OTHERS, THEIRS)["scores"]["accuracy"]


@pytest.mark.parametrize("labels", [list(map(int, LABELS)), np.array(LABELS) == "1", np.array(LABELS, float)])
def test_labels_keep_their_dtype(model, labels, tmp_path):
    classifier = minibert.TextClassifier(model, **FAST | {"max_steps": 1}).fit(TEXTS, labels)
    assert classifier.classes_.dtype == np.asarray(labels).dtype
    assert classifier.predict(OTHERS).dtype == classifier.classes_.dtype
    classifier.save(tmp_path)
    assert minibert.load(tmp_path).predict(OTHERS).dtype == classifier.classes_.dtype


@pytest.mark.parametrize(
    "table",
    [
        lambda **columns: Table(**columns),
        pytest.param(lambda **columns: UserDict(columns), marks=pytest.mark.thorough),
        pytest.param(
            lambda **columns: {name: np.array(values) for name, values in columns.items()},
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_tables_are_read_by_column_name(model, fitted, table):
    given = dict(review=TEXTS, stars=LABELS)
    same = [
        minibert.TextClassifier(model, **FAST, text="review").fit(table(**given), "stars"),
        minibert.TextClassifier(model, **FAST, text="review", label="stars").fit(table(**given)),
    ]
    for one in same:
        chances = one.predict_proba(table(review=OTHERS))
        assert (chances == fitted.predict_proba(np.array(OTHERS)[:, None])).all()


def test_dev_replaces_the_held_out_share(model):
    classifier = minibert.TextClassifier(model, **FAST | {"epochs": 1})
    classifier.fit(TEXTS, LABELS, dev=(OTHERS, THEIRS))
    assert classifier.report_["examples"] == 40
    found = classifier.evaluate(OTHERS, THEIRS)
    assert found["scores"] == classifier.report_["scores"]
    assert (
        found["majority"]["scores"]["accuracy"] >= 0.5 and found["interval"][0] <= found["scores"]["accuracy"]
    )


@pytest.mark.thorough
def test_every_estimator_learns_its_kind_of_label(model, tmp_path):
    pairs, same = (
        list(zip(TEXTS, TEXTS[1:], strict=False)),
        [a == b for a, b in zip(LABELS, LABELS[1:], strict=False)],
    )
    of_pairs = minibert.TextClassifier(model, **FAST | {"epochs": 1}).fit(pairs, same)
    assert of_pairs.predict_proba(pairs[:3]).shape == (3, 2)
    with pytest.raises(InputError, match="was trained on pairs of texts; give it those"):
        of_pairs.predict(OTHERS)
    numbers = minibert.TextRegressor(model, **FAST).fit(TEXTS, np.array(LABELS, float))
    assert numbers.predict(OTHERS).dtype == np.float64 and numbers.score(OTHERS, list(map(int, THEIRS))) < 1
    words = [text.split() for text in TEXTS]
    tags = [["GOOD" if word in GOOD else "O" for word in row] for row in words]
    tagger = minibert.TokenTagger(model, **FAST).fit(words, tags)
    assert tagger.score(words, tags) > 0.9 and list(map(len, tagger.predict(words))) == list(map(len, words))
    tagged = tagger.tag(TEXTS[:5])
    assert [[word["tag"] for word in one["words"]] for one in tagged] == tagger.predict(words[:5])
    for text, one in zip(TEXTS, tagged, strict=False):
        assert one["text"] == text and [word["word"] for word in one["words"]] == text.split()
        assert all(text[word["begin"] : word["end"]] == word["word"] for word in one["words"])
    with pytest.raises(InputError, match="texts='a fine film' is one text; give a list of them"):
        tagger.tag("a fine film")
    with pytest.raises(InputError, match="Row 1 of texts is 3; give a string"):
        tagger.tag(["a", 3])
    questions = [("the film", text) for text in TEXTS]
    answers = [text.split()[1] for text in TEXTS]
    answerer = minibert.QuestionAnswerer(model, **FAST | {"epochs": 4}).fit(questions, answers)
    assert answerer.score(questions, answers) > 0.5
    spans = answerer.predict_spans(questions[:5])
    assert [span["text"] for span in spans] == answerer.predict(questions[:5])
    for (_, text), span in zip(questions, spans, strict=False):
        assert text[span["begin"] : span["end"]] == span["text"] == span["n_best"][0]["text"]
        assert sum(one["probability"] for one in span["n_best"]) == pytest.approx(1)
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


@pytest.mark.thorough
def test_multilabel_classifier_learns_from_lists_and_from_a_matrix(model, tmp_path):
    labels = [
        sorted({"good" if word in GOOD else "short" for word in text.split() if word in (*GOOD, "a", "it")})
        for text in TEXTS
    ]
    several = minibert.MultilabelClassifier(model, **FAST | {"epochs": 8}).fit(TEXTS, labels)
    assert several.classes_.tolist() == ["good", "short"]
    matrix = np.array([[name in row for name in several.classes_] for row in labels]).astype(int)
    assert several.predict(TEXTS).shape == matrix.shape and several.score(TEXTS, labels) > 0.8
    assert several.thresholds_.shape == (2,)
    assert (several.predict(TEXTS) == (several.predict_proba(TEXTS) >= several.thresholds_)).all()
    of_matrix = minibert.MultilabelClassifier(model, **FAST | {"epochs": 8}).fit(TEXTS, matrix)
    assert of_matrix.classes_.tolist() == [0, 1]
    assert (of_matrix.predict_proba(TEXTS) == several.predict_proba(TEXTS)).all()
    several.save(tmp_path)
    loaded = minibert.load(tmp_path, engine="numpy")
    assert isinstance(loaded, minibert.MultilabelClassifier)
    assert (loaded.predict(TEXTS) == several.predict(TEXTS)).all()
    with pytest.raises(InputError, match="Row 0 of y is not a list of labels .'good'."):
        several.fit(TEXTS, ["good"] * len(TEXTS))
    with pytest.raises(InputError, match="y is a matrix with other values than 0 and 1"):
        several.fit(TEXTS, 2 * matrix)
    with pytest.raises(InputError, match="y has lists of zeros and ones; if they are a matrix, give np"):
        minibert.MultilabelClassifier(model, **STEP).fit(TEXTS, matrix.tolist())
    table = dict(zip(several.classes_, matrix.T, strict=True))
    named = minibert.MultilabelClassifier(model, **STEP).fit(TEXTS, table)
    assert named.classes_.tolist() == ["good", "short"]
    assert named.score(TEXTS, table) == named.score(TEXTS, matrix) == named.score(TEXTS, labels)
    with pytest.raises(InputError, match="y has 1 columns, and there are 2 classes"):
        named.score(TEXTS, matrix[:, :1])


def test_every_option_of_a_run_is_a_parameter_with_its_default():
    of_memory = {"out", "verbose", "random_state", "ops", "on_log"}
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
        assert parameters.keys() - options.keys() <= of_memory | columns
        for name in parameters.keys() & options.keys() - {"model", "split_dev"}:
            assert parameters[name].default == options[name].default, name
        for name in parameters:
            assert f"\n{name} : " in kind.__doc__
    known = {
        field.name
        for kind in (minibert.TextClassifier, minibert.QuestionAnswerer)
        for field in dataclasses.fields(kind)
    }
    of_several_files = {"also", "also_examples"}
    assert options.keys() - known == replaced | of_taggers | of_several_files


def test_estimators_follow_the_protocol_of_scikit_learn(model):
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


@pytest.mark.thorough
def test_fit_resumes_after_ctrl_c(model, fitted, monkeypatch):
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


def test_out_keeps_the_run_folder_and_refuses_a_second_run(model, tmp_path, monkeypatch):
    out = tmp_path / "mine"
    classifier = minibert.TextClassifier(model, **FAST | {"max_steps": 2}, out=out).fit(TEXTS, LABELS)
    assert {"report.html", "task.json", "examples"} <= {path.name for path in out.iterdir()}
    assert (
        minibert.load(out, engine="numpy").predict_proba(OTHERS) == classifier.predict_proba(OTHERS)
    ).all()
    with pytest.raises(InputError, match="out=.* already holds a run; load it, or choose another folder"):
        classifier.fit(TEXTS, LABELS)
    loaded = minibert.load(out, engine="numpy")  # which is fitted anew elsewhere
    assert loaded.out is None and loaded.fit(FEW, alternating("x", "y")).classes_.tolist() == ["x", "y"]
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="^out='' names no file or folder; give one[.]$"):
        minibert.TextClassifier(model, **STEP, out="").fit(FEW, alternating("x", "y"))
    pretrained = tmp_path / "pretrained"
    pretrained.mkdir()
    (pretrained / "training.json").write_text("{}")
    with pytest.raises(InputError, match="holds training.json of a pre-training run, which this would spoil"):
        classifier.save(pretrained)
    assert [path.name for path in pretrained.iterdir()] == ["training.json"]
    (pretrained / "training.json").rename(pretrained / "finetune.json")
    with pytest.raises(InputError, match="holds finetune.json of a fine-tuned model, which this would spoil"):
        classifier.save(pretrained)
    (pretrained / "finetune.json").rename(pretrained / "training.json")
    classifier.save(out)  # where it is from
    monkeypatch.chdir(pretrained)
    params = classifier.model_.params
    elsewhere = minibert.TextClassifier.of(params, classifier.model_.tokenizer, classifier.classes_)
    with pytest.raises(InputError, match="holds training.json of a pre-training run"):
        elsewhere.save(".")
    monkeypatch.chdir(tmp_path)
    assert sorted(tmp_path.iterdir()) == [*before, pretrained]


@pytest.mark.parametrize(
    "X, y, message",
    [
        (["a", "the"], ["x"], "X has 2 rows and y 1; give one label for each row"),
        (["a", "the"], ["x", None], "Row 1 of y is missing .None.; correct it, or leave the row out"),
        (["a", "the"], [0, float("nan")], "Row 1 of y is missing .nan."),
        (
            ["a", "the"],
            [0, 0.5],
            "^Row 1 of y, 0.5, is continuous and not a class; TextRegressor learns numbers.$",
        ),
        (["a", "the"], [0, "x"], "y has 0 in row 0 and 'x' in row 1; give labels of one type"),
        (
            ["a", "the"],
            [["x"], ["y"]],
            "^y is a matrix of one column; give its values alone, np.ravel.y.[.]$",
        ),
        (["a", "the"], [[], []], "^y has no value in any row; give one for each row[.]$"),
        (["a", "the"], [["x"], "y"], "Row 0 of y is not a string, a whole number or a bool .*'x'"),
        (["a", "the"], ["x", " "], "Row 1 of y is empty"),
        (["a", " "], ["x", "y"], "Row 1 of X is empty; give a text with words in it"),
        (["a", None], ["x", "y"], "Row 1 of X is missing .None.; leave the row out, or fill it"),
        (["a", 3.5], ["x", "y"], "Row 1 of X is 3.5, of type float; give strings"),
        ([("a", "b"), "c"], ["x", "y"], "X mixes texts and pairs of texts .row 1.; give every row a second"),
        ([("a", "b", "c")] * 2, ["x", "y"], "Row 0 of X has 3 parts; give a text, or a pair"),
        ([("a", None)] * 2, ["x", "y"], "^The second text in row 0 of X is missing .None."),
        ("a text", ["x"], "X='a text' is one text; give a list of them"),
        (7, ["x"], "X=7 is not a list"),
        ([], [], "X has no row; give at least one text"),
        ({"a", "the"}, ["x", "y"], "X is a set, which has no order; give a list"),
        (["a"], ["x"], "X has one sample, and the model is measured on another"),
        (["a", "the"], None, "the target y is None; give a value for each row"),
        (["a", "the"] * 9, ["x"] * 18, "^every training example has the label .x.; give examples of at"),
        (
            {"review": ["a"], "stars": [1]},
            "stars",
            "no column for text='text', only review, stars; name one",
        ),
        ({"text": ["a"]}, "stars", "no column for label='stars', only text; name one of these"),
        ({"text": "a text"}, ["x"], r"^X\['text'\]='a text' is one text; give a list of them[.]$"),
        (
            ["a"],
            {"stars": 1},
            r"^y\['stars'\]=1 is not a list; give one, an array, or a column of a table[.]$",
        ),
    ],
)
def test_unusable_training_data_is_refused_with_its_row(model, tmp_path, X, y, message):
    classifier = minibert.TextClassifier(model, engine="numpy", out=tmp_path / "run")
    with warnings.catch_warnings(action="ignore"), pytest.raises(InputError, match=message):
        classifier.fit(X, y)
    assert not (tmp_path / "run" / "finetune.json").exists()


def test_error_for_a_missing_column_names_its_parameter(model):
    words, pairs = {"words": [["a"]] * 2, "other": [["X"]] * 2}, {"question": ["a"] * 2, "other": ["b"] * 2}
    for estimator, table, said in (
        (minibert.TokenTagger(model, tags="none"), words, "tags='none'"),
        (minibert.QuestionAnswerer(model, question="none"), pairs, "question='none'"),
        (minibert.QuestionAnswerer(model, context="none"), pairs, "context='none'"),
        (minibert.QuestionAnswerer(model, context="other", answer="none"), pairs, "answer='none'"),
    ):
        with pytest.raises(InputError, match=f"no column for {said}, only"):
            estimator.fit(table)


def test_ambiguous_lazy_and_sparse_data_is_refused(model):
    twice = Table(text=["a", "the"])
    twice._columns["text"] = Table(text=["a", "the"])  # what pandas gives where two have one name
    lazy = Table(text=["a", "the"])
    lazy.collect = lambda: None
    sparse = SimpleNamespace(toarray=lambda: np.eye(2))
    for X, y, message in (
        (twice, ["x", "y"], "The table has two columns named 'text'; rename one"),
        (lazy, ["x", "y"], "The table is lazy; give what its collect.. returns"),
        (sparse, ["x", "y"], "X is a sparse matrix; give texts"),
        (["a", "the"], sparse, r"y is a sparse matrix; give y.toarray\(\)"),
    ):
        with pytest.raises(InputError, match=message):
            minibert.TextClassifier(model).fit(X, y)


def test_saving_into_its_run_leaves_a_run_whole(model, tmp_path):
    classifier = minibert.TextClassifier(model, text="review", label="stars", out=tmp_path / "run", **STEP)
    classifier.fit({"review": TEXTS, "stars": LABELS}).save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "task.json").read_text())["columns"]["text"] == "review"
    assert minibert.verify(tmp_path / "run").findings == []


def test_unused_columns_may_hold_anything():
    table = Table(text=["a", "the"], collect=[1, 2])
    table.columns += ["id", "id"]
    table.collect = table["collect"]  # as pandas gives a column of that name
    assert text_pairs(table, "text", None) == [("a", None), ("the", None)]


def test_arrow_columns_are_read():
    class Column:
        """A column as pyarrow has it: its items are scalars of its own."""

        def to_pylist(self):
            return ["a", "the"]

    assert listed(Column(), "X") == ["a", "the"]


def test_other_estimators_refuse_unusable_training_data(model):
    cases = [
        (minibert.TextRegressor, ["a", "the"], [1, "much"], "Row 1 of y is not a finite number .'much'."),
        (minibert.TextRegressor, ["a", "the"], [1, float("inf")], "Row 1 of y is not a finite number"),
        (minibert.TextRegressor, ["a", "the"], [1, 10**400], "Row 1 of y is not a finite number"),
        (minibert.TokenTagger, ["a b"], [["O"]], "Row 0 of X is 'a b'; give a list of words"),
        (minibert.TokenTagger, [["a", "b"]], [["O"]], "Row 0 has 2 words and 1 tag; give every word one"),
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


def test_errors_name_rows_and_fit_warns_of_a_useless_model(model):
    with pytest.raises(InputError, match="^row 1 of X: a text is empty, or has no piece"):
        minibert.TextClassifier(model).fit(["a", "\u200d"] * 9, ["x", "y"] * 9)
    with pytest.raises(InputError, match="^every training example has the label 'x'"):
        minibert.TextClassifier(model).fit(["a", "the"] * 9, ["x"] * 18)
    with pytest.raises(TypeError, match=r"TextClassifier\(\) has no argument 'epoch'; did you mean epochs\?"):
        minibert.TextClassifier(model, epoch=2)
    with pytest.warns(
        UserWarning, match="Not better than always answering .* Give more examples, more epochs"
    ):
        minibert.TextClassifier(model, max_steps=1, engine="numpy").fit(TEXTS, LABELS)


def test_warning_about_rare_classes_names_rows(model):
    rare = r"'once' has 1 in train \(row 3 of X\) and 0 in dev"
    labels = ["x", "y", "x", "once", *"yx" * 8]
    with pytest.warns(UserWarning, match=rare):
        minibert.TextClassifier(model, max_steps=1, engine="numpy").fit(TEXTS[:20], labels)


def test_commands_know_the_column_names_of_a_saved_model(model, tmp_path):
    table = {"review": TEXTS, "stars": LABELS}
    classifier = minibert.TextClassifier(model, **FAST | {"max_steps": 2}, text="review").fit(table, "stars")
    classifier.save(tmp_path)
    stored = json.loads((tmp_path / "task.json").read_text())
    assert stored["columns"] == {"text": "review", "label": "stars"}
    assert repr(classifier.report_).startswith("Your own table, classes of texts")


def test_label_that_only_dev_has_is_refused_with_its_row(model):
    with pytest.raises(InputError, match="dev: Row 1 of y has the label '7', which no training row has"):
        minibert.TextClassifier(model).fit(TEXTS, LABELS, dev=(["a", "the"], ["1", "7"]))
    with pytest.raises(InputError, match="dev is not a tuple of X and y; give dev="):
        minibert.TextClassifier(model).fit(TEXTS, LABELS, dev=["a"])


def test_classifier_from_a_custom_loop_is_saved_for_the_commands(fitted, tmp_path):
    params, tokenizer = fitted.model_.params, fitted.model_.tokenizer
    mine = minibert.TextClassifier.of(params, tokenizer, ["0", "1"], max_length=24)
    mine.save(tmp_path)
    said = classify(tmp_path, OTHERS, engine="numpy")
    chances = [list(one["probabilities"].values()) for one in said]
    assert np.allclose(chances, fitted.predict_proba(OTHERS), atol=1e-5)
    with pytest.raises(
        InputError, match="'classify' with 2 outputs, and the 2 classes need one of kind 'mult"
    ):
        minibert.MultilabelClassifier.of(params, tokenizer, ["0", "1"])
    with pytest.raises(
        InputError, match="with 2 outputs, and the 3 classes need one of kind 'classify' with 3; "
    ):
        minibert.TextClassifier.of(params, tokenizer, ["a", "b", "c"])
    minibert.TextClassifier.of(params, tokenizer, ["0", "1"]).save(tmp_path / "short")
    assert minibert.load(tmp_path / "short").model_.max_length == min(128, params.config.P)


def test_temporary_folder_is_removed_and_early_stopping_reported(model, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        classifier = minibert.TextClassifier(model, **STEP).fit(FEW, alternating("x", "y"))
        gc.collect()
    assert not classifier.model_.folder.exists()

    def stop(*given, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "finetune", stop)
    with pytest.raises(KeyboardInterrupt, match="^Stopped before the training began; nothing is kept.$"):
        classifier.fit(FEW, alternating("x", "y"))


def test_load_gives_a_bert_and_refuses_an_unfinished_run(model, tmp_path):
    assert isinstance(minibert.load(model), minibert.Bert)
    (tmp_path / "finetune.json").write_text("{}")
    with pytest.raises(InputError, match="holds an unfinished run; finish it with"):
        minibert.load(tmp_path)
    assert issubclass(minibert.TextClassifier, Estimator)


FEW = TEXTS[:12]
STEP = dict(engine="numpy", batch_size=16, max_steps=1)


def alternating(one, other):
    """Labels of FEW."""
    return [one, other] * 6


@pytest.mark.representatives(kind=minibert.MultilabelClassifier)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kind, given, equal",
    [
        (minibert.TextClassifier, (1, 2), (1.0, 2.0)),
        (minibert.TextClassifier, (1.0, 0.0), (True, False)),
        (minibert.TextClassifier, (False, True), (0, np.int8(1))),
        (minibert.MultilabelClassifier, ([1], [2]), ([1.0], (2.0,))),
        (minibert.MultilabelClassifier, ({True}, {False}), (np.array([1]), np.array([0]))),
    ],
)
def test_labels_match_equal_labels_of_fit(model, kind, given, equal):
    estimator = kind(model, **STEP).fit(FEW, alternating(*given), dev=(FEW, alternating(*equal)))
    asked = [estimator._examples(FEW, alternating(*labels), labelled=True) for labels in (given, equal)]
    assert asked[0] == asked[1] and estimator.report_["examples"] == 12
    assert estimator.evaluate(FEW, alternating(*given)) == estimator.evaluate(FEW, alternating(*equal))


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_labels_with_surrounding_spaces_are_predicted_unchanged(model, tmp_path):
    y = alternating(" good", "bad")
    one = minibert.TextClassifier(model, **STEP).fit(FEW, y)
    several = minibert.MultilabelClassifier(model, **STEP).fit(FEW, [[label] for label in y])
    for estimator in (one, several):
        estimator.save(tmp_path / estimator.TASK)
        loaded = minibert.load(tmp_path / estimator.TASK, engine="numpy")
        assert loaded.classes_.tolist() == estimator.classes_.tolist() == [" good", "bad"]
        assert (loaded.predict_proba(FEW) == estimator.predict_proba(FEW)).all()
    assert one.score(FEW, y) == 0.5 and one.predict(FEW[:1])[0] in (" good", "bad")
    assert [example.label for example in several._examples(FEW[:1], [[" good"]], labelled=True)] == [
        ("good",)
    ]
    with pytest.raises(InputError, match="y has both ' good' and 'good'; give them one name"):
        one.fit(FEW, alternating(" good", "good"))


@pytest.mark.parametrize(
    "kind, y, message",
    [
        ("TextClassifier", alternating(1, 2.0), "y has 1 in row 0 and 2.0 in row 1; give labels of one type"),
        ("TextClassifier", [1] * 6 + [1.0] * 6, "y has 1 in row 0 and 1.0 in row 6; give labels of one type"),
        ("TextClassifier", alternating(True, 0), "y has True in row 0 and 0 in row 1"),
        ("MultilabelClassifier", [["a"], [], ["b", 3]] * 4, "y has 'a' in row 0 and 3 in row 2"),
        ("TextClassifier", alternating(b"a", b"b"), "Row 0 of y is not a string, a whole .* bool .b'a'."),
        ("TextClassifier", alternating(1j, 2j), "Row 0 of y is not a string, a whole number or a bool .1j."),
        (
            "TextClassifier",
            np.array(["2020-01-01"] * 12, "datetime64[D]"),
            "Row 0 of y is not a string, .*date",
        ),
        ("MultilabelClassifier", [["a"], ["b", b"c"]] * 6, "Row 1 of y has a label that is not a string"),
        ("MultilabelClassifier", [["a"], ["b", 0.5]] * 6, "Row 1 of y has a label that is not a string"),
        ("MultilabelClassifier", [["a"], [None]] * 6, "Row 1 of y has a label that is missing"),
        ("MultilabelClassifier", [["a", "a"], ["b"]] * 6, "^Row 0 of y has the label 'a' more than"),
        ("MultilabelClassifier", [[1, 1], [2]] * 6, "^Row 0 of y has the label '1' more than once"),
        (
            "MultilabelClassifier",
            [["b"], ["a|b"]] * 6,
            r"^Row 1 of y is \['a\|b'\], where a label contains \|, which separates labels in files; give",
        ),
        ("TextClassifier", [np.float32(1), np.float32("nan")] * 6, "Row 1 of y is missing .nan."),
        (
            "TextClassifier",
            [np.float32(1), np.float32(1.5)] * 6,
            "Row 1 of y, 1.5, is continuous and not a class",
        ),
        ("TokenTagger", [["O"], [np.float32("nan")]] * 6, "Row 1 of y is .*nan.*; give a list of tags"),
        ("TextClassifier", {"a": [1] * 12, "b": [2] * 12}, "y is a table with the columns a, b; give one"),
        ("TextClassifier", {"a": ["x"] * 11}, "X has 12 rows and y 11"),
        ("MultilabelClassifier", {"a": [0, 1] * 6, "b": [1, 0] * 7}, r"X has 12 rows and y\['b'\] 14; give"),
    ],
)
def test_labels_that_cannot_be_a_class_are_refused(model, kind, y, message):
    X = [text.split()[:1] for text in FEW] if kind == "TokenTagger" else FEW
    with pytest.raises(InputError, match=message):
        getattr(minibert, kind)(model, **STEP).fit(X, y)


@pytest.mark.filterwarnings("ignore")
def test_empty_columns_of_a_label_matrix_are_classes(model, tmp_path):
    matrix = np.array([[1, 0, 0], [0, 0, 1]] * 6)
    several = minibert.MultilabelClassifier(model, **STEP).fit(FEW, matrix)
    several.save(tmp_path)
    for one in (several, minibert.load(tmp_path, engine="numpy")):
        assert one.classes_.tolist() == [0, 1, 2] and one.predict(FEW).shape == (12, 3)
        assert (one.predict(FEW)[:, 1] == 0).all() and (one.predict_proba(FEW)[:, 1] == 0).all()
        assert (one.predict_proba(FEW)[:, [0, 2]] > 0).all()
    table = Table(**{name: matrix[:, number] for number, name in enumerate("abc")})
    of_table = minibert.MultilabelClassifier(model, **STEP).fit(FEW, table)
    assert (of_table.predict_proba(FEW) == several.predict_proba(FEW)).all()


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_y_may_be_a_generator_or_a_table_of_one_column(model):
    y = alternating("x", "y")
    plain = minibert.TextClassifier(model, **STEP).fit(FEW, y).predict_proba(FEW)
    for given in ((label for label in y), Table(stars=y), {7: y}):
        fitted = minibert.TextClassifier(model, **STEP).fit((text for text in FEW), given)
        assert fitted.classes_.tolist() == ["x", "y"] and (fitted.predict_proba({0: FEW}) == plain).all()


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


def test_fit_does_not_touch_a_folder_that_is_not_a_run(model, tmp_path):
    y = alternating("x", "y")
    mine, new = tmp_path / "mine", tmp_path / "new" / "run"
    (mine / "examples").mkdir(parents=True)
    (mine / "examples" / "train.jsonl").write_text("mine")
    before = contents(mine)
    with pytest.raises(
        InputError, match="examples does not belong to a fine-tuning run; remove it, or choose another"
    ):
        minibert.TextClassifier(model, **STEP, out=mine).fit(FEW, y)
    assert contents(mine) == before
    (mine / "examples" / "train.jsonl").replace(mine / "config.json")
    (mine / "examples").rmdir()
    with pytest.raises(InputError, match="holds config.json of something that is not a run"):
        minibert.TextClassifier(model, **STEP, out=mine).fit(FEW, y)
    assert list(contents(mine)) == ["config.json"] and not (mine / "examples").exists()
    with pytest.raises(InputError, match="nowhere"):
        minibert.TextClassifier(tmp_path / "nowhere", **STEP, out=new).fit(FEW, y)
    assert not new.parent.exists()
    (held := tmp_path / "held").mkdir()
    with sole_writer(held), pytest.raises(InputError, match="Another process is writing into"):
        minibert.TextClassifier(model, **STEP, out=held).fit(FEW, y)
    assert held.exists() and not contents(held)


@pytest.mark.filterwarnings("ignore")
def test_run_can_be_given_as_a_model(model, tmp_path):
    run = minibert.Run(model, {})
    classifier = minibert.TextClassifier(run, **STEP).fit(FEW, alternating("x", "y"))
    assert repr(classifier).startswith(f"TextClassifier({str(model)!r}, ")
    classifier.save(tmp_path)
    assert minibert.load(tmp_path).model == str(model)


@pytest.mark.filterwarnings("ignore")
def test_failed_refit_keeps_the_earlier_model(model):
    classifier = minibert.TextClassifier(model, **STEP).fit(FEW, alternating("a", "b"))
    before = classifier.predict_proba(FEW)
    with pytest.raises(InputError, match="learning_rates"):
        classifier.set_params(learning_rates=-1).fit(FEW, alternating("x", "y"))
    assert classifier.classes_.tolist() == ["a", "b"] and (classifier.predict_proba(FEW) == before).all()
    pairs = list(zip(FEW, FEW, strict=True))
    classifier.set_params(learning_rates=None).fit(pairs, alternating(1, 2))
    assert set(classifier.predict(pairs)) <= {1, 2}
    with pytest.raises(InputError, match="was trained on pairs of texts"):
        classifier.predict(FEW)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_interrupted_fit_resumes_with_its_drawn_seed_or_starts_again(model, monkeypatch):
    y, resumed, real = alternating("x", "y"), [], base.finetune
    monkeypatch.setattr(
        base, "finetune", lambda *a, **k: resumed.append((k["resume"], a[0].seed)) or real(*a, **k)
    )

    def stop(step, values):
        if "train/loss" in values:
            raise KeyboardInterrupt

    classifier = minibert.TextClassifier(model, **STEP | {"max_steps": 2}, on_log=stop)
    for state in (np.random.default_rng(0), np.random.RandomState(0)):
        classifier.set_params(on_log=stop, random_state=state)
        with pytest.raises(KeyboardInterrupt):
            classifier.fit(FEW, y)
        classifier.set_params(on_log=None).fit(FEW, y)
    assert [again for again, _ in resumed] == [False, True, False, True]
    assert resumed[0][1] == resumed[1][1] != resumed[2][1] == resumed[3][1]
    classifier.set_params(on_log=stop)
    with pytest.raises(KeyboardInterrupt):
        classifier.fit(FEW, y)
    classifier.set_params(on_log=None, max_steps=1).fit(FEW, y)
    assert not resumed[-1][0] and classifier.report_["steps"] == 1


def test_a_function_that_takes_no_step_is_refused_as_on_log(model):
    classifier = minibert.TextClassifier(model, **STEP, on_log=lambda values: None)
    with pytest.raises(InputError, match="^on_log=<function .* is not valid; give a function of the number"):
        classifier.fit(FEW, alternating("x", "y"))


def test_load_refuses_a_model_of_another_task(fitted, tmp_path):
    fitted.save(tmp_path)
    for kind in ("MultilabelClassifier", "TextRegressor", "TokenTagger", "QuestionAnswerer"):
        with pytest.raises(
            InputError, match=f"fine-tuned for classify, which is not a task of {kind}; use minibert"
        ):
            getattr(minibert, kind).load(tmp_path)
    assert minibert.TextClassifier.load(tmp_path, "numpy").classes_.tolist() == ["0", "1"]


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "the whale", "answer_start": 4},
        {"text": np.array(["the whale"], object), "answer_start": np.array([4], np.int32)},
        {"text": ("the whale",), "answer_start": [np.int64(4)]},
        UserDict(text=["the whale"], answer_start=[4]),
    ],
)
def test_squad_answers_may_be_given_in_several_types(model, answer):
    answerer = minibert.QuestionAnswerer(model)
    (found,) = answerer._examples([("who?", "See the whale.")], [answer], labelled=True)
    assert [(one.text, one.start) for one in found.answers] == [("the whale", 4)] and not found.impossible


@pytest.mark.filterwarnings("ignore")
def test_out_and_export_keep_the_types_of_labels(model, tmp_path):
    run, moved = tmp_path / "run", tmp_path / "moved"
    minibert.TextClassifier(model, **STEP, out=run, random_state=3).fit(FEW, alternating(1, 2))
    assert cli.main(["export", "--model", str(run), "--out", str(moved)]) == 0
    for folder in (run, moved):
        loaded = minibert.load(folder, engine="numpy")
        assert set(loaded.predict(FEW).tolist()) <= {1, 2} and loaded.random_state == 3
    assert str(tmp_path) not in (moved / "estimator.json").read_text()


@pytest.mark.filterwarnings("ignore")
def test_save_keeps_class_weights(model, tmp_path):
    given = {"x": 1, "y": 30}
    minibert.TextClassifier(model, **STEP, class_weights=given).fit(FEW, alternating("x", "y")).save(tmp_path)
    loaded = minibert.load(tmp_path, engine="numpy")
    assert loaded.class_weights == given
    weighted = loaded.fit(FEW, alternating("x", "y")).predict_proba(FEW)
    loaded.class_weights = None
    assert (weighted != loaded.fit(FEW, alternating("x", "y")).predict_proba(FEW)).any()


def test_save_keeps_lists_and_numpy_numbers_but_no_stale_report(model, fitted, tmp_path):
    given = dict(learning_rates=[1e-3], epochs=np.float64(2), restarts=np.int64(1), random_state=np.int64(7))
    classifier = minibert.TextClassifier(model, **STEP | given).fit(FEW, alternating(1, 2))
    classifier.save(tmp_path)
    loaded = minibert.load(tmp_path, engine="numpy")
    assert {name: getattr(loaded, name) for name in given} == given
    of_mine = minibert.TextClassifier.of(fitted.model_.params, fitted.model_.tokenizer, ["0", "1"], 24)
    of_mine.save(tmp_path)
    assert not hasattr(minibert.load(tmp_path, engine="numpy"), "report_")


@pytest.mark.filterwarnings("ignore")
def test_load_restores_columns_and_seed_of_a_command_line_run(model, tmp_path):
    table = write_table(tmp_path / "table.tsv", ("review", "label"), zip(TEXTS, LABELS, strict=True))
    more = dict(split_dev=0.1, seed=7, show=False, columns={"text": "review"}, out=tmp_path / "run")
    loaded = minibert.finetune("classify", table, model, **STEP, **more).model
    assert loaded.random_state == 7 and loaded.text == "review"
    assert (loaded.predict_proba({"review": FEW, "n": FEW}) == loaded.predict_proba(FEW)).all()
    with pytest.raises(InputError, match="was trained on single texts"):
        loaded.predict([("a", "the")])
    assert minibert.show(loaded).title == "TextClassifier"
    with pytest.raises(InputError, match="^model=TextEncoder.* can't be shown; give a folder, a Run, a Bert"):
        minibert.show(minibert.TextEncoder(model))


def test_r_squared_is_zero_for_constant_y(model):
    regressor = minibert.TextRegressor(model, **STEP).fit(FEW, np.arange(12.0), dev=(FEW, np.arange(12.0)))
    assert regressor.score(FEW, np.ones(12)) == 0 and regressor.score(FEW, regressor.predict(FEW)) == 1


def test_errors_about_dev_and_split_dev_name_their_argument(model):
    classifier = minibert.TextClassifier(model, **STEP, learning_rates=np.array([1e-3, 1e-4]))
    assert "learning_rates=array([0.001 , 0.0001])" in repr(classifier)
    with pytest.raises(InputError, match="dev: Row 1 of X is missing"):
        classifier.fit(FEW, alternating("x", "y"), dev=(["a", None], ["x", "y"]))
    (few := minibert.TextClassifier(model, **STEP)).split_dev = 0.01
    with pytest.raises(InputError, match="split_dev=0.01 of 12 examples leaves train or dev empty"):
        few.fit(FEW, alternating("x", "y"))


def test_only_column_of_a_table_holds_the_words(model):
    tagger = minibert.TokenTagger(model, **STEP)
    words = [text.split() for text in FEW]
    tags = [["O"] * len(row) for row in words]
    tags[0][0] = tags[5][0] = tags[9][0] = "B-X"
    assert len(tagger.fit({"tokens": words}, tags).predict({"tokens": words[:3]})) == 3


def test_columns_of_unequal_length_and_invalid_seeds_are_refused():
    with pytest.raises(InputError, match="The table has 2 texts and 1 in second='b'; give each text one"):
        text_pairs({"a": ["x", "y"], "b": ["z"]}, "a", "b")
    for state in ("abc", 1.5, -1, True, random.Random(0)):
        with pytest.raises(InputError, match="random_state=.* is not a seed; give a whole number, 0 or more"):
            seed_of(state)


def test_fit_does_not_read_back_its_own_files(model, tmp_path, monkeypatch):
    """The files of a run hold what the commands read: the examples that `fit` has used."""

    def refuse(*given, **more):
        raise AssertionError("a file of examples was read")

    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr("minibert.data.tables.read_texts", refuse)
        classifier = minibert.TextClassifier(model, **STEP, out=out)
        classifier.fit(FEW, alternating("x", "y"), dev=(FEW[:2], ["x", "y"]))
    options = FinetuneOptions.load(out / "finetune.json")
    train, dev = read_examples(registry.create("classify", dict(options.columns)), options)
    assert train == classifier._examples(FEW, alternating("x", "y"), labelled=True)
    assert dev == classifier._examples(FEW[:2], ["x", "y"], labelled=True)


WORDS = [text.split() for text in FEW]
QUESTIONS = [(f"who {number}?", f"Paragraph {number} has the whale.") for number in range(12)]
REFUSED = {
    "epochs": ("TextClassifier", FEW, alternating("x", "y"), {"epochs": -1}),
    "rate": ("TextRegressor", FEW, list(range(12)), {"learning_rates": -1}),
    "seed": ("TextClassifier", FEW, alternating("x", "y"), {"random_state": -1}),
    "model": ("TextClassifier", FEW, alternating("x", "y"), {"model": "nowhere"}),
    "length": ("MultilabelClassifier", FEW, alternating(["x"], ["y"]), {"max_length": 10**6}),
    "labels": ("MultilabelClassifier", FEW, alternating(["a|b"], ["c"]), {}),
    "share": ("TextRegressor", FEW, list(range(12)), {"split_dev": 0.001}),
    "engine": ("TokenTagger", WORDS, [["O"] * len(row) for row in WORDS], {"engine": "abacus"}),
    "layers": ("QuestionAnswerer", QUESTIONS, ["the whale"] * 12, {"freeze": 99}),
    "one paragraph": ("QuestionAnswerer", [(q, QUESTIONS[0][1]) for q, _ in QUESTIONS], [""] * 12, {}),
    "y": ("TextClassifier", FEW, [None] * 12, {}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("named", [False, True])
def test_refused_fit_leaves_no_folder(model, case, named, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kind, X, y, given = REFUSED[case]
    out = {"out": tmp_path / "run"} if named else {}
    estimator = getattr(minibert, kind)(**{"model": model} | STEP | given | out)
    with pytest.raises(InputError):
        estimator.fit(X, y)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore")
def test_diverged_fit_leaves_no_temporary_folder(model, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(DivergedError):
        minibert.TextClassifier(model, **STEP | {"max_steps": 9}, learning_rates=1e30).fit(
            FEW, alternating("x", "y")
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore")
def test_refused_input_leaves_an_interrupted_fit_resumable(model, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def stop(step, values):
        if "train/loss" in values:
            raise KeyboardInterrupt

    classifier = minibert.TextClassifier(model, **STEP | {"max_steps": 2}, on_log=stop)
    with pytest.raises(KeyboardInterrupt):
        classifier.fit(FEW, alternating("x", "y"))
    kept = list(tmp_path.iterdir())
    with pytest.raises(InputError, match="Row 0 of y is missing"):
        classifier.fit(FEW, [None] * 12)
    assert list(tmp_path.iterdir()) == kept != []
    classifier.set_params(on_log=None).fit(FEW, alternating("x", "y"))
    assert list(tmp_path.iterdir()) == []


def test_error_for_questions_about_one_paragraph_does_not_mention_docstart(model):
    rows = [(question, QUESTIONS[0][1]) for question, _ in QUESTIONS]
    with pytest.raises(
        InputError, match="Questions about one paragraph are not divided: add questions"
    ) as found:
        minibert.QuestionAnswerer(model, **STEP).fit(rows, ["the whale"] * 12)
    assert "DOCSTART" not in str(found.value)
    with pytest.raises(
        InputError, match="split_dev=0.01 of 12 examples leaves train or dev empty; give another share, or"
    ):
        minibert.QuestionAnswerer(model, **STEP, split_dev=0.01).fit(QUESTIONS, ["the whale"] * 12)


def test_splits_that_leave_train_or_dev_empty_are_refused(model):
    tags = [["O"] * len(row) for row in WORDS]
    with pytest.raises(InputError, match="split_dev=0.01 of 12 .* empty; give another share, or give dev"):
        minibert.TokenTagger(model, **STEP, split_dev=0.01).fit(WORDS, tags)
    pairs = [("the same", text) for text in FEW]
    with pytest.raises(
        InputError, match="Pairs with the same first text are not divided: add pairs with other first"
    ):
        minibert.TextRegressor(model, **STEP).fit(pairs, range(12))


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_classification_report_has_a_bag_of_words_baseline(model, tmp_path):
    out = tmp_path / "run"
    classifier = minibert.TextClassifier(model, **STEP, out=out).fit(TEXTS, LABELS)
    several = minibert.MultilabelClassifier(model, **STEP).fit(TEXTS, [[label] for label in LABELS])
    for estimator, metric, theirs in (
        (classifier, "accuracy", THEIRS),
        (several, "macro_f1", [[y] for y in THEIRS]),
    ):
        for report in (estimator.report_, estimator.evaluate(OTHERS, theirs)):
            assert report["bag_of_words"]["scores"][metric] == 1  # a word tells the class
            assert "bag of words (naive Bayes) is better: is BERT worth it here?" in repr(report)
    found = classifier.evaluate(OTHERS, THEIRS)
    assert pickle.loads(pickle.dumps(classifier)).evaluate(OTHERS, THEIRS) == found
    assert minibert.load(out, engine="numpy").evaluate(OTHERS, THEIRS) == found  # its examples are there
    classifier.save(tmp_path / "kept")
    kept = minibert.load(tmp_path / "kept", engine="numpy")
    assert kept.report_["bag_of_words"] == classifier.report_["bag_of_words"]
    assert "bag_of_words" not in kept.evaluate(OTHERS, THEIRS)  # nobody knows what it learnt from
    numbers = minibert.TextRegressor(model, **STEP).fit(TEXTS, range(160))
    assert "bag_of_words" not in numbers.report_


# Tags in other forms


class ClassLabel:
    """What `datasets` knows of a column of classes."""

    names = ("O", "B-GOOD", "I-GOOD")


class TaggedRows(dict):
    """A table as `datasets` has it: columns, and what is known of them."""

    column_names = ("words", "ner_tags")
    features = {"words": None, "ner_tags": type("List", (), {"feature": ClassLabel()})()}


def test_indices_of_classes_become_their_names(model):
    words = [text.split() for text in TEXTS]
    tags = [[int(word in GOOD) for word in row] for row in words]
    tagger = minibert.TokenTagger(model, tags="ner_tags", **FAST | {"epochs": 2})
    tagger.fit(TaggedRows(words=words, ner_tags=tags))
    assert {tag for row in tagger.predict(words) for tag in row} <= {"O", "B-GOOD", "I-GOOD"}
    assert tagger.report_["labels"] == ["O", "B-GOOD", "I-GOOD"]


def test_indices_of_unnamed_classes_are_tags(model):
    words = [text.split() for text in TEXTS[:40]]
    tags = [[3 * (word in GOOD) for word in row] for row in words]
    tagger = minibert.TokenTagger(model, **FAST | {"epochs": 1})
    with pytest.warns(UserWarning, match="All 2 tags are numbers.* F1 is the accuracy of words"):
        tagger.fit(words, tags)
    assert {tag for row in tagger.predict(words) for tag in row} <= {"0", "3"}


@pytest.mark.representatives(letters="BLU")
@pytest.mark.parametrize("letters", ["BLU", "BES"])
def test_tagger_lists_entities_in_the_scheme_of_its_tags(model, tmp_path, letters, capsys):
    begin, end, single = letters
    words = [["funny", "film", "was", "dull"], ["one", "warm"]] * 12
    tags = [[f"{begin}-A", f"{end}-A", "O", f"{single}-B"], ["O", f"{single}-A"]] * 12
    tagger = minibert.TokenTagger(model, out=tmp_path / "run", **FAST | {"epochs": 30})
    tagger.fit(words, tags, dev=(words[:2], tags[:2]))
    assert tagger.predict(words[:2]) == tags[:2]
    arguments = ["tag", "--model", str(tmp_path / "run"), "--json", "--engine", "numpy"]
    assert cli.main([*arguments, "funny film was dull", "one warm"]) == 0
    first, second = (json.loads(line)["entities"] for line in capsys.readouterr().out.splitlines())
    assert [(one["type"], one["text"]) for one in first] == [("A", "funny film"), ("B", "dull")]
    assert [(one["type"], one["text"]) for one in second] == [("A", "warm")]


@pytest.mark.parametrize("role", ["text", "second"])
@pytest.mark.parametrize("y", [None, "label"])
def test_label_column_is_not_accepted_as_a_text(model, role, y):
    table = {"text": FEW, "label": alternating("x", "y")}
    with pytest.raises(InputError, match=f"^{role}='label' is the column of the labels; name another"):
        minibert.TextClassifier(model, **STEP, **{role: "label"}).fit(table, y)


def test_fit_warns_of_a_second_text_that_is_the_label(model):
    y = alternating("x", "y")
    rows = np.array(list(zip(FEW, y, strict=True)), dtype=object)
    with pytest.warns(InputWarning, match="The second text of every row is its label"):
        minibert.TextClassifier(model, **STEP).fit(rows, y)


def test_column_name_for_y_needs_a_table(model):
    with pytest.raises(InputError, match="^y='good' names a column, but X is not a table"):
        minibert.TextClassifier(model, **STEP).fit(FEW, "good")


def test_split_dev_that_leaves_nothing_to_measure_on_is_refused(model):
    with pytest.raises(InputError, match="^split_dev=None leaves nothing to measure on; give a share"):
        minibert.TextClassifier(model, **STEP, split_dev=None).fit(FEW, alternating("x", "y"))


def test_classifier_of_refuses_a_model_in_place_of_parameters(model):
    bert = minibert.load(model, "numpy")
    with pytest.raises(InputError, match=r"^params=Bert\(.* are not Parameters; give those of initialise"):
        minibert.TextClassifier.of(bert, bert.tokenizer, ["a", "b"])


def test_table_may_have_its_labels_in_a_separate_list(model):
    """Labels that are not a column have no name, and are not mistaken for `second`, which has none."""
    labels = alternating("x", "y")
    classifier = minibert.TextClassifier(model, **STEP).fit({"text": FEW}, labels)
    assert list(classifier.classes_) == ["x", "y"]
