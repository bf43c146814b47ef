"""Question answering: spans from scores, no answer and its threshold, files, figures, and a rule learnt."""

import dataclasses
import io
import json
import re
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from objectives import update_once
from questions import TOKENIZER, WORDS, asked, most_context_by_loop, starts_of_loop, words

from minibert import cli, engines, hub
from minibert.base.errors import InputError
from minibert.core.config import BertConfig
from minibert.core.optim import AdamW
from minibert.finetuning import models
from minibert.finetuning.predicting import predict_examples
from minibert.model import heads
from minibert.model.batch import TaskBatch
from minibert.model.params import Head, initialise
from minibert.tasks.answer_spans import best_spans, decode
from minibert.tasks.answering import (
    NULL_THRESHOLD,
    answer,
    best_threshold,
    find,
    passage,
)
from minibert.tasks.batches import batch_outputs
from minibert.tasks.registry import create
from minibert.tasks.task import softmax
from minibert.tasks.windows import Windows
from minibert.training import runlog

SCORES = st.integers(-4, 4)  # few, so that many are equal


def random_outputs(made, seed, low=-5.0, high=5.0):
    generator = np.random.default_rng(seed)
    return [generator.uniform(low, high, (length, 2)).astype(np.float32) for length in made.lengths]


def sure_of(made, number, first, last, null=0.0):
    """Scores of a model that finds tokens first..last of one window, and no answer as good as `null`."""
    found = [np.full((length, 2), -9.0) for length in made.lengths]
    for output in found:
        output[0] = null / 2
    row = made.first_row(number)
    found[number][row + first, 0] = found[number][row + last, 1] = 5.0
    return found


# The best spans


@given(
    scores=st.lists(st.tuples(SCORES, SCORES, st.booleans()), max_size=12),
    count=st.integers(1, 12),
    longest=st.integers(1, 14),
)
def test_best_spans_are_those_of_all_pairs(scores, count, longest):
    starts = np.array([s if allowed else -np.inf for s, _, allowed in scores], np.float64)
    ends = np.array([e for _, e, _ in scores], np.float64)
    pairs = [
        (first, last)
        for first in range(len(scores))
        for last in range(first, min(first + longest, len(scores)))
        if starts[first] > -np.inf
    ]
    pairs.sort(key=lambda pair: (-(starts[pair[0]] + ends[pair[1]]), *pair))
    first, last = best_spans(starts, ends, count, longest)
    assert list(zip(first.tolist(), last.tolist(), strict=True)) == pairs[:count]


def all_spans(found, outputs, row, longest):
    """(score, first token, last token) in the paragraph of every span of every window, the best first."""
    spans = []
    for number, ((start, length), output) in enumerate(zip(found, outputs, strict=True)):
        for i in range(length):
            if most_context_by_loop(found, start + i) == number:
                for j in range(i, min(i + longest, length)):
                    score = float(output[row + i, 0]) + float(output[row + j, 1])
                    spans.append((score, start + i, start + j))
    return sorted(spans, key=lambda span: -span[0])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("context", [words(0, 70), "w1 w2 " * 30, "w7 " * 50])
def test_answers_of_all_windows_are_those_of_brute_force(seed, context):
    made = Windows([asked("w3"), asked(context)], TOKENIZER, 25, stride=8)
    outputs = random_outputs(made, seed)[1:]
    tokens = context.split()
    spans = all_spans(starts_of_loop(len(tokens), 20, 8), outputs, 4, longest=6)
    expected = {}
    for score, first, last in spans:
        expected.setdefault(" ".join(tokens[first : last + 1]), score)
    expected = list(expected.items())[:20]
    found = decode(made, 1, outputs, context, count=20, longest=6)
    assert [(one.text, one.score) for one in found.best] == expected
    assert len(expected) == (6 if context.startswith("w7") else 12 if "w3" not in context else 20)
    for one in found.best:
        assert context[one.begin : one.end] == one.text


def test_a_text_that_stands_everywhere_hides_no_other_answer():
    context = "w1 " * 19 + "w2 w3 w4"
    made = Windows([asked(context)], TOKENIZER, 25, stride=20)  # the second begins with w3
    outputs = [np.zeros((length, 2)) for length in made.lengths]
    outputs[0][4:23, 0], outputs[0][23, 0], outputs[1][4:6, 0] = 10.0, 8.0, (1.0, 0.5)
    for count, expected in ((3, ["w1", "w2", "w3"]), (4, ["w1", "w2", "w3", "w4"])):
        found = decode(made, 0, outputs, context, count, longest=1)
        assert [one.text for one in found.best] == expected


