"""SQuAD's exact match and F1, by hand and as the official scripts printed them; `minibert score squad`."""

import json
import math
from typing import NamedTuple

import numpy as np
import pytest
from command import ends_badly, notice  # noqa: F401 (a fixture)
from hypothesis import given, strategies as st
from real_data import real_data

from minibert import cli
from minibert.base.errors import InputError
from minibert.data.squad import read
from minibert.tasks.metrics import squad
from minibert.tasks.metrics.squad import exact_and_f1, normalize, question_scores, score


class Answer(NamedTuple):
    text: str


class Question(NamedTuple):
    id: str
    answers: tuple[Answer, ...]
    impossible: bool | None = False


def questions(**answers):
    """Questions by id, with the texts of their answers."""
    return [Question(id, tuple(map(Answer, texts)), not texts) for id, texts in answers.items()]


def exactly(value):
    return pytest.approx(value, rel=0, abs=1e-14)


# One answer


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat's, a HAT!\n", "cats hat"),
        ("an apple\u00a0pie", "apple pie"),
        ("theatre, Anna, data", "theatre anna data"),  # articles are whole words
        ("a.n", ""),  # punctuation goes first
        ("the-the", "thethe"),
        ("U.S.A.", "usa"),
        ("$1,200", "1200"),
        ("“The” end", "“ ” end"),  # only ASCII's punctuation goes
        ("ÉTÉ\u2009là", "été là"),
        ("a_the", "athe"),
        ("the", ""),
        ("", ""),
    ],
)
def test_normalize_leaves_what_is_compared(text, normal):
    assert normalize(text) == normal


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("Denver Broncos", ["the Denver Broncos"], 1, 1),
        ("Broncos of Denver", ["the Denver Broncos"], 0, 0.8),  # 2 shared of 3 and of 2
        ("Broncos", ["x", "Denver Broncos", "Denver"], 0, 2 / 3),  # the best answer counts
        ("no", ["no no no"], 0, 0.5),  # a word counts as often as both have it
        ("no no no", ["no no"], 0, 0.8),
        ("Carolina", ["Denver"], 0, 0),
        ("Denver", ["Carolina", "denver."], 1, 1),
    ],
)
@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_exact_match_and_f1_by_hand(prediction, answers, exact, f1, version):
    assert exact_and_f1(prediction, answers, version) == (exact, exactly(f1))


@pytest.mark.parametrize(
    ("prediction", "answers", "of_1_1", "of_2_0"),
    [
        ("a", ["The"], (1, 0), (1, 1)),  # nothing is left of both
        ("", ["the", "cat"], (1, 0), (0, 0)),  # 2.0 drops gold answers of which nothing is left
        ("cat", ["the"], (0, 0), (0, 0)),
    ],
)
def test_versions_differ_where_nothing_is_left_of_an_answer(prediction, answers, of_1_1, of_2_0):
    for version, expected in (("1.1", of_1_1), ("2.0", of_2_0)):
        found = exact_and_f1(prediction, answers, version)
        assert found == expected


def test_only_nothing_answers_a_question_without_an_answer():
    assert exact_and_f1("", [], "2.0") == (1, 1)
    assert exact_and_f1("the", [], "2.0") == (1, 1)  # nothing is left of it
    assert exact_and_f1("cat", [], "2.0") == (0, 0)
    with pytest.raises(InputError, match="no gold answer"):
        exact_and_f1("cat", [])


@given(st.text("ab Tthe.,"), st.text("ab Tthe.,"))
def test_f1_is_symmetric_and_1_for_an_exact_match(a, b):
    for version in ("1.1", "2.0"):
        if version == "1.1" or (normalize(a) and normalize(b)):
            assert exact_and_f1(a, [b], version)[1] == exact_and_f1(b, [a], version)[1]
        if exact_and_f1(a, [b], "2.0")[0]:
            assert exact_and_f1(a, [b], "2.0")[1] == 1


# Many answers: recorded from the official scripts

