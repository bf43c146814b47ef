"""Any number of labels for a text: tables, thresholds, figures and files."""

import itertools
import warnings

import numpy as np
import pytest
from small_tasks import write_table

from minibert.base.errors import InputError
from minibert.data import tables
from minibert.data.glue import TextExample
from minibert.reports.results import Measured, compared_with_majority, measured_text, report_of
from minibert.tasks import registry
from minibert.tasks.bag_of_words import BagOfWords
from minibert.tasks.multilabel import best_threshold
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer

TASK = registry.create("multilabel")
LABELS = ("art", "news", "sport")


def example(*labels, text="a text"):
    return TextExample("0", text, None, tuple(sorted(labels)))


def answered(*labels, **chances):
    return {"labels": list(labels), "probabilities": dict.fromkeys(LABELS, 0.1) | chances}


# tables


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "text,label\nOne,sport | art\nTwo,\nThree,news\n"),
        ("a.tsv", "text\tlabel\nOne\tsport|art\nTwo\t\nThree\tnews\n"),
        (
            "a.jsonl",
            '{"text": "One", "label": ["sport", "art"]}\n{"text": "Two", "label": []}\n'
            '{"text": "Three", "label": ["news"]}\n',
        ),
    ],
)
def test_labels_are_a_list_or_between_bars_or_none(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    found = tables.read_texts(tmp_path / name, several=True)
    assert [one.label for one in found] == [("art", "sport"), (), ("news",)]
    assert TASK.read(tmp_path / name, "train") == found
    assert TASK.labels(found) == LABELS


@pytest.mark.parametrize(
    ("name", "cell", "message"),
    [
        ("a.jsonl", '"art"', r"line 1: the column 'label' is 'art', expected a list such as \[\"sport\","),
        ("a.jsonl", "null", "the column 'label' is None, expected a list"),
        ("a.jsonl", '{"art": 1}', "expected a list"),
        ("a.jsonl", '["art", 3]', "holds something that is not a name; give names that are not empty"),
        ("a.jsonl", '["art|news"]', r"and have no \|"),
        ("a.jsonl", '["art", "art"]', "name each label once"),
        ("a.csv", "\"['art', 'news']\"", r"line 2: .* expected names with \| between them"),
        ("a.csv", "art||news", "holds something that is not a name"),
    ],
)
def test_a_list_of_labels_that_is_none_is_refused(tmp_path, name, cell, message):
    row = f'{{"text": "One", "label": {cell}}}\n' if name.endswith("jsonl") else f"text,label\nOne,{cell}\n"
    (tmp_path / name).write_text(row)
    with pytest.raises(InputError, match=message):
        TASK.read(tmp_path / name, "train")


def test_a_table_to_ask_about_needs_no_labels(tmp_path):
    write_table(tmp_path / "test.tsv", ("text",), [("One",)])
    assert TASK.read(tmp_path, "test") == [TextExample("0", "One", None, None)]


def test_labels_are_yes_or_no_and_unknown_ones_refused():
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "text"])
    rows = [example("art", "sport"), example(), example()._replace(label=None)]
    found = list(TASK.features(rows, tokenizer, LABELS, 8, training=False))
    assert [one.label if one.label is None else one.label.tolist() for one in found] == [
        [1, 0, 1],
        [0, 0, 0],
        None,
    ]
    with pytest.raises(InputError, match="the label 'film' is not one of the training examples"):
        list(TASK.features([example("film")], tokenizer, LABELS, 8, training=True))
    with pytest.raises(InputError, match="the label 'film' is not one of the training examples"):
        TASK.check_dev([example("film")], LABELS)
    [asked] = TASK.features([example("film", "art")], tokenizer, LABELS, 8, training=False)
    assert asked.label.tolist() == [1, 0, 0]
    with pytest.warns(UserWarning, match=r"1 of 2 examples have .* the model does not know: 'film' \(1\)"):
        TASK.warn_unknown([example("art"), example("film")], LABELS)
    with pytest.raises(InputError, match="there is no label to train on"):
        list(TASK.features(rows[2:], tokenizer, LABELS, 8, training=True))
    with pytest.raises(InputError, match="no training example has a label; give some that do"):
        TASK.labels([example(), example()])