def test_end_need_not_have_most_context_but_start_must():
    context = words(0, 30)
    made = Windows([asked(context)], TOKENIZER, 25, stride=10)  # w0-w19 and w10-w29: the border is at w15
    for window, first, last, expected in ((0, 14, 19, "w14 w15 w16 w17 w18 w19"), (1, 4, 9, None)):
        found = decode(made, 0, sure_of(made, window, first, last), context, 20, 30)
        assert (found.best[0].text if found.best[0].score == 10.0 else None) == expected


def test_longest_answer_is_kept_to():
    context = words(0, 9)
    made = Windows([asked(context)], TOKENIZER)
    outputs = sure_of(made, 0, 2, 6)
    assert decode(made, 0, outputs, context, 20, longest=5).best[0].text == words(2, 7)
    assert decode(made, 0, outputs, context, 20, longest=4).best[0].score < 0


def test_no_answer_counts_as_in_the_window_that_thinks_least_of_it():
    context = words(0, 30)
    made = Windows([asked(context)], TOKENIZER, 25, stride=10)
    outputs = sure_of(made, 1, 6, 7)
    outputs[0][0], outputs[1][0] = (3.0, 4.0), (-1.0, 2.5)
    found = decode(made, 0, outputs, context, 20, 30)
    assert (found.null.start_logit, found.null.end_logit) == (-1.0, 2.5)
    assert found.null_odds == 1.5 - 10.0


def test_paragraph_without_a_token_has_no_answer():
    made = Windows([asked(" ")], TOKENIZER)
    found = decode(made, 0, [np.ones((5, 2))], " ", 20, 30)
    assert (found.best, found.null.score, found.null_odds) == ([], 2.0, 0.0)


def test_a_task_s_own_numbers_reach_windows_and_answers():
    question, task = asked(words(0, 70), question="w1 w2 w3"), create("squad1", {})
    task.stride, task.max_question, task.n_best, task.longest = 8, 2, 3, 1
    with pytest.warns(UserWarning, match="longer than 2 pieces"):
        made = task.features([question], TOKENIZER, (), 25, False)
    assert made.lengths.tolist() == 7 * [25] + [19]  # 2 of the question, 20 of the text, from every eighth on
    answers = task.predict([question], made, random_outputs(made, 0), (), {})[0]["n_best"]
    assert len(answers) == 3 and all(one["text"] in WORDS for one in answers)


@pytest.mark.parametrize(
    "context",
    ["The CAFÉ\u00a0—  Ｗ3!", "日本語😀テキスト w5", "a\u0301b̂c \u200bx\tw1\r\nw2", "Ω≈ç√ ﬁne ½ İstanbul"],
)
def test_answers_stand_in_the_original_text_as_they_are(context):
    made = Windows([asked(context)], TOKENIZER)
    found = decode(made, 0, random_outputs(made, 0), context, 99, 30)
    assert len(found.best) > 2
    for one in found.best:
        assert one.text == context[one.begin : one.end] == one.text.strip()


def test_probabilities_are_a_softmax_that_does_not_overflow():
    found = softmax([np.log(6.0), np.log(3.0), np.log(1.0)])
    assert found.tolist() == pytest.approx([0.6, 0.3, 0.1], abs=1e-15)
    assert softmax([2000.0, 2000.0, -2000.0]).tolist() == [0.5, 0.5, 0.0]


# No answer


@given(st.lists(st.tuples(SCORES, st.sampled_from([0.0, 0.5, 1.0]), st.booleans()), min_size=1, max_size=10))
def test_threshold_is_the_best_there_is(questions):
    odds = np.array([odd for odd, _, _ in questions], np.float64)
    answered = np.array([score for _, score, _ in questions])
    silent = np.array([float(impossible) for _, _, impossible in questions])

    def total(threshold):
        return float(np.where(odds > threshold, silent, answered).sum())

    best = max(total(threshold) for threshold in [-5.0, *range(-4, 5)])
    found = best_threshold(odds, answered, silent)
    assert total(found) == best
    assert found in odds or found < odds.min()