GOLD = {
    "q1": ["the Denver Broncos", "Broncos"],
    "q2": ["gold, silver and bronze", "gold"],
    "q3": ["1,200 men"],
    "q4": ["Santa Clara", "Santa Clara, California", "in Santa Clara"],
    "q5": ["The"],
    "q6": ["an old oak of the king"],
    "q7": ["seven days"],
}
SILENT = ("n1", "n2", "n3", "n4")  # questions of 2.0 without an answer
PREDICTIONS = {
    "q7": "seven long days of rain",
    "n2": "",
    "q1": "Denver broncos.",
    "q2": "silver and gold",
    "n1": "something",
    "q3": "about 1200 men and horses",
    "n4": "a",
    "q4": "California",
    "q5": "a",
    "q6": "",
    "n3": "nothing at all",
}
NULL_ODDS = {  # in this order, with equal ones
    "q2": 0.25,
    "n3": 0.5,
    "q1": -3.5,
    "q3": 0.5,
    "n1": 0.75,
    "q4": 0.25,
    "n2": 2.0,
    "q5": 1.5,
    "q6": 7.0,
    "n4": 0.1,
    "q7": 0.5,
}
OF_1_1 = '{"exact_match": 28.571428571428573, "f1": 50.00000000000001}'
OF_2_0 = """\
{
  "exact": 36.36363636363637,
  "f1": 59.09090909090909,
  "total": 11,
  "HasAns_exact": 28.571428571428573,
  "HasAns_f1": 64.28571428571429,
  "HasAns_total": 7,
  "NoAns_exact": 50.0,
  "NoAns_f1": 50.0,
  "NoAns_total": 4
}"""
OF_2_0_WITH_ODDS = """\
{
  "exact": 27.272727272727273,
  "f1": 50.0,
  "total": 11,
  "HasAns_exact": 14.285714285714286,
  "HasAns_f1": 50.00000000000001,
  "HasAns_total": 7,
  "NoAns_exact": 50.0,
  "NoAns_f1": 50.0,
  "NoAns_total": 4,
  "best_exact": 45.45454545454545,
  "best_exact_thresh": -3.5,
  "best_f1": 49.99999999999999,
  "best_f1_thresh": 0.5
}"""
OF_2_0_AT_0_5 = """\
{
  "exact": 36.36363636363637,
  "f1": 59.09090909090909,
  "total": 11,
  "HasAns_exact": 14.285714285714286,
  "HasAns_f1": 50.00000000000001,
  "HasAns_total": 7,
  "NoAns_exact": 75.0,
  "NoAns_f1": 75.0,
  "NoAns_total": 4,
  "best_exact": 45.45454545454545,
  "best_exact_thresh": -3.5,
  "best_f1": 49.99999999999999,
  "best_f1_thresh": 0.5
}"""


def gold_of(version):
    return questions(**GOLD, **({} if version == "1.1" else dict.fromkeys(SILENT, ())))


def official(version):
    """The gold file of a version."""
    qas = [
        {
            "id": id,
            "question": "?",
            "answers": [{"text": text, "answer_start": 0} for text in texts],
            **({"is_impossible": not texts} if version == "2.0" else {}),
        }
        for id, texts in {**GOLD, **({} if version == "1.1" else dict.fromkeys(SILENT, ()))}.items()
    ]
    context = " | ".join(text for texts in GOLD.values() for text in texts)
    for qa in qas:
        for answer in qa["answers"]:
            answer["answer_start"] = context.index(answer["text"])
    article = {"title": "Ours", "paragraphs": [{"context": context, "qas": qas}]}
    return {"version": f"v{version}" if version == "2.0" else version, "data": [article]}


@pytest.mark.parametrize(
    ("version", "options", "recorded"),
    [
        ("1.1", {}, OF_1_1),
        ("2.0", {}, OF_2_0),
        ("2.0", {"null_odds": NULL_ODDS}, OF_2_0_WITH_ODDS),
        ("2.0", {"null_odds": NULL_ODDS, "threshold": 0.5}, OF_2_0_AT_0_5),
    ],
)
def test_figures_are_those_of_the_official_script_to_the_last_digit(version, options, recorded):
    assert squad.official_text(score(gold_of(version), PREDICTIONS, **options)) == recorded


# Files as conversions write them, beside the scripts' rules written out


