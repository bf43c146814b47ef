"""What is predicted without a model: by a constant or a rule of thumb, by naive Bayes, by TF-IDF."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from minibert.experiments.baselines import strongest
from minibert.tasks import submissions
from minibert.tasks.bag_of_words import BagOfWords, features_of
from minibert.tasks.task import Examples, Predictions, Task

STRENGTHS = (1.0, 10.0, 100.0)  # C of the logistic regression: the inverse of its regularisation


class WordMethod(NamedTuple):
    """A method that needs no model."""

    title: str
    kinds: tuple[str, ...]  # of the tasks that it is for
    predict: Callable[[Task, Examples, Examples], Predictions]  # from train and dev


def by_rule(task: Task, train: Examples, dev: Examples) -> Predictions:
    """Predict the most frequent class, or the mean; tags and answers by the better of two rules."""
    if task.kind == "classify":
        return submissions.majority(train, len(dev))
    if task.kind == "regress":
        mean = float(np.mean([example.label for example in train]))
        return [{"value": mean}] * len(dev)
    _, predictions = strongest(task, train, dev, ())
    return predictions


def by_naive_bayes(task: Task, train: Examples, dev: Examples) -> Predictions:
    """Predict by the counts of words, as the reports of `minibert finetune` do."""
    return BagOfWords(train, task.labels(train)).predictions(dev)


def by_tf_idf(task: Task, train: Examples, dev: Examples) -> Predictions:
    """Predict classes by a logistic regression, and the similarity of two texts by their cosine."""
    return class_by_tf_idf(task, train, dev) if task.kind == "classify" else cosine_of_tf_idf(dev)


def class_by_tf_idf(task: Task, train: Examples, dev: Examples) -> Predictions:
    """Predict by logistic regression on words and pairs of words, its C chosen on dev."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    vectorizer = TfidfVectorizer(analyzer=words_and_pairs, sublinear_tf=True)
    rows = vectorizer.fit_transform(train)
    dev_rows = vectorizer.transform(dev)
    classes = [example.label for example in train]
    candidates = []
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=1000).fit(rows, classes)
        candidates.append([{"label": label} for label in model.predict(dev_rows).tolist()])
    return max(candidates, key=lambda predictions: task.score(dev, predictions)[task.metric])


def words_and_pairs(example: Any) -> list[str]:
    """Return the features that naive Bayes counts, and those of two words in a row, as strings."""
    return [repr(feature) for feature in features_of(example, longest=2)]


def cosine_of_tf_idf(examples: Examples) -> Predictions:
    """Predict the cosine of both texts, of the weights of two to five letters in a row.

    They are ahead of words: on STS-B's dev file 77.9 rather than 75.7.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
    texts = [text for example in examples for text in (example.first, example.second)]
    rows = vectorizer.fit_transform(texts)
    cosines = np.asarray(rows[::2].multiply(rows[1::2]).sum(axis=1)).ravel()
    return [{"value": cosine} for cosine in cosines.tolist()]


METHODS = {
    "rule": WordMethod("simple rule", ("classify", "regress", "tag", "span"), by_rule),
    "naive-bayes": WordMethod("naive Bayes", ("classify",), by_naive_bayes),
    "tf-idf": WordMethod("TF-IDF", ("classify", "regress", "cosine"), by_tf_idf),
}