def squad2_of(odds):
    """Three questions whose best answers are w2, w4, w6 with these null odds; the first has no answer."""
    questions = [
        asked(words(0, 9), id="none", impossible=True),
        asked(words(0, 9), "w4", id="four"),
        asked(words(0, 9), "w6", id="six"),
    ]
    made = create("squad2", {}).features(questions, TOKENIZER, (), 384, False)
    outputs = []
    for number, odd in enumerate(odds):
        token = 2 + 2 * number
        outputs.append(sure_of(made, number, token, token, null=10.0 + odd)[number])
    return questions, made, outputs


def test_threshold_chosen_on_dev_decides():
    task = create("squad2", {})
    questions, made, outputs = squad2_of([0.75, 0.5, -3.0])
    assert [p["text"] for p in task.predict(questions, made, outputs, (), {})] == ["", "", "w6"]  # above 0
    tuned = task.tune(questions, made, outputs, ())
    assert tuned == {NULL_THRESHOLD: 0.5}
    predictions = task.predict(questions, made, outputs, (), tuned)
    assert [p["text"] for p in predictions] == ["", "w4", "w6"]
    assert [p["null_odds"] for p in predictions] == [0.75, 0.5, -3.0]
    figures = task.score(questions, predictions)
    assert (figures["f1"], figures["best_f1"], figures["best_f1_thresh"]) == (1.0, 1.0, 0.5)
    assert task.classes(questions, predictions) == (
        ["no answer", "an answer", "an answer"],
        ["no answer", "an answer", "an answer"],
    )


def test_an_ensemble_decides_by_the_mean_of_the_thresholds():
    questions, made, outputs = squad2_of([0.75, 0.5, -3.0])

    def model(threshold):
        return SimpleNamespace(
            task=create("squad2", {}), labels=(), tuned={NULL_THRESHOLD: threshold},
            features=lambda examples: made, outputs=lambda *_, **__: outputs,
        )  # fmt: skip

    low, high = model(-1.0), model(2.0)
    for members, texts in (
        ([low], ["", "", "w6"]),
        ([high], ["w2", "w4", "w6"]),
        ([low, high], ["", "w4", "w6"]),
    ):
        assert [one["text"] for one in predict_examples(members, questions)] == texts


def test_figures_of_squad_2_are_the_official_ones_as_fractions():
    task = create("squad2", {})
    questions, made, outputs = squad2_of([-1.0, 0.5, -3.0])
    predictions = task.predict(questions, made, outputs, (), {})
    assert [p["text"] for p in predictions] == ["w2", "", "w6"]
    figures = task.score(questions, predictions)
    assert figures["exact"] == figures["f1"] == pytest.approx(1 / 3, abs=1e-15)
    assert (figures["HasAns_f1"], figures["NoAns_f1"], figures["total"]) == (0.5, 0.0, 3.0)
    # Answering the last alone, or all three, is right twice.
    assert (figures["best_f1"], figures["best_f1_thresh"]) == (pytest.approx(2 / 3, abs=1e-15), -3.0)
    assert task.statistic(questions, predictions)(np.array([2, 2, 0, 1])) == 0.5
    mistakes = task.mistakes(questions, predictions)
    assert [(m.expected, m.found) for m in mistakes] == [("(no answer)", "w2"), ("w4", "(no answer)")]
    assert [m.severity for m in mistakes] == [p["probability"] for p in predictions[:2]]


def test_n_best_holds_no_answer_where_there_may_be_none():
    questions, made, outputs = squad2_of([0.75, 0.5, -3.0])
    for name, rank in (("squad2", 0), ("squad1", None)):
        first = create(name, {}).predict(questions, made, outputs, (), {})[0]
        texts = [one["text"] for one in first["n_best"]]
        assert (texts.index("") if "" in texts else None) == rank
        assert len(set(texts)) == len(texts)
        assert sum(one["probability"] for one in first["n_best"]) == pytest.approx(1.0, abs=1e-12)
        assert first["probability"] == max(one["probability"] for one in first["n_best"])
        assert ("null_odds" in first) == (name == "squad2")
        assert json.loads(json.dumps(first)) == first


@pytest.mark.parametrize("name", ["squad1", "triviaqa"])
def test_a_tuned_threshold_is_unused_where_all_have_answers(name):
    questions, made, outputs = squad2_of([0.75, 0.5, -3.0])
    tuned = {NULL_THRESHOLD: -1e9}
    silent = create("squad2", {}).predict(questions, made, outputs, (), tuned)
    assert [one["text"] for one in silent] == [""] * 3
    predictions = create(name, {}).predict(questions, made, outputs, (), tuned)
    assert all(one["text"] for one in predictions)
    assert predictions == create(name, {}).predict(questions, made, outputs, (), {})