def converted(generator, version):
    """A file with whatever conversions write: blank answers, articles alone, answers beside is_impossible."""
    texts = ["", " ", "the", "A.", "oak", "the oak", "old oak", "an old oak tree"]
    qas = []
    for n in range(generator.randint(1, 12)):
        answers = generator.choices(texts, k=generator.randint(version == "1.1", 3))
        item = {"id": f"q{n}", "question": "?", "answers": [dict(text=t, answer_start=0) for t in answers]}
        if version == "2.0" and generator.random() < 0.7:
            item["is_impossible"] = generator.random() < 0.5
        qas.append(item)
    return {"data": [{"paragraphs": [{"context": "an old oak tree", "qas": qas}]}]}


def by_the_rules(qas, predictions, odds=None, threshold=1.0, version="2.0"):
    """What the scripts count, question by question, and in what order they add."""

    def f1(gold, found):
        gold, found = normalize(gold).split(), normalize(found).split()
        if version == "2.0" and (not gold or not found):
            return float(gold == found)
        rest, shared = list(gold), 0
        for word in found:
            if word in rest:
                rest.remove(word)
                shared += 1
        if not shared:
            return 0.0
        precision, recall = shared / len(found), shared / len(gold)
        return 2 * precision * recall / (precision + recall)

    raw, has = {}, {qa["id"]: bool(qa["answers"]) for qa in qas}
    for qa in qas:
        gold = [answer["text"] for answer in qa["answers"]]
        if version == "2.0":
            gold = [text for text in gold if normalize(text)] or [""]
        if (found := predictions.get(qa["id"])) is not None:
            raw[qa["id"]] = (
                float(any(normalize(text) == normalize(found) for text in gold)),
                max(f1(text, found) for text in gold),
            )
    kept = raw
    if odds is not None:
        nothing = {id: (float(not has[id]),) * 2 for id in raw}
        kept = {id: nothing[id] if odds[id] > threshold else both for id, both in raw.items()}
    figures = {}
    groups = {"": list(has)}
    if version == "2.0":
        groups |= {"HasAns_": [id for id in has if has[id]], "NoAns_": [id for id in has if not has[id]]}
    for name, ids in groups.items():
        if ids:
            for k, key in enumerate(("exact", "f1")):
                figures[name + key] = 100.0 * sum(kept[id][k] for id in ids if id in kept) / len(ids)
            figures[name + "total"] = len(ids)
    for k, key in enumerate(("exact", "f1") if odds is not None else ()):
        best = now = sum(not one for one in has.values())
        at = 0.0
        for id in sorted(odds, key=odds.get):
            now += raw[id][k] if has[id] else -1 if predictions[id] else 0
            if now > best:
                best, at = now, odds[id]
        figures |= {f"best_{key}": 100.0 * best / len(raw), f"best_{key}_thresh": at}
    return figures


@pytest.mark.filterwarnings("ignore:.*have no prediction:UserWarning")
@given(st.randoms(use_true_random=False), st.sampled_from(["1.1", "2.0"]), st.booleans())
def test_converted_files_are_scored_by_the_rules_of_the_scripts(tmp_path_factory, generator, version, odds):
    path = tmp_path_factory.mktemp("converted") / "gold.json"
    content = converted(generator, version)
    path.write_text(json.dumps(content))
    qas = content["data"][0]["paragraphs"][0]["qas"]
    texts = ["", "the", "oak", "the old oak!", "an Old oak  tree", "a stone"]
    predictions = {qa["id"]: generator.choice(texts) for qa in qas}
    options = {}
    if version == "2.0" and odds:
        options["null_odds"] = {id: generator.choice([-1.5, 0.0, 0.25, 2.0]) for id in predictions}
        options["threshold"] = generator.choice([-2.0, 0.0, 1.0])
    elif version == "1.1" and len(qas) > 1:
        del predictions[generator.choice(qas)["id"]]  # the script of 2.0 breaks down there
    found = read(path, listed=True)
    if not any(question.impossible or "oak" in str(question.answers) for question in found):
        return  # as if nothing were known of any question
    ours = score(found, predictions, version=version, **options)
    assert ours == by_the_rules(qas, predictions, *options.values(), version=version)


