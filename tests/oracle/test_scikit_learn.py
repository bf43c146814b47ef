"""Estimators among those of scikit-learn: its own checks, searches and pipelines, and tables of pandas."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer
from sklearn.utils import check_array
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.parallel import Parallel, delayed
from small_tasks import WORDS, reviews, write_model

import minibert
from minibert.base.errors import InputWarning, warn
from minibert.data.glue import TextExample
from minibert.tasks.bag_of_words import BagOfWords, NaiveBayes

TEXTS, LABELS = zip(*reviews(60, 1), strict=True)
# Its checks that fail, and why.
FAILING = {
    "check_estimators_unfitted": "NotFittedError is scikit-learn's own, which is not imported",
    "check_n_features_in": "texts have no features to be counted",
    "check_n_features_in_after_fitting": "the same",
    "check_classifiers_train": "it asks for 83% right, which a model of two steps has not learnt",
    "check_supervised_y_2d": "a column of labels inside a matrix is refused, where theirs warn and go on",
}


class OfNumbers(minibert.TextClassifier):
    """The same for rows of numbers, which the checks give: each number is a word."""

    def _examples(self, X, y=None, labelled=False):
        rows = check_array(X)
        texts = [" ".join(WORDS[int(abs(7 * number)) % len(WORDS)] for number in row) for row in rows]
        return super()._examples(texts, y, labelled)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.one_d_array, tags.input_tags.string = True, False, False
        return tags


@pytest.fixture(scope="module")
def fast(tmp_path_factory):
    return dict(
        model=write_model(tmp_path_factory.mktemp("model")),
        engine="numpy",
        threads=1,
        batch_size=16,
        max_steps=1,
    )


@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_scikit_learn_pass_but_for_those_that_are_listed(fast):
    estimator = OfNumbers(**fast)
    found = check_estimator(estimator, expected_failed_checks=FAILING, on_fail="raise", on_skip=None)
    status = {one["check_name"]: one["status"] for one in found}
    assert len(found) > 40
    assert {name for name, how in status.items() if how == "xfail"} == set(FAILING)


@pytest.mark.filterwarnings("ignore")
def test_searches_and_pipelines_take_estimators(fast):
    search = GridSearchCV(minibert.TextClassifier(**fast), {"learning_rates": [1e-5, 5e-3]}, cv=2)
    search.fit(TEXTS, LABELS)
    assert search.best_params_["learning_rates"] in (1e-5, 5e-3)
    assert search.predict(TEXTS[:3]).shape == (3,)
    lower = make_pipeline(
        FunctionTransformer(lambda X: [x.lower() for x in X]), minibert.TextClassifier(**fast)
    )
    assert lower.fit(TEXTS, LABELS).predict_proba(TEXTS[:3]).shape == (3, 2)
    scores = cross_val_score(minibert.TextRegressor(**fast), TEXTS, np.array(LABELS, float), cv=2)
    assert scores.shape == (2,)
    matrix = np.array([[1, 0, 0], [0, 1, 0]] * 30)  # no row has the last class
    several = minibert.MultilabelClassifier(**fast)
    assert np.isfinite(cross_val_score(several, TEXTS, matrix, cv=2, scoring="f1_macro")).all()


@pytest.mark.filterwarnings("ignore")
def test_tables_of_pandas_are_read_as_lists_are(fast):
    plain = minibert.TextClassifier(**fast).fit(TEXTS, LABELS).predict_proba(TEXTS)
    table = pd.DataFrame({"review": TEXTS, "stars": pd.Categorical(LABELS)})
    by_name = minibert.TextClassifier(**fast, text="review").fit(table, "stars")
    assert (by_name.predict_proba(table) == plain).all()
    columns = minibert.TextClassifier(**fast).fit(table["review"], table["stars"])
    assert (columns.predict_proba(table[["review"]]) == plain).all()
    labels = minibert.TextClassifier(**fast).fit(pd.DataFrame(TEXTS), pd.DataFrame({"stars": LABELS}))
    assert (labels.predict_proba(TEXTS) == plain).all()
    matrix = pd.get_dummies(pd.Series(LABELS))
    several = [minibert.MultilabelClassifier(**fast).fit(TEXTS, y) for y in (matrix, matrix.to_numpy())]
    assert (several[0].predict_proba(TEXTS) == several[1].predict_proba(TEXTS)).all()
    table.loc[3, "review"] = pd.NA
    with pytest.raises(minibert.InputError, match="Row 3 of X is missing .(nan|<NA>).; leave the row out"):
        by_name.fit(table, "stars")


def test_an_encoder_is_a_step_of_pipelines_and_searches(fast):
    encoder = minibert.TextEncoder(fast["model"], engine="numpy", threads=1)
    pipeline = make_pipeline(encoder, LogisticRegression(C=1e4, max_iter=2_000))
    search = GridSearchCV(pipeline, {"textencoder__pool": ["cls", "mean", "max"]}, cv=2).fit(TEXTS, LABELS)
    assert search.best_params_["textencoder__pool"] in ("cls", "mean", "max")
    assert search.best_score_ > 0.7  # of two classes, by words that even an untrained model's vectors hold
    table = pd.DataFrame({"review": TEXTS, "stars": range(60)}, index=range(100, 160))
    columns = ColumnTransformer([("vectors", encoder, "review")], remainder="passthrough")
    vectors = encoder.transform(TEXTS)
    assert (columns.fit_transform(table)[:, :-1] == vectors).all()
    named = columns.set_output(transform="pandas").fit_transform(table)
    names = [f"vectors__{name}" for name in encoder.get_feature_names_out()]
    assert named.columns.tolist() == [*names, "remainder__stars"]
    assert (named.index == table.index).all() and (named[names].to_numpy() == vectors).all()
    with pytest.raises(minibert.InputError, match="transform='arrow' is not possible"):
        encoder.set_output(transform="arrow")


def test_naive_bayes_of_the_baselines_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    train, dev = ([rng.integers(n, size=rng.integers(9)).tolist() for _ in range(80)] for n in (30, 40))
    classes = (np.arange(80) % 3).tolist()
    counter = CountVectorizer(analyzer=lambda features: features)
    theirs = MultinomialNB().fit(counter.fit_transform(train), classes)
    ours = NaiveBayes(train, classes, 3).log_probabilities(dev)
    np.testing.assert_allclose(ours, theirs.predict_joint_log_proba(counter.transform(dev)), rtol=1e-12)


def counted_words():
    return CountVectorizer(token_pattern=r"\w+|[^\w\s]")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "m")


@pytest.mark.filterwarnings("ignore")
def test_the_bag_of_words_in_a_report_is_scikit_learns(model):
    """Three labels in ten are exchanged, so that not everything is right."""
    rng = np.random.default_rng(0)
    texts, labels = map(list, zip(*reviews(200, 3), strict=True))
    labels = [label if rng.random() < 0.7 else str(1 - int(label)) for label in labels]
    classifier = minibert.TextClassifier(model, max_steps=1, engine="numpy")
    classifier.fit(texts[:120], labels[:120], dev=(texts[120:160], labels[120:160]))
    theirs = make_pipeline(counted_words(), MultinomialNB()).fit(texts[:120], labels[:120])
    for report, part in (
        (classifier.report_, slice(120, 160)),
        (classifier.evaluate(texts[160:], labels[160:]), slice(160, 200)),
    ):
        expected, found = labels[part], theirs.predict(texts[part])
        words = report["bag_of_words"]
        assert words["scores"]["accuracy"] == pytest.approx(accuracy_score(expected, found))
        assert words["macro_f1"] == pytest.approx(f1_score(expected, found, average="macro"))
        assert 0.4 < words["scores"]["accuracy"] < 1
        assert "bag of words" in repr(report)


def test_the_bag_of_words_of_several_labels_is_scikit_learns():
    rng = np.random.default_rng(1)
    names = ("art", "news", "sport")
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(1, 9))) for _ in range(150)]
    labels = [tuple(name for name in names if rng.random() < 0.4) for _ in texts]
    train = [TextExample("0", text, None, one) for text, one in zip(texts[:100], labels, strict=False)]
    asked = [TextExample("0", text, None, None) for text in texts[100:]]
    ours = BagOfWords(train, names, several=True).predictions(asked)
    coded = MultiLabelBinarizer(classes=names)
    counter = counted_words()
    theirs = OneVsRestClassifier(MultinomialNB())
    theirs.fit(counter.fit_transform(texts[:100]), coded.fit_transform(labels[:100]))
    chances = theirs.predict_proba(counter.transform(texts[100:]))
    np.testing.assert_allclose([list(one["probabilities"].values()) for one in ours], chances, rtol=1e-9)
    assert [tuple(one["labels"]) for one in ours] == coded.inverse_transform(chances >= 0.5)


def test_a_warning_of_every_fold_is_shown_once_and_different_ones_are_all_shown():
    fits = {"__name__": "minibert.fits", "warn": warn}
    exec("def fit(text):\n    warn(text)", fits)

    def shown(texts, action="default"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)
            Parallel()(delayed(fits["fit"])(text) for text in texts)  # it resets the filters for each
        assert {one.filename for one in caught} == {__file__}  # and not scikit-learn's
        return [str(one.message) for one in caught]

    assert shown(["few", "few", "cut", "few", "cut"]) == ["few", "cut"]
    assert shown(["other"] * 2, "always") == ["other"] * 2
    with pytest.raises(InputWarning, match="few"):
        shown(["few"], "error")