def test_a_class_with_one_example_is_warned_of():
    train = [example("art", "news"), example("art"), example("news")]
    with pytest.warns(
        UserWarning, match="1 of 3 classes has too few examples: 'sport' has 1 in train .* and 2 in dev"
    ):
        TASK.warn_rare([*train, example("sport")], [example(*LABELS), example("sport")], LABELS)


# thresholds


@pytest.mark.parametrize(
    ("chances", "gold", "threshold"),
    [
        ([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1], 0.25),
        ([0.9, 0.8, 0.7, 0.6], [1, 0, 0, 0], 0.85),
        ([0.9, 0.8, 0.2, 0.1], [1, 1, 0, 0], 0.5),  # as good as any other
        ([0.3, 0.2], [0, 0], 0.5),  # no example: nothing to choose by
        ([0.3, 0.3, 0.3], [0, 1, 0], 0.15),  # between equal ones there is no threshold
        ([0.9, 0.8, 0.7, 0.2], [1, 0, 1, 1], 0.1),
    ],
)
def test_the_threshold_has_the_best_f1(chances, gold, threshold):
    chances, gold = np.array(chances), np.array(gold, bool)
    assert best_threshold(chances, gold) == pytest.approx(threshold)


def test_no_other_threshold_is_better():
    rng = np.random.default_rng(0)
    for _ in range(100):
        n = int(rng.integers(1, 30))
        chances, gold = np.round(0.1 + 0.9 * rng.random(n), 1 + int(rng.integers(2))), rng.random(n) < 0.4

        def f1(threshold, chances=chances, gold=gold):
            found = chances >= threshold
            return 2 * (found & gold).sum() / max(1, found.sum() + gold.sum())

        assert f1(best_threshold(chances, gold)) == max(f1(each) for each in [0.5, *chances])


def test_thresholds_are_chosen_for_each_class_and_used():
    logits = [np.array([-2.0, 3.0, -1.0]), np.array([-1.0, 2.0, -3.0]), np.array([-3.0, -2.0, 1.0])]
    examples = [example("news"), example("art", "news"), example()]
    tuned = TASK.tune(examples, None, logits, LABELS)
    assert tuned["news"] == tuned["sport"] == 0.5
    assert 1 / (1 + np.exp(2)) < tuned["art"] < 1 / (1 + np.exp(1))
    found = TASK.predict(examples, None, logits, LABELS, tuned)
    assert [one["labels"] for one in found] == [["news"], ["art", "news"], ["sport"]]
    assert found[0]["probabilities"]["news"] == pytest.approx(1 / (1 + np.exp(-3)))
    assert [one["labels"] for one in TASK.untuned(found)] == [["news"], ["news"], ["sport"]]


# figures and files

EXAMPLES = [example("art"), example("art", "news"), example(), example("art", "sport")]
ANSWERS = [answered("art"), answered("art"), answered("sport", sport=0.8), answered("art", "sport")]


def test_figures_are_over_all_classes_their_mean_and_each():
    scores = TASK.score(EXAMPLES, ANSWERS)
    assert scores == {
        "macro_f1": pytest.approx((1 + 0 + 2 / 3) / 3),
        "micro_f1": pytest.approx(8 / 10),
        "exact_match": 0.5,
        "art (F1)": 1,
        "news (F1)": 0,
        "sport (F1)": pytest.approx(2 / 3),
    }
    statistic = TASK.statistic(EXAMPLES, ANSWERS)
    assert statistic(np.arange(4)) == pytest.approx(scores["macro_f1"])
    rows = np.array([0, 1, 1, 3])
    again = TASK.score([EXAMPLES[i] for i in rows], [ANSWERS[i] for i in rows])
    assert statistic(rows) == pytest.approx(again["macro_f1"])