def test_conversions_of_unanswerable_questions_count_as_in_the_script(tmp_path, capsys):
    blank, oak = {"text": "", "answer_start": -1}, {"text": "oak", "answer_start": 7}
    qas = [
        {"id": "blank", "question": "?", "is_impossible": True, "answers": [blank]},
        {"id": "beside", "question": "?", "is_impossible": True, "answers": [oak]},
        {"id": "none", "question": "?", "is_impossible": True, "answers": []},
    ]
    gold = {"data": [{"paragraphs": [{"context": "an old oak tree", "qas": qas}]}]}
    words = [
        write(tmp_path / "gold.json", gold),
        write(tmp_path / "predictions.json", {"blank": "", "beside": "oak", "none": "oak"}),
    ]
    assert cli.main(["score", "squad", *words]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out.split("\n\n")[0]) == {
        "exact": 200 / 3, "f1": 200 / 3, "total": 3,
        "HasAns_exact": 100.0, "HasAns_f1": 100.0, "HasAns_total": 2,
        "NoAns_exact": 0.0, "NoAns_f1": 0.0, "NoAns_total": 1,
    }  # fmt: skip
    assert not captured.err


def test_version_is_seen_from_the_questions_or_said():
    assert score(gold_of("1.1"), PREDICTIONS).keys() == {"exact", "f1", "total"}
    assert "HasAns_exact" in score(gold_of("1.1"), PREDICTIONS, version="2.0")
    assert "NoAns_total" in score(gold_of("2.0"), PREDICTIONS)
    with pytest.raises(InputError, match="no gold answer"):
        score(gold_of("2.0"), PREDICTIONS, version="1.1")


def test_questions_without_a_prediction_count_as_wrong_and_are_counted():
    some = {id: text for id, text in PREDICTIONS.items() if id not in ("q1", "n2")}
    for version, hits in (("1.1", 1), ("2.0", 2)):
        whole = score(gold_of(version), PREDICTIONS)
        with pytest.warns(UserWarning, match="have no prediction and count as wrong; the first is q1"):
            figures = score(gold_of(version), some)
        assert figures["total"] == whole["total"]
        assert figures["exact"] == exactly(whole["exact"] - 100 * hits / whole["total"])


def test_scores_of_questions_are_those_that_the_figures_are_made_of():
    gold = gold_of("2.0")
    scores, figures = question_scores(gold, PREDICTIONS), score(gold, PREDICTIONS)
    assert scores.exact.tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1]
    assert scores.f1.tolist() == pytest.approx([1, 6 / 7, 4 / 7, 0.5, 1, 0, 0.57142857, 0, 1, 0, 1])
    assert figures["f1"] == exactly(100 * scores.f1.mean())


def test_scores_are_added_from_left_to_right_as_the_script_does():
    gold = questions(
        **{f"q{n}": ["one two three four five six seven".split(" ", n % 7)[-1]] for n in range(100)}
    )
    predictions = {question.id: "five six seven eight" for question in gold}
    f1 = question_scores(gold, predictions).f1
    total = 0.0
    for value in f1.tolist():
        total += value
    assert score(gold, predictions)["f1"] == 100.0 * total / len(f1)
    assert 100.0 * math.fsum(f1) / len(f1) != 100.0 * total / len(f1)  # so the order does matter


# The threshold of no answer


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from(["", "cat", "dog", "cat dog"])), min_size=1, max_size=9
    ),
    st.randoms(),
)
def test_best_threshold_is_the_best_there_is(drawn, random):
    gold = [Question(str(n), (Answer("cat"),) if has else (), not has) for n, (has, _) in enumerate(drawn)]
    predictions = {str(n): text for n, (_, text) in enumerate(drawn)}
    odds = {id: (place + 1) / 10 for place, id in enumerate(random.sample(list(predictions), len(drawn)))}
    best = score(gold, predictions, odds, version="2.0")
    for name in ("exact", "f1"):
        reached = {
            threshold: score(gold, predictions, odds, threshold, "2.0")[name]
            for threshold in (0.0, *odds.values())
        }
        assert best[f"best_{name}"] == pytest.approx(max(reached.values()), abs=1e-9)
        assert reached[best[f"best_{name}_thresh"]] == pytest.approx(best[f"best_{name}"], abs=1e-9)


