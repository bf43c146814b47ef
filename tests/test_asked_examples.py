"""Which examples a fine-tuned model is asked about: never by mistake those that it has learnt from."""

import shutil
from functools import partial

import pytest
from small_tasks import reviews, write_model, write_table

from minibert.errors import InputError
from minibert.finetune import evaluate, finetune, predict
from minibert.finetuning import registry
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import asked_examples, read_examples

QUICK = dict(backend="numpy", batch_size=16, learning_rates=(5e-3,), max_steps=2)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A folder with one table."""
    return write_table(tmp_path_factory.mktemp("data") / "train.tsv", ("text", "label"), reviews(100, 4))


def run_on(data, folder, **more):
    """A finished run that has learnt from the data."""
    model = write_model(folder / "model")
    finetune(FinetuneOptions("classify", data, model, **QUICK | more), folder / "run", show=False)
    return folder / "run"


@pytest.fixture(scope="module")
def of_a_file(table, tmp_path_factory):
    return run_on(table, tmp_path_factory.mktemp("file"), split_dev=0.2)


@pytest.fixture(scope="module")
def of_a_folder(table, tmp_path_factory):
    return run_on(table.parent, tmp_path_factory.mktemp("folder"), split_dev=0.2)


def asked(run, data, split, own=True):
    return asked_examples(registry.create("classify"), run, data, split, own)


def parts(run):
    return read_examples(registry.create("classify"), FinetuneOptions.load(run / "finetune.json"))


def test_the_parts_of_a_divided_file_are_told_apart(of_a_file, of_a_folder, table):
    for run, data in ((of_a_file, table), (of_a_folder, table.parent), (of_a_folder, table)):
        train, dev = parts(run)
        assert (len(train), len(dev)) == (80, 20)
        for named in (None, data, str(data)):
            assert asked(run, named, "dev") == asked(run, named, "dev", own=False) == dev
            assert asked(run, named, "train") == train


def test_errors_about_an_example_say_where_it_is_from(of_a_file, tmp_path):
    other = write_table(tmp_path / "other.tsv", ("text", "label"), [("the film", "bad")])
    for ask in (evaluate, partial(predict, out=tmp_path / "out")):
        with pytest.raises(InputError, match=f"^{other}, dev: Example 0 has the label 'bad', which no"):
            ask([of_a_file], other, "dev", backend="numpy")


def test_a_copy_of_the_divided_file_means_its_dev_part(of_a_file, table, tmp_path):
    copy = shutil.copy(table, tmp_path / "copy.tsv")
    assert asked(of_a_file, copy, "dev") == parts(of_a_file)[1]
    other = write_table(tmp_path / "other.tsv", ("text", "label"), reviews(30, 2))
    for split in ("dev", "test"):
        assert len(asked(of_a_file, other, split)) == 30


def test_a_divided_file_has_no_test_part(of_a_file, of_a_folder, table, tmp_path):
    for data in (None, table):
        with pytest.raises(InputError, match="has no test part"):
            evaluate([of_a_file], data, "test", backend="numpy")
        with pytest.raises(InputError, match="has no test part"):
            predict([of_a_file], data, "test", tmp_path / "out", backend="numpy")
    with pytest.raises(InputError, match=r"has no test\.csv"):
        evaluate([of_a_folder], None, "test", backend="numpy")
    assert not (tmp_path / "out").exists()


def test_the_majority_is_that_of_what_was_learnt(of_a_file, tmp_path):
    train = [example.label for example in parts(of_a_file)[0]]
    usual, rare = sorted(set(train), key=train.count, reverse=True)
    rows = [(text, rare) for text, _ in reviews(10, 3)]
    other = write_table(tmp_path / "other.tsv", ("text", "label"), rows)
    report = predict([of_a_file], other, "test", tmp_path / "out", majority=True, backend="numpy")
    assert train.count(usual) > train.count(rare) and report["scores"]["accuracy"] == 0.0