def test_own_questions_follow_the_rules_that_they_need():
    task = create("qa", {})
    questions, made, outputs = squad2_of([0.75, 0.5, -3.0])
    tuned = task.tune(questions, made, outputs, ())
    assert tuned == {NULL_THRESHOLD: 0.5}
    assert "NoAns_f1" in task.score(questions, task.predict(questions, made, outputs, (), tuned))
    answerable = questions[1:]
    made, outputs = task.features(answerable, TOKENIZER, (), 384, False), outputs[1:]
    assert task.tune(answerable, made, outputs, ()) == {}
    predictions = task.predict(answerable, made, outputs, (), {})
    assert [p["text"] for p in predictions] == ["w4", "w6"]
    assert task.score(answerable, predictions) == {"exact": 1.0, "f1": 1.0, "total": 2.0}
    assert task.classes(answerable, predictions) is None


# Files


def test_files_are_those_of_googles_code(tmp_path):
    questions, made, outputs = squad2_of([0.75, 0.5, -3.0])
    task = create("squad2", {})
    predictions = task.predict(questions, made, outputs, (), {NULL_THRESHOLD: 0.5})
    paths = task.write(tmp_path, "dev", questions, predictions)
    assert [path.name for path in paths] == ["predictions.json", "nbest_predictions.json", "null_odds.json"]
    texts, n_best, odds = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    assert texts == {"none": "", "four": "w4", "six": "w6"}
    assert odds == {"none": 0.75, "four": 0.5, "six": -3.0}
    assert list(n_best["six"][0]) == ["text", "probability", "start_logit", "end_logit"]
    assert n_best["six"][0]["text"] == "w6"
    assert n_best["six"][0]["start_logit"] == n_best["six"][0]["end_logit"] == 5.0
    chances = [one["probability"] for one in n_best["six"]]
    assert all(one >= other for one, other in pairwise(chances))
    one_answer = create("squad1", {}).write(tmp_path / "other", "dev", questions, predictions[:0])
    assert [path.name for path in one_answer] == ["predictions.json", "nbest_predictions.json"]