def test_threshold_silences_predictions_above_it_only():
    gold, odds = gold_of("2.0"), NULL_ODDS
    plain = question_scores(gold, PREDICTIONS)
    found = squad.with_threshold(plain, gold, PREDICTIONS, odds, 0.75)
    silent = [odds[question.id] > 0.75 for question in gold]
    right = [float(not question.answers) for question in gold]
    assert found.exact.tolist() == np.where(silent, right, plain.exact).tolist()
    assert sum(silent) == 3


# What can't be scored


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"predictions": {}}, "None of the 0 predictions is for one of the 11 questions"),
        ({"predictions": PREDICTIONS | {"q3": 1200}}, "prediction for question q3 is 1200"),
        ({"predictions": PREDICTIONS | {"q3": None}}, "prediction for question q3 is None"),
        ({"questions": []}, "no question"),
        ({"questions": [Question("q1", (), None)]}, "None of the 1 questions has an answer"),
        ({"version": "3"}, "version='3'"),
        ({"null_odds": {"q1": 1.0}}, "null odds of question q2 are None"),
        ({"null_odds": NULL_ODDS | {"n3": math.nan}}, "null odds of question n3 are nan"),
        ({"null_odds": NULL_ODDS | {"q1": "1"}}, "null odds of question q1 are '1'"),
        ({"null_odds": NULL_ODDS | {"q1": True}}, "null odds of question q1 are True"),
        ({"null_odds": NULL_ODDS | {"q1": 10**400}}, "null odds of question q1 are 1000"),
        ({"questions": gold_of("1.1"), "null_odds": NULL_ODDS}, "score with version 2.0"),
    ],
)
def test_what_cannot_be_scored_is_refused(options, message):
    with pytest.raises(InputError) as error:
        score(**{"questions": gold_of("2.0"), "predictions": PREDICTIONS} | options)
    assert message in str(error.value)


# minibert score squad


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path):
    """A function that writes the gold file of a version, the predictions and the null odds."""

    def written(version):
        gold = write(tmp_path / "gold.json", official(version))
        return (
            gold,
            write(tmp_path / "predictions.json", PREDICTIONS),
            write(tmp_path / "odds.json", NULL_ODDS),
        )

    return written


def test_command_prints_the_official_text_and_intervals(files, capsys):
    for version, recorded, options in (
        ("1.1", OF_1_1, []),
        ("2.0", OF_2_0, []),
        ("2.0", OF_2_0_WITH_ODDS, ["--null-odds"]),
        ("2.0", OF_2_0_AT_0_5, ["--threshold", "0.5", "--null-odds"]),
    ):
        gold, predictions, odds = files(version)
        assert cli.main(["score", "squad", gold, predictions, *options, *([odds] if options else [])]) == 0
        text, below = capsys.readouterr().out.split("\n\n")
        assert text == recorded
        title, exact, f1 = below.splitlines()
        assert title.startswith(f"SQuAD {version}, ")
        for line, name in ((exact, "exact"), (f1, "f1")):
            word, value, low, to, high = line.split()
            assert (word, to) == (name, "to")
            assert float(low) < float(value) < float(high)
            assert f"{json.loads(recorded).get(name, json.loads(recorded).get('exact_match')):.3f}" == value


def test_command_tells_everything_as_json_and_counts_what_is_missing(files, tmp_path, capsys):
    gold, _, _ = files("2.0")
    some = write(tmp_path / "some.json", {id: PREDICTIONS[id] for id in ("q1", "q4", "n2", "n3")})
    assert cli.main(["score", "squad", gold, some, "--json"]) == 0
    captured = capsys.readouterr()
    figures = json.loads(captured.out)
    assert "7 of 11 questions have no prediction and count as wrong" in captured.err
    assert captured.err.count("\n") == 1
    assert (figures["missing"], figures["total"], figures["version"]) == (7, 11, "2.0")
    assert figures["exact"] == exactly(100 * 2 / 11)
    low, high = figures["intervals"]["exact"]
    assert 0 <= low < figures["exact"] < high <= 100


