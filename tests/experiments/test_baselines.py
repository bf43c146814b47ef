"""Trivial baselines: by hand, by a textbook's example, and by what the makers of the data published."""

import math

import pytest
from real_data import FIXTURES, real_data

from minibert.data.choice import ChoiceExample
from minibert.data.glue import TextExample
from minibert.data.ner import TaggedSentence
from minibert.data.squad import Answer, Question
from minibert.experiments import baselines
from minibert.experiments.baselines import strongest
from minibert.tasks.bag_of_words import NaiveBayes
from minibert.tasks.registry import create


def texts(*rows):
    return [TextExample(str(n), first, second, label) for n, (first, second, label) in enumerate(rows)]


def test_naive_bayes_is_that_of_manning_raghavan_and_schuetze():
    """Example 13.1 of "Introduction to Information Retrieval": classes not China, China."""
    train = ["Chinese Beijing Chinese", "Chinese Chinese Shanghai", "Chinese Macao", "Tokyo Japan Chinese"]
    dev = [["Chinese", "Chinese", "Chinese", "Tokyo", "Japan", "Osaka"]]  # the last is in no text of train
    [found] = NaiveBayes([text.split() for text in train], [1, 1, 1, 0], 2).log_probabilities(dev)
    assert found[1] == pytest.approx(math.log(3 / 4 * (3 / 7) ** 3 * 1 / 14 * 1 / 14))
    assert found[0] == pytest.approx(math.log(1 / 4 * (2 / 9) ** 3 * 2 / 9 * 2 / 9))


def test_words_tell_the_class_of_a_text():
    train = texts(
        ("a good film", None, "1"), ("a bad film", None, "0"), ("good", None, "1"), ("so bad", None, "0")
    )
    dev = texts(("so good", None, "1"), ("one bad film", None, "0"), ("Bad!", None, "0"))
    name, found = strongest(create("sst2"), train, dev, ("0", "1"))
    assert (name, found) == ("naive Bayes of words", [{"label": "1"}, {"label": "0"}, {"label": "0"}])


def test_sides_of_a_pair_are_distinguished_and_shared_words_count():
    columns = create("classify", {"second": "second"})
    sided = texts(("x", "y", "a"), ("y", "x", "b")) * 4
    name, found = strongest(columns, sided, sided, ("a", "b"))
    assert name == "naive Bayes of words" and found[:2] == [{"label": "a"}, {"label": "b"}]
    train = texts(("x y", "y x", "a"), ("u v", "w z", "b")) * 4
    dev = texts(("k l", "l k", "a"), ("k l", "m n", "b"))  # new words
    name, found = strongest(columns, train, dev, ("a", "b"))
    assert name == "naive Bayes of shared words" and found == [{"label": "a"}, {"label": "b"}]


def test_a_constant_wins_where_words_carry_no_information():
    train = texts(("x", None, "0"), ("x", None, "1"), ("x", None, "1"))
    dev = texts(("y", None, "0"), ("y", None, "0"), ("y", None, "1"))
    assert strongest(create("sst2"), train, dev, ("0", "1"))[0] == "always 0"


def test_the_strongest_is_so_by_what_is_judged():
    """By F1, the first metric of MRPC, "always 1" would be: 0.75 to 0.67; right are 6 to 7 of 10."""
    train = texts(("good", "", "1"), ("bad", "", "0"))
    rows = [("good", "", "1")] * 3 + [("bad", "", "1")] * 3 + [("bad", "", "0")] * 4
    name, found = strongest(create("mrpc"), train, texts(*rows), ("0", "1"))
    assert name == "naive Bayes of words" and [one["label"] for one in found] == list("1110000000")


def test_likeness_is_the_cosine_of_the_words_in_the_range_of_the_scores():
    train = texts(("a", "b", 1.0), ("a", "b", 5.0))
    dev = texts(("a b", "B a", 4.5), ("a a b", "a c", 3.0), ("a", "c", 0.5))
    name, found = strongest(create("stsb"), train, dev, ())
    assert name == "cosine of the words"
    assert [one["value"] for one in found] == pytest.approx([5, 1 + 4 * 2 / math.sqrt(5 * 2), 1])
    single = texts(("a", None, 1.0), ("b", None, 4.0))
    assert strongest(create("regress"), single, single, ()) == ("mean of train", [{"value": 2.5}] * 2)


