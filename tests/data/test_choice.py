"""Readers of SWAG, HellaSwag, COPA and CommonsenseQA: counts and content, official layouts, bad input."""

import json
from collections import Counter

import pytest
from real_data import FIXTURES, real_data

from minibert.base.errors import InputError
from minibert.data import choice
from minibert.data.choice import ChoiceExample
from minibert.data.stand_ins import divided

HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"


def lines(folder, *items):
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    return path


def test_swag_as_it_is_distributed():
    train = choice.read_swag(FIXTURES / "swag" / "train.csv")
    assert [example.label for example in train] == [0, 2, 1, 3]
    assert [example.id for example in train] == ["0", "1", "2", "3"]
    assert train[0].endings[2] == "eats the rope, slowly."
    assert train[1] == ChoiceExample(
        "1",
        "He pulls the knot tight.",
        "The boat",
        (
            "is baked for an hour.",
            'shouts "ahoy" at the moon.',
            "rocks gently at the pier.",
            "reads a newspaper.",
        ),
        2,
    )
    assert train[2].context == "Someone, tired, sits down."
    assert [example.label for example in choice.read_swag(FIXTURES / "swag" / "val.csv")] == [1, 0]
    (test,) = choice.read_swag(FIXTURES / "swag" / "test.csv")
    assert test.label is None and test.endings[0] == "flies over the fence."


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("sentence,label\nfine,1\n", "not a file of SWAG: it has no column startphrase, sent1, sent2, .* "
         "its header is sentence, label; SWAG's is , video-id, fold-ind, startphrase, sent1"),
        ("", "its header is empty"),
        (HEADER, "has no examples"),
        (HEADER + "0,v,1,s,a,b,gold,e,f,g,h,4\n", r"line 2: the label '4' is not a number from 0 to 3"),
        (HEADER + "0,v,1,s,a,b,gold,e,f,g,h\n", "line 2: 11 columns where the header has 12"),
        (HEADER + '0,v,1,s,"a\nb",b,gold,e,f,g,h,1\n1,v,"1"x,s,a,b,g,e,f,g,h,1\n', "line 4: .,. expected"),
        (HEADER + '0,v,1,s,"a,b,gold,e,f,g,h,1\n', "line 2: unexpected end of data"),
    ],
)  # fmt: skip
def test_a_swag_file_that_is_wrong_is_refused_with_its_line(tmp_path, text, sentence):
    (tmp_path / "train.csv").write_text(text)
    with pytest.raises(InputError, match=sentence):
        choice.read_swag(tmp_path / "train.csv")


def test_real_hellaswag():
    found = choice.read_hellaswag(real_data("choice/hellaswag__none__validation.jsonl"))
    assert len(found) == 10042
    assert Counter(example.label for example in found) == {0: 2515, 1: 2485, 2: 2584, 3: 2458}
    assert all(len(example.endings) == 4 for example in found)
    assert found[0][:3] == ("0", "A man is sitting on a roof.", "he")
    assert (found[0].endings[3], found[0].label) == ("starts pulling up roofing on a roof.", 3)
    assert (found[-1].id, found[-1].start, found[-1].label) == ("10041", "", 2)
    assert found[-1].context.startswith("[header] How to tell")
    assert len({example.id for example in found}) == 10042


def context_of(example):
    return example.context


def test_real_hellaswag_is_divided_by_context():
    found = choice.read_hellaswag(real_data("choice/hellaswag__none__validation.jsonl"))
    train, dev = divided(found, "train", context_of), divided(found, "dev", context_of)
    assert sorted(train + dev) == sorted(found)
    assert not {example.context for example in train} & {example.context for example in dev}
    assert 0.18 < len(dev) / len(found) < 0.22
    with pytest.raises(InputError, match="no split 'test', only train, dev"):
        divided(found, "test", context_of)
    with pytest.raises(InputError, match="Of 0 examples none becomes dev"):
        divided([], "dev", context_of)


def test_half_a_pair_of_surrogates_is_divided_like_any_other_text(tmp_path):
    item = {"ctx_a": "a \ud83d", "ctx_b": "", "endings": ["x", "y"], "label": 0}
    found = choice.read_hellaswag(lines(tmp_path, item))
    assert divided(found, "train", context_of) == found


def test_real_copa():
    found = choice.read_copa(real_data("choice/super_glue__copa__validation.jsonl"))
    assert len(found) == 100 and Counter(example.label for example in found) == {0: 55, 1: 45}
    assert found[0] == ChoiceExample(
        "0",
        "The man turned on the faucet. What happened as a result?",
        "",
        ("The toilet filled with water.", "Water flowed from the spout."),
        1,
    )
    assert found[4].context == "The hamburger meat browned. What was the cause?"