def test_a_class_that_no_drawn_text_has_is_in_no_mean_of_the_interval():
    names = [f"label {n}" for n in range(20)]
    examples = [example(names[n]) if n < 20 else example() for n in range(100)]
    chances = dict.fromkeys(names, 0.0)
    answers = [
        {"labels": list(one.label), "probabilities": chances | dict.fromkeys(one.label, 1.0)}
        for one in examples
    ]
    statistic = TASK.statistic(examples, answers)
    assert TASK.score(examples, answers)["macro_f1"] == statistic(np.arange(100)) == 1
    assert statistic(np.arange(50)) == statistic(np.arange(10).repeat(10)) == 1
    answers[0] = answers[99]  # a class that nobody finds counts where it was drawn, and nowhere else
    assert TASK.statistic(examples, answers)(np.arange(100)) == pytest.approx(0.95)
    assert TASK.statistic(examples, answers)(np.array([0, 1])) == 0.5
    assert TASK.statistic(examples, answers)(np.array([1, 2])) == 1
    with warnings.catch_warnings(action="error"):
        assert np.isnan(statistic(np.array([50, 60])))


def test_the_figures_stand_beside_the_strongest_constant_answer_and_a_threshold_of_one_half():
    measured = Measured(TASK, LABELS, EXAMPLES, ANSWERS)
    found = compared_with_majority(measured)
    assert found["classes"] == {"art": 3, "news": 1, "sport": 1}
    assert found["majority"]["label"] == "all 3 labels"
    assert found["majority"]["macro_f1"] == pytest.approx((6 / 7 + 2 / 5 + 2 / 5) / 3)
    assert found["untuned"]["art (F1)"] == 0 and found["untuned"]["sport (F1)"] == 0
    bag = BagOfWords(EXAMPLES, LABELS, several=True)
    words = compared_with_majority(measured._replace(bag_of_words=bag))["bag_of_words"]
    assert words["scores"] == TASK.score(EXAMPLES, bag.predictions(EXAMPLES))
    assert words["macro_f1"] == words["scores"]["macro_f1"]
    text = measured_text(report_of(measured, TASK.mistakes(EXAMPLES, ANSWERS)))
    assert "always 'all 3 labels'  threshold 0.5" in text
    assert "Not better than always answering 'all 3 labels'" in text


@pytest.mark.parametrize("own", [["art", "sport", "art"], ["sport", "art|sport", ""], ["", ""]])
def test_no_other_constant_answer_is_better_than_the_strongest(own):
    examples = [example(*filter(None, labels.split("|"))) for labels in own]
    label, found = TASK.strongest_constant(examples, [answered()] * len(own))

    def macro_f1(chosen):
        chances = {name: float(name in chosen) for name in LABELS}
        return TASK.score(examples, [answered(*chosen, **chances)] * len(own))["macro_f1"]

    every = [chosen for k in range(4) for chosen in itertools.combinations(LABELS, k)]
    assert TASK.score(examples, found)["macro_f1"] == max(map(macro_f1, every))
    used = [name for one in own for name in one.split("|") if name]
    assert label == ("|".join(sorted(set(used), key=used.count, reverse=True)) or "(none)")


def test_mistakes_are_texts_with_a_wrong_class_the_least_expected_first():
    found = TASK.mistakes(EXAMPLES, ANSWERS)
    assert [(one.expected, one.found, one.example) for one in found] == [
        ("art|news", "art", 1),
        ("(none)", "sport", 2),
    ]
    assert [one.severity for one in found] == pytest.approx([-np.log(0.1), -np.log(0.2)])
    assert TASK.classes(EXAMPLES, ANSWERS) is None


def test_the_file_of_answers_has_bars_between_labels(tmp_path):
    (path,) = TASK.write(tmp_path, "test", EXAMPLES, ANSWERS)
    answers = [line.split("\t")[1] for line in path.read_text().splitlines()]
    assert answers == ["prediction", "art", "art", "sport", "art|sport"]