def test_command_draws_intervals_from_what_the_threshold_leaves(files, capsys):
    gold, predictions, odds = files("2.0")
    words = ["score", "squad", gold, predictions, "--null-odds", odds, "--threshold", "-10", "--json"]
    assert cli.main(words) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["exact"] == figures["f1"] == exactly(400 / 11)  # nothing is answered
    assert figures["intervals"]["exact"] == figures["intervals"]["f1"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", 'it is [1], expected an object; give an object {"id": ...}'),
        ("{", "can't be read as JSON"),
        ("[" * 100_000, "it is nested more than 64 deep"),
        ('{"q1": ' + "9" * 5000 + "}", "a number has 5,000 digits"),
        ('{"q1": 12}', "prediction for question q1 is 12"),
        ('{"other": "x"}', "None of the 1 predictions"),
    ],
)
def test_command_refuses_broken_predictions(files, tmp_path, capsys, content, message):
    gold, _, _ = files("1.1")
    file = write(tmp_path / "broken.json", content)
    assert message in ends_badly(capsys, cli.BAD_INPUT, "score", "squad", gold, file)


def test_command_refuses_what_is_no_file_and_a_threshold_of_nothing(files, tmp_path, capsys):
    gold, predictions, odds = files("2.0")
    absent = str(tmp_path / "absent.json")
    assert "absent.json" in ends_badly(capsys, cli.BAD_INPUT, "score", "squad", absent, predictions)
    assert "absent.json" in ends_badly(capsys, cli.BAD_INPUT, "score", "squad", gold, absent)
    message = ends_badly(capsys, cli.BAD_INPUT, "score", "squad", gold, predictions, "--threshold", "1")
    assert "--null-odds" in message
    words = ["score", "squad", gold, predictions, "--null-odds", odds, "--threshold", "nan"]
    assert "--threshold nan is not a number" in ends_badly(capsys, cli.BAD_INPUT, *words)


# The published predictions


@pytest.mark.representatives(name=["v1.1_bert_ensemble", "v2.0_bert_single"])
@pytest.mark.parametrize(
    ("version", "name", "official", "exact", "f1"),
    [
        (
            "1.1",
            "v1.1_bert_ensemble",
            '{"exact_match": 86.20624408703878, "f1": 92.19557978351129}',
            "86.206",
            "92.196",
        ),
        (
            "1.1",
            "v1.1_logistic_regression",  # 13 questions are without a prediction
            '{"exact_match": 40.14191106906339, "f1": 50.98153647324482}',
            "40.142",
            "50.982",
        ),
        (
            "2.0",
            "v2.0_bert_single",
            """\
{
  "exact": 78.74168280973637,
  "f1": 81.77528052374727,
  "total": 11873,
  "HasAns_exact": 74.10593792172739,
  "HasAns_f1": 80.18183293833516,
  "HasAns_total": 5928,
  "NoAns_exact": 83.36417157275021,
  "NoAns_f1": 83.36417157275021,
  "NoAns_total": 5945
}""",
            "78.742",
            "81.775",
        ),
        (
            "2.0",
            "v2.0_bidaf_elmo",
            """\
{
  "exact": 65.70369746483618,
  "f1": 67.8764892145134,
  "total": 11873,
  "HasAns_exact": 61.42037786774629,
  "HasAns_f1": 65.77219238257676,
  "HasAns_total": 5928,
  "NoAns_exact": 69.97476871320437,
  "NoAns_f1": 69.97476871320437,
  "NoAns_total": 5945
}""",
            "65.704",
            "67.876",
        ),
    ],
    ids=["BERT ensemble", "logistic regression", "BERT single", "BiDAF and ELMo"],
)
def test_published_predictions_get_what_the_official_script_prints(
    version, name, official, exact, f1, capsys
):
    gold = real_data(f"squad/dev-v{version}.json")
    predictions = real_data(f"squad/predictions/{name}.json")
    assert cli.main(["score", "squad", str(gold), str(predictions)]) == 0
    text, below = capsys.readouterr().out.split("\n\n")
    assert text == official
    assert [line.split()[:2] for line in below.splitlines()[1:]] == [["exact", exact], ["f1", f1]]