def test_real_commonsense_qa():
    found = choice.read_commonsense_qa(real_data("choice/tau__commonsense_qa__none__validation.jsonl"))
    assert len(found) == 1221
    assert Counter(example.label for example in found) == {0: 239, 1: 255, 2: 241, 3: 251, 4: 235}
    assert found[0].endings == ("bank", "library", "department store", "mall", "new york")
    assert found[1].context == "What do people aim to do at work?" and found[1].start == ""
    assert (found[-1].id, found[-1].label) == ("5af7c7860e3be61d4cfd814cc109f9d9", 2)


def test_missing_labels_are_none(tmp_path):
    item = {"ctx_a": "a", "ctx_b": "", "endings": ["x", "y"], "label": ""}
    assert choice.read_hellaswag(lines(tmp_path, item))[0].label is None
    item = {"idx": 1, "premise": "a", "question": "cause", "choice1": "x", "choice2": "y", "label": -1}
    assert choice.read_copa(lines(tmp_path, item))[0].label is None
    item = {
        "id": "i",
        "question": "a?",
        "choices": {"label": ["A", "B"], "text": ["x", "y"]},
        "answerKey": "",
    }
    assert choice.read_commonsense_qa(lines(tmp_path, item))[0].label is None


def test_commonsense_qa_in_its_original_layout(tmp_path):
    choices = [{"label": "A", "text": "x"}, {"label": "B", "text": "y"}]
    item = {"answerKey": "B", "id": "i", "question": {"stem": "a?", "choices": choices}}
    assert choice.read_commonsense_qa(lines(tmp_path, item)) == [ChoiceExample("i", "a?", "", ("x", "y"), 1)]


@pytest.mark.parametrize(
    "read, item, sentence",
    [
        (choice.read_hellaswag, {"premise": "a"}, "line 1: there is no 'ctx_a', the keys are premise"),
        (
            choice.read_hellaswag,
            {"ctx_a": "a", "ctx_b": "", "endings": ["x"]},
            "'endings' is not a list of two texts or more",
        ),
        (
            choice.read_hellaswag,
            {"ctx_a": "a", "ctx_b": "", "endings": ["x", "y"], "label": "2"},
            "line 1: the label '2' is not a number from 0 to 1",
        ),
        (choice.read_copa, {"question": "why"}, "line 1: 'question' is 'why', expected cause or effect"),
        (choice.read_commonsense_qa, {"question": 3}, "line 1: 'question' is of type int, expected str"),
        (
            choice.read_commonsense_qa,
            {"question": "a?"},
            "line 1: there is no 'choices', the keys are question",
        ),
        (
            choice.read_commonsense_qa,
            {
                "id": 1,
                "question": "a?",
                "choices": {"label": ["A", "B"], "text": ["x", "y"]},
                "answerKey": "C",
            },
            "line 1: the answer 'C' is not one of A, B",
        ),
        (
            choice.read_commonsense_qa,
            {"id": 1, "question": "a?", "choices": {"label": ["A", "B"], "text": ["x", "y"]}, "answerKey": 0},
            "line 1: the answer 0 is not one of A, B",
        ),
        (
            choice.read_commonsense_qa,
            {"id": 1, "question": "a?", "choices": {"label": [*"ABC"], "text": ["x", "y"]}, "answerKey": "C"},
            "line 1: 2 answers have the letters A, B, C; every answer needs its own letter",
        ),
        (
            choice.read_commonsense_qa,
            {"id": 1, "question": "a?", "choices": {"label": ["A", "A"], "text": ["x", "y"]}},
            "line 1: 2 answers have the letters A, A",
        ),
        (
            choice.read_commonsense_qa,
            {"id": 1, "question": {"stem": "a?", "choices": 5}},
            "line 1: 'choices' is not a list of objects",
        ),
    ],
)
def test_a_line_that_is_wrong_is_refused(tmp_path, read, item, sentence):
    with pytest.raises(InputError, match=sentence):
        read(lines(tmp_path, item))


def test_files_that_are_no_json_lines_are_refused(tmp_path):
    for text, sentence in (
        ("", "has no examples"),
        ('{"ind": 1\n', "line 1: not JSON"),
        ("\n[1]\n", "line 2: a JSON list; each line has to be a JSON object"),
        ("[" * 100_000, "line 1: not JSON"),
    ):
        (tmp_path / "a.jsonl").write_text(text)
        with pytest.raises(InputError, match=sentence):
            choice.read_hellaswag(tmp_path / "a.jsonl")
