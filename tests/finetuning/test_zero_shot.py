"""Classes that a model was never shown, chosen by a model of entailment."""

import json

import numpy as np
import pytest
from command import ends_badly
from small_tasks import write_model

from minibert import cli
from minibert.base.errors import InputError
from minibert.data.glue import TextExample
from minibert.finetuning.models import Finetuned
from minibert.finetuning.run import classify
from minibert.finetuning.zero_shot import zero_shot
from minibert.model.params import Head
from minibert.tasks.stored import TaskFile

NLI = ("entailment", "neutral", "contradiction")
TEXTS = ["the film is funny", "a dull story"]
CLASSES = ["film", "journey", "story"]


def write(folder, task="mnli", labels=NLI, columns=None):
    """A random model that says it was fine-tuned for a task; with large weights, so that answers differ."""
    write_model(
        folder, Head("classify", len(labels)), 3, labels, initializer_range=0.3, max_position_embeddings=32
    )
    TaskFile(task, labels, 32, columns or {}).save(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("mnli"))


def judged(folder, text, one, template="This text is about {}."):
    """The probabilities of entailment, neutral and contradiction, as `classify` gives them."""
    (found,) = classify(folder, [(text, template.format(one))])
    return np.array([found["probabilities"][label] for label in NLI])


def test_one_class_is_chosen_by_the_softmax_of_the_scores_of_entailment(folder):
    model = Finetuned.from_pretrained(folder)
    for text, found in zip(TEXTS, zero_shot(folder, TEXTS, CLASSES), strict=True):
        examples = [TextExample(one, text, f"This text is about {one}.", None) for one in CLASSES]
        scores = [float(model.outputs(model.features([one]))[0][0]) for one in examples]
        expected = dict(zip(CLASSES, np.exp(scores) / np.exp(scores).sum(), strict=True))
        assert found["probabilities"] == pytest.approx(expected, abs=1e-6)
        assert found["label"] == CLASSES[int(np.argmax(scores))] and len(set(np.round(scores, 4))) == 3
    assert zero_shot(folder, [], CLASSES) == []


def test_several_classes_are_each_judged_by_entailment_against_contradiction(folder):
    found = zero_shot(folder, TEXTS, CLASSES, template="It is a {} indeed", several=True)
    for text, answer in zip(TEXTS, found, strict=True):
        for one in CLASSES:
            entailed, _, denied = judged(folder, text, one, "It is a {} indeed")
            assert answer["probabilities"][one] == pytest.approx(entailed / (entailed + denied), abs=1e-5)
        likely = {one for one, chance in answer["probabilities"].items() if chance >= 0.5}
        assert set(answer["labels"]) == likely
    (alone,) = zero_shot(folder, TEXTS[:1], ["film"], several=True)
    assert list(alone["probabilities"]) == ["film"]


def test_zero_shot_takes_two_labels_and_a_custom_table(tmp_path):
    rte = write(tmp_path / "rte", "rte", ("entailment", "not_entailment"))
    (found,) = zero_shot(rte, TEXTS[:1], CLASSES, several=True)
    (expected,) = classify(rte, [(TEXTS[0], "This text is about film.")])
    assert found["probabilities"]["film"] == pytest.approx(expected["probabilities"]["entailment"], abs=1e-5)
    own = write(tmp_path / "own", "classify", ("no", "Entails"), {"second": "second"})
    assert zero_shot(own, TEXTS[:1], CLASSES)[0]["label"] in CLASSES


def test_texts_and_classes_may_come_one_by_one(folder):
    assert zero_shot(folder, iter(TEXTS), iter(CLASSES)) == zero_shot(folder, TEXTS, CLASSES)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"classes": ["film", "story", "film"]}, "has 'film' twice; give each class once"),
        ({"classes": ["film", " "]}, "has an empty name; give every class one"),
        ({"classes": ["film"]}, r"classes=\['film'\] leaves no choice; give at least two"),
        ({"classes": [], "several": True}, "leaves no choice"),
        ({"classes": "film"}, "classes='film' is not a list of strings; give one"),
        ({"texts": ["film", None]}, r"texts=\['film', None\] is not a list of strings; give one"),
        ({"texts": None}, "texts=None is not a list of strings; give one"),
        ({"texts": "film"}, "texts='film' is not a list of strings; give one"),
        ({"texts": ["film", " "]}, "The text at index 1 is empty; give one with words in it"),
        (
            {"template": "about it"},
            "template='about it' needs {} once; write it",
        ),
        ({"template": "{} and {}"}, "needs {} once; write it"),
    ],
)
def test_what_cannot_be_asked_is_refused(folder, asked, message):
    with pytest.raises(InputError, match=message):
        zero_shot(folder, **{"texts": TEXTS, "classes": CLASSES} | asked)