def official(*questions):
    """The JSON of SQuAD."""
    paragraphs = [
        {
            "context": q.context,
            "qas": [
                {
                    "id": q.id,
                    "question": q.question,
                    "answers": [{"text": a.text, "answer_start": a.start} for a in q.answers],
                    **({} if q.impossible is None else {"is_impossible": q.impossible}),
                }
            ],
        }
        for q in questions
    ]
    return json.dumps({"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]})


def test_official_files_are_found_and_those_of_the_other_version_refused(tmp_path):
    one, two = squad2_of([0, 0, 0])[0][1:], squad2_of([0, 0, 0])[0]
    (tmp_path / "train-subset-v1.1.json").write_text(official(*one))
    (tmp_path / "dev-v2.0.json").write_text(official(*two))
    assert [q.id for q in create("squad1", {}).read(tmp_path, "train")] == ["four", "six"]
    assert [q.impossible for q in create("squad2", {}).read(tmp_path, "dev")] == [True, False, False]
    (tmp_path / "dev-v1.1.json").write_text(official(*two))
    (tmp_path / "train-v2.0.json").write_text(official(*one))
    with pytest.raises(InputError, match="without an answer, such as 'none'.* choose the task squad2"):
        create("squad1", {}).read(tmp_path, "dev")
    with pytest.raises(InputError, match="choose the task squad1"):
        create("squad2", {}).read(tmp_path, "train")
    with pytest.raises(InputError, match="no test-v1.1.json"):
        create("squad1", {}).read(tmp_path, "test")


def test_a_file_that_could_be_two_is_not_guessed(tmp_path):
    for name in ("train-a-v1.1.json", "train-b-v1.1.json.gz"):
        (tmp_path / name).write_text("{}")
    patterns = ("train-v1.1.json", "*train*v1.1*.json")
    with pytest.raises(InputError, match="train-a-v1.1.json, train-b-v1.1.json.gz"):
        find(tmp_path, patterns)
    (tmp_path / "train-v1.1.json").write_text("{}")
    assert find(tmp_path, patterns).name == "train-v1.1.json"


# Asking


class Scripted:
    """A fine-tuned model that finds one word of a text, or nothing."""

    head = Head("span", 2)
    tuned: dict = {}

    def __init__(self, task, word=None, max_length=25):
        self.task, self.word, self.max_length = create(task, {}), word, max_length

    def features(self, examples):
        return self.task.features(examples, TOKENIZER, (), self.max_length, False)

    labels = ()

    def outputs(self, features, done):
        found = []
        for feature in features:
            ids = feature.sequences[0].input_ids
            output = np.full((len(ids), 2), -9.0)
            output[0] = 0.0
            if self.word is not None:
                output[4:][ids[4:] == TOKENIZER.ids[self.word]] = 5.0
            found.append(output)
            done(len(ids))
        return found


def test_a_long_text_is_read_to_its_end():
    text = "Ｗ0 " * 5000 + "the\nCAFÉ. " + words(0, 20)
    found = answer(Scripted("squad1", "cafe"), "w1 w2", text)
    assert (found["text"], found["begin"]) == ("CAFÉ", 15004)
    assert text[found["begin"] : found["end"]] == "CAFÉ"
    assert found["probability"] > 0.99


def test_a_model_of_squad_2_may_find_no_answer():
    assert answer(Scripted("squad2"), "w1 w2", words(0, 9))["text"] == ""
    assert answer(Scripted("squad2", "w7"), "w1 w2", words(0, 9))["text"] == "w7"
    assert answer(Scripted("squad1"), "w1 w2", words(0, 9))["text"] != ""


@pytest.mark.parametrize(("question", "text", "what"), [(" ", "w1", "question"), ("w1", "\n", "text")])
def test_nothing_to_ask_is_refused(question, text, what):
    with pytest.raises(InputError, match=f"The {what} is empty"):
        answer(Scripted("squad1"), question, text)


def test_a_model_of_another_task_answers_nothing():
    model = Scripted("squad1")
    model.head = Head("classify", 2)
    model.folder = "tuned"
    with pytest.raises(
        InputError, match="^The model in 'tuned' was fine-tuned for squad1, which answers no questions; give"
    ):
        answer(model, "w1", "w1")


def test_passage_is_one_line_of_whole_words():
    text = "one two\nthree FOUR five six seven"
    assert passage(text, 14, 18, around=7) == ("… three ", "FOUR", " five …")
    assert passage(text, 14, 18, around=99) == ("one two three ", "FOUR", " five six seven")
    assert passage("日本語答日本語", 3, 4, around=2) == ("… 本語", "答", "日本 …")
    assert passage("a \r\n\t b", 0, 7) == ("", "a b", "")


# Learning


def toy_questions(seed, count):
    """Texts with one word of each of three kinds; the question names a kind, the answer is its word."""
    generator = np.random.default_rng(seed)
    found = []
    for number in range(count):
        text = [WORDS[i] for i in generator.integers(30, 90, 12)]
        for kind in range(3):
            text[4 * kind + generator.integers(4)] = WORDS[10 * kind + generator.integers(10)]
        text = [text[i] for i in generator.permutation(12)]
        kind = int(generator.integers(3))
        answer = next(word for word in text if word in WORDS[10 * kind : 10 * kind + 10])
        found.append(asked(" ".join([*text, "."]), f"{answer} ", id=str(number), question=WORDS[100 + kind]))
    return [q._replace(answers=(q.answers[0]._replace(text=q.answers[0].text[:-1]),)) for q in found]


@pytest.mark.thorough
def test_a_tiny_model_learns_to_answer():
    config = BertConfig(
        vocab_size=TOKENIZER.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=24,
        initializer_range=0.1,
    )
    head, ops, task = Head("span", 2), engines.create("numpy"), create("squad1", {})
    params = initialise(config, 0, head=head)
    made = task.features(toy_questions(0, 1000), TOKENIZER, (), 24, True)
    optimizer = AdamW(params.flat, params.decayed)
    generator = np.random.default_rng(0)
    for _ in range(150):
        chosen = generator.choice(len(made), 32, replace=False)
        batch = TaskBatch.pack_features([made[int(i)] for i in chosen], head)
        grads = params.zeros_like()
        _, saved = heads.loss(ops, config, head, params.tree, batch)
        heads.loss_backward(ops, config, head, saved, params.tree, grads.tree)
        update_once(optimizer, ops, params.flat, grads.flat, 3e-3)
    questions = toy_questions(1, 100)
    made = task.features(questions, TOKENIZER, (), 24, False)
    outputs = batch_outputs(ops, config, head, params.tree, TaskBatch.pack_features(list(made), head))
    predictions = task.predict(questions, made, outputs, (), {})
    assert task.score(questions, predictions)["exact"] >= 0.95
    assert len(task.mistakes(questions, predictions)) <= 5


# The command


@pytest.fixture(scope="module")
def squad2_run(tmp_path_factory):
    """The folder of a model of SQuAD 2.0, with weights as they were drawn."""
    folder = tmp_path_factory.mktemp("runs") / "squad2"
    config = BertConfig(
        vocab_size=TOKENIZER.vocab_size,
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        initializer_range=0.5,
    )
    hub.save_hf(folder, config, initialise(config, 3, head=Head("span", 2)))
    TOKENIZER.save_pretrained(folder, config.P)
    models.TaskFile("squad2", (), 32, {}, {NULL_THRESHOLD: 1e9}).save(folder)
    return folder


def run(*words):
    assert cli.main([str(word) for word in ("answer", "--model", *words, "--engine", "numpy")]) == 0


def test_command_prints_answers_in_their_passages(squad2_run, tmp_path, capsys):
    text = "the Japanese\nSHOPS. " + words(0, 100) + " CAFÉ."
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    run(squad2_run, "w3 w4", "--file", file, "--top", 3, "--json")
    told = json.loads(capsys.readouterr().out)
    assert (told["question"], len(told["answers"])) == ("w3 w4", 3)
    assert told["text"] == told["answers"][0]["text"] == text[told["begin"] : told["end"]] != ""
    assert {"probability", "null_odds"} <= set(told)
    file.write_text(text, encoding="utf-8-sig")  # a byte order mark is no character of the text
    run(squad2_run, "w3 w4", "--file", file, "--top", 3, "--json")
    assert json.loads(capsys.readouterr().out) == told
    run(squad2_run, "w3 w4", "--file", file)
    first, *passages = capsys.readouterr().out.splitlines()
    assert first == f"{100 * told['probability']:5.1f}%  {' '.join(told['text'].split())}"
    assert f">>{' '.join(told['text'].split())}<<" in " ".join(line.strip() for line in passages)
    assert max(map(len, passages)) <= 78


def test_command_shows_how_far_it_is_in_a_long_text(squad2_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runlog, "QUIET_SECONDS", 0.0)  # a line after every batch
    file = tmp_path / "book.txt"
    file.write_text(words(0, 90) * 100)
    run(squad2_run, "w3 w4", "--file", file)
    lines = capsys.readouterr().err.splitlines()
    seen = [
        re.fullmatch(r"([\d,]+) of ([\d,]+) tokens, [\d,]+ a second, [\d:]+ left", line) for line in lines
    ]
    done, totals = zip(*(one.groups() for one in seen), strict=True)
    assert len(done) > 2 and done[-1] == totals[0] and len({*totals}) == 1
    run(squad2_run, "w3 w4", "--file", file, "--json")
    assert capsys.readouterr().err == ""


def test_command_reads_the_standard_input_and_may_find_nothing(squad2_run, monkeypatch, capsys):
    stored = models.TaskFile.load(squad2_run)
    try:
        dataclasses.replace(stored, tuned={NULL_THRESHOLD: -1e9}).save(squad2_run)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(words(0, 9).encode())))
        run(squad2_run, "w3")
    finally:
        stored.save(squad2_run)
    assert capsys.readouterr().out.endswith("%  no answer\n")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--top", "0"), "--top 0 is not possible"),
        (("--top", "21"), "choose from 1 to 20"),
        (("--file", "absent.txt"), "There is no file 'absent.txt'"),
        (("--file", "latin1.txt"), "latin1.txt is not UTF-8: byte 0xe9 at offset 3"),
        (("--file", "empty.txt"), "The text is empty"),
        (("--file", "empty.txt", "--file", "latin1.txt"), "A question is asked of one text"),
    ],
)
def test_command_refuses_what_it_cannot_use(squad2_run, tmp_path, monkeypatch, capsys, more, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin1.txt").write_bytes(b"caf\xe9")
    (tmp_path / "empty.txt").write_text("\n")
    assert cli.main(["answer", "--model", str(squad2_run), "w3", *more]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert sentence in line