@pytest.mark.parametrize(
    ("first", "second", "cosine"),
    [
        ("a a b", "a b b b", 5 / math.sqrt(5 * 10)),  # words repeat on both sides
        ("a b b b", "a a b", 5 / math.sqrt(5 * 10)),
        ("a", "b", 0.0),
        ("a", "", 0.0),
    ],
)
def test_the_cosine_is_that_of_the_counts_of_words(first, second, cosine):
    assert baselines._cosine(first, second) == pytest.approx(cosine)


def test_the_ending_is_chosen_that_shares_most_words():
    rows = [("a b", ("c", "a b"), 1), ("c d", ("c d", "e"), 0), ("e", ("e", "f"), 0), ("f", ("x", "f"), 1)]
    dev = [ChoiceExample(str(n), context, "", endings, k) for n, (context, endings, k) in enumerate(rows)]
    name, found = strongest(create("swag"), dev, dev, ())
    assert name == "cosine of the words" and found == [{"choice": k} for k in (1, 0, 0, 1)]


def tagged(*sentences):
    pairs = ([word.split("/") for word in sentence.split()] for sentence in sentences)
    return [TaggedSentence(*zip(*one, strict=True), n) for n, one in enumerate(pairs)]


def test_entities_of_train_are_found_the_longest_first():
    train = tagged("New/B-LOC York/I-LOC is/O", "New/B-ORG York/I-ORG Times/I-ORG", "New/O York/B-LOC")
    dev = tagged("the/O New/B-ORG York/I-ORG Times/I-ORG of/O New/B-LOC York/I-LOC")
    name, [found] = strongest(create("ner"), train, dev, ())
    assert name == "entities of train" and found == list(dev[0].tags)


def test_parts_of_speech_are_the_most_frequent_of_their_word():
    train = tagged("the/DT run/NN", "a/DT run/NN", "they/PRP run/VB cats/NN")
    dev = tagged("the/DT run/NN they/PRP saw/VB dogs/NN")
    name, found = strongest(create("tag"), train, dev, ())
    assert (name, found) == ("most frequent tag of each word", [["DT", "NN", "PRP", "NN", "NN"]])


@pytest.mark.slow
@pytest.mark.parametrize(("split", "published"), [("dev", 71.18), ("test", 59.61)])
def test_entities_of_train_score_as_the_baseline_that_conll_2003_published(split, published):
    """Tjong Kim Sang and De Meulder (2003), table 5; how they broke ties is not told."""
    task, folder = create("ner"), real_data("ner")
    train, examples = task.read(folder, "train"), task.read(folder, split)
    name, found = strongest(task, train, examples, ())
    assert name == "entities of train"
    assert 100 * task.score(examples, found)["f1"] == pytest.approx(published, abs=0.06)


def question(asked, context, answer):
    return Question(
        asked, asked, context, (Answer(answer, context.find(answer)),) if answer else (), not answer
    )


def test_the_name_or_number_nearest_to_the_words_of_the_question_answers_it():
    context = "Mary Ann built the old mill. In 1841 John Smith sold the farm to a baker."
    asked = [
        question("Who built the mill?", context, "Mary Ann"),
        question("When was it sold?", context, "1841"),
    ]
    filler = [question("?", "the to a in of it", "it")]
    name, found = strongest(create("squad1"), filler, asked, ())
    assert name == "names and numbers near the question's"
    assert [one["text"] for one in found] == ["Mary Ann", "1841 John Smith"]
    lower = [question("who sold the mill", "the mill was sold by an old farmer.", "farmer")]
    filler = [question("?", "the to a in of it was by an old", "it")]
    assert strongest(create("squad1"), filler, lower, ())[0] == "words near the question's"


def test_no_answer_is_the_baseline_where_most_questions_have_none():
    task = create("squad2")
    examples = task.read(FIXTURES / "squad", "dev")
    silent = [one for one in examples if not one.answers]
    assert strongest(task, examples, silent, ()) == (
        "no answer",
        [{"id": one.id, "text": ""} for one in silent],
    )