@pytest.mark.parametrize(
    ("task", "labels", "columns", "message"),
    [
        (
            "mrpc",
            ("0", "1"),
            None,
            "for mrpc on pairs with the labels 0, 1, and can't tell what a text",
        ),
        ("classify", ("good", "bad"), None, "on single texts with the labels good, bad"),
        (
            "classify",
            ("entailed", "b", "c"),
            {"second": "s"},
            "on pairs with the labels entailed, b, c, and can't",
        ),
    ],
)
def test_a_model_that_does_not_know_entailment_is_refused_with_its_labels(
    tmp_path, task, labels, columns, message
):
    with pytest.raises(InputError, match=message):
        zero_shot(write(tmp_path, task, labels, columns), TEXTS, CLASSES)


def test_a_model_that_answers_questions_is_refused_without_labels(tmp_path):
    write_model(tmp_path, Head("span", 2), 3)
    TaskFile("qa", (), 24, {}).save(tmp_path)
    with pytest.raises(InputError, match="was fine-tuned for qa, and can't tell what a text entails"):
        zero_shot(tmp_path, TEXTS, CLASSES)


def test_a_text_that_is_too_long_warns_once_for_the_text(folder):
    with pytest.warns(UserWarning, match=r"^The text has 69 tokens, of which the model reads 32"):
        zero_shot(folder, ["film " * 60], CLASSES)


def test_a_class_that_is_too_long_warns_wherever_it_stands(folder):
    for classes in (["film", "story " * 60], ["story " * 60, "film"]):
        with pytest.warns(UserWarning, match=r"^2 of 2 examples \(100%\) are longer than 32 tokens"):
            zero_shot(folder, TEXTS[:2], classes)


def test_the_command_chooses_among_classes(folder, tmp_path, capsys):
    def printed(*words, status=0):
        assert cli.main(["classify", "--model", str(folder), *map(str, words)]) == status
        return capsys.readouterr()

    expected = zero_shot(folder, TEXTS, CLASSES)
    out = printed(*TEXTS, "--classes", "film, journey,story", "--json").out
    for line, answer in zip(out.splitlines(), expected, strict=True):
        assert json.loads(line)["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)
    assert [json.loads(line)["text"] for line in out.splitlines()] == list(TEXTS)
    both = printed(*TEXTS[:2], "--classes", "film,journey,story").out.splitlines()
    assert [both[0], both[4], both[5]] == [TEXTS[0], "", TEXTS[1]] and len(both) == 9
    first = printed(TEXTS[0], "--classes", "film,journey,story").out.splitlines()
    assert len(first) == 3 and first[0].endswith(f"%  {expected[0]['label']}")
    (tmp_path / "texts").write_text(f"{TEXTS[0]}\n\n{TEXTS[1]}\n")
    out, err = printed("--file", tmp_path / "texts", "--classes", "film,journey,story")
    assert [line.split("\t")[0] for line in out.splitlines()] == [
        expected[0]["label"],
        "",
        expected[1]["label"],
    ]
    assert "line 2" not in err  # a blank line is not wrong
    (tmp_path / "texts").write_text(TEXTS[0])
    out, _ = printed("--file", tmp_path / "texts", "--classes", "film,journey,story", "--several")
    (answer,) = zero_shot(folder, TEXTS[:1], CLASSES, several=True)
    assert out == "|".join(answer["labels"]) + "\n"
    shown = printed(TEXTS[0], "--classes", "film,journey,story", "--several").out.splitlines()
    assert [line.endswith(" *") for line in shown].count(True) == len(answer["labels"])


def test_the_command_refuses_flags_of_classes_without_classes(folder, capsys):
    for words, said in (
        (["--several"], "--several is for --classes; give those as well"),
        (["--template", "a {}"], "--template is for --classes; give those as well"),
        (["--classes", "a,a"], "--classes a,a has 'a' twice; give each class once."),
        (
            ["--classes", "a,b", "--template", "x"],
            "--template x needs {} once; write it where the class stands.",
        ),
    ):
        assert said in ends_badly(capsys, 2, "classify", "--model", str(folder), "a film", *words)
