"""`task.json`: read back as it was written, and a sentence with its name for whatever else it may hold."""

import json

import pytest
from small_tasks import write_model

from minibert import Tokenizer, hub
from minibert.base.errors import InputError
from minibert.finetuning.frozen.feature_tagger import TaggerFile
from minibert.finetuning.models import Finetuned
from minibert.model.params import Head, initialise
from minibert.tasks.stored import TaskFile

STORED = {
    "task": "classify",
    "labels": ["no", "yes"],
    "max_length": 24,
    "columns": {"text": "review", "header": "yes"},
    "tuned": {},
}


def write(folder, fields):
    (folder / "task.json").write_text(json.dumps(fields), "utf-8")
    return folder


def test_what_was_written_is_read(tmp_path):
    for told in (
        TaskFile("classify", ("no", "yes"), 24, {"text": "review"}),
        TaskFile("squad2", (), 384, {}, {"null_threshold": -1.5}),
    ):
        told.save(tmp_path)
        assert TaskFile.load(tmp_path) == told
    assert (
        TaskFile.load(write(tmp_path, {"task": "sst2", "labels": ["0", "1"], "max_length": 8})).columns == {}
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([1], "it is [1], expected an object"),
        ({"task": "sst2"}, "'labels' is missing"),
        (STORED | {"foo": 1}, "'foo' is not one of its fields"),
        (STORED | {"task": "nosuch"}, "task='nosuch' is not known; for a table of your own"),
        (STORED | {"task": ["sst2"]}, "'task' is ['sst2'], expected a string"),
        (STORED | {"labels": "ab"}, "'labels' is 'ab', expected a list of strings"),
        (STORED | {"labels": ["a", "a"]}, "'labels' is ['a', 'a'], expected each name once"),
        (STORED | {"labels": [0, 1]}, "'labels' is [0, 1], expected a list of strings"),
        (STORED | {"labels": []}, "'labels' is [], expected a name for each class of classify"),
        (
            STORED | {"columns": {"foo": "1"}},
            "'foo' in `columns` is not a column of classify; choose from text",
        ),
        (STORED | {"max_length": -5}, "'max_length' is -5, expected at least 4"),
        (STORED | {"max_length": True}, "'max_length' is True, expected a whole number"),
        (STORED | {"max_length": 24.5}, "'max_length' is 24.5, expected a whole number"),
        (STORED | {"columns": "text"}, "'columns' is 'text', expected an object of strings"),
        (STORED | {"columns": {"text": [1]}}, "'columns' is {'text': [1]}, expected an object of strings"),
        (STORED | {"tuned": {"t": "x"}}, "'tuned' is {'t': 'x'}, expected an object of numbers"),
        (STORED | {"tuned": {"t": float("nan")}}, "'tuned' is {'t': nan}, expected finite numbers"),
    ],
)
def test_values_that_it_cannot_hold_are_refused_by_name(tmp_path, fields, said):
    with pytest.raises(InputError) as error:
        TaskFile.load(write(tmp_path, fields))
    assert str(error.value).startswith(f"{tmp_path / 'task.json'} can't be read: {said}")
    assert str(error.value).endswith("; fine-tune the model again.")


TAGGER = {
    "task": "tag",
    "labels": ["O", "X"],
    "max_length": 24,
    "columns": [["layout", "words"]],
    "combination": "last",
    "config": {"model_type": "bilstm", "inputs": 8, "outputs": 2},
}


def test_what_was_written_of_a_tagger_is_read(tmp_path):
    TaggerFile("ner", ("O", "X"), 24, (), "last", TAGGER["config"]).save(tmp_path)
    assert TaggerFile.load(tmp_path) == TaggerFile("ner", ("O", "X"), 24, [], "last", TAGGER["config"])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (None, "it is None, expected an object"),
        ({"task": "ner"}, "'labels' is missing"),
        (TAGGER | {"foo": 1}, "'foo' is not one of its fields"),
        (
            TAGGER | {"task": "rte", "columns": []},
            "'task' is 'rte', expected the name of a task that tags words",
        ),
        (TAGGER | {"task": {}}, "'task' is {}, expected a string"),
        (TAGGER | {"labels": None}, "'labels' is None, expected a list of strings"),
        (TAGGER | {"max_length": "x"}, "'max_length' is 'x', expected a whole number"),
        (TAGGER | {"columns": [1]}, "'columns' is [1], expected a list of lists of 2 strings"),
        (TAGGER | {"columns": [["a", "b"]]}, "'a' in `columns` is not a column of tag; choose from words"),
        (TAGGER | {"combination": "first"}, "'combination' is 'first', expected one of embeddings, second"),
        (TAGGER | {"config": []}, "'config' is [], expected an object"),
        (TAGGER | {"config": {}}, "model_type=None is not a tagger of LSTMs; expected 'bilstm' with inputs"),
        (TAGGER | {"config": TAGGER["config"] | {"width": "x"}}, "width='x' is not a whole number from 1 on"),
    ],
)
def test_values_that_a_tagger_s_file_cannot_hold_are_refused_by_name(tmp_path, fields, said):
    (tmp_path / "tagger.json").write_text(json.dumps(fields), "utf-8")
    with pytest.raises(InputError) as error:
        TaggerFile.load(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'tagger.json'} can't be read: {said}")
    assert str(error.value).endswith("; train the tagger again.")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xff", b"[" * 100_000])
def test_a_file_that_is_not_json_is_refused(tmp_path, text):
    for one in (TaskFile, TaggerFile):
        (tmp_path / one.FILE).write_bytes(text)
        with pytest.raises(InputError, match=f"{one.FILE} can't be read as JSON .*; {one.ADVICE}"):
            one.load(tmp_path)


def test_labels_that_are_not_as_many_as_the_outputs_are_counted(tmp_path):
    config = hub.load(write_model(tmp_path / "bert"))[0]
    params = initialise(config, 0, head=Head("classify", 2))
    hub.save_hf(tmp_path / "run", config, params, ("no", "yes"))
    Tokenizer.from_pretrained(tmp_path / "bert").save_pretrained(tmp_path / "run")
    write(tmp_path / "run", STORED | {"labels": ["0"]})
    with pytest.raises(InputError, match=r"task.json names 1 label, but the model beside it has 2 outputs; "):
        Finetuned.from_pretrained(tmp_path / "run", "numpy")
