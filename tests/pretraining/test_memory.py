"""Pre-training on texts in memory: what counts as texts, and that a run on them is one on a file of them."""

import json
import os
from pathlib import Path

import numpy as np
import pandas
import pytest
from small_corpus import write_corpus

import minibert
from minibert.api.corpora import texts_or_names
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import TEXTS
from minibert.pretraining.run import pretrain as pretrain_options

pytestmark = pytest.mark.usefixtures("few_passes")
SMALL = dict(vocab_size=120, seq_length="16", batch_size=4, steps=2, evaluations=1, held_out=0.2, show=False)
TWO = ["The cat sleeps.", "The dog runs."]


@pytest.fixture(scope="module")
def documents(corpus):
    return [one.strip() for one in corpus.read_text().split("\n\n")]


class Column:
    """As `datasets` has one: it can be gone through, and asked for its length."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        return self.rows[at]

    def __iter__(self):
        return iter(self.rows)


class Dataset(Column):
    """As one of `datasets`: its rows are dictionaries."""

    column_names = ("id", "text")

    def __getitem__(self, at):
        return Column([row[at] for row in self.rows]) if isinstance(at, str) else self.rows[at]


@pytest.mark.parametrize(
    "given",
    [
        TWO,
        tuple(TWO),
        (text for text in TWO),
        np.array(TWO),
        np.array(TWO, object),
        pandas.Series(TWO, index=[7, 3]),
        pandas.DataFrame({"id": [1, 2], "text": TWO}),
        pandas.DataFrame({"body": TWO}),
        {"id": [1, 2], "text": TWO},
        [{"id": 1, "text": TWO[0]}, {"id": 2, "text": TWO[1]}],
        Column(TWO),
        Dataset([{"id": 1, "text": TWO[0]}, {"id": 2, "text": TWO[1]}]),
        iter([{"id": 1, "text": TWO[0]}, {"id": 2, "text": TWO[1]}]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_texts_are_known_in_whatever_holds_them(given):
    assert texts_or_names(given) == (TWO, None)


@pytest.mark.parametrize(
    "texts",
    [
        ["今天天气很好。", "我们去公园散步"],
        ["Hello.", "Done!", "ok"],
        ["x" * 300, "y" * 300],
        ["First line\nsecond line"],
        ["See www.example.com today", "runs and jumps", "runs"],
    ],
)
def test_lists_that_read_as_texts_are_texts(texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    assert texts_or_names(texts) == (texts, None)


@pytest.mark.parametrize(
    "names",
    [
        ["news.txt", "My Documents/old letters.txt"],
        ["corpus", "wiki"],
        ["articles/*.txt", "a[12]"],
        ["/data/text"],
        [Path("a b c"), "d e f"],
        ["a folder with blanks"],
    ],
)
def test_lists_of_names_stay_names(names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a folder with blanks").mkdir()
    assert texts_or_names(names) == (None, names)
    assert texts_or_names(iter(names)) == (None, names)


@pytest.mark.parametrize("name", ["~/My Books", "b?", "x" * 160 + "/" + "y" * 160])
def test_a_name_of_something_that_exists_is_not_a_text(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("My Books").mkdir()
    Path("b1").touch()
    Path("x" * 160, "y" * 160).mkdir(parents=True)
    assert texts_or_names(name) == (None, name)


def test_lists_of_long_paths_and_of_names_in_the_home_folder_stay_names(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    Path(tmp_path, "My Books").mkdir()
    for names in (["~/My Books"], ["/".join(["x" * 160] * 2)]):
        assert texts_or_names(names) == (None, names)


def test_missing_texts_are_left_out_with_a_warning():
    with pytest.warns(UserWarning, match="Of 4 texts, 2 are missing or empty, and left out"):
        assert texts_or_names(pandas.Series([TWO[0], None, float("nan"), TWO[1]]))[0] == TWO
    with pytest.warns(UserWarning, match="Of 3 texts, 1 is missing or empty, and left out"):
        assert texts_or_names([*TWO, ""])[0] == TWO
    with pytest.raises(minibert.InputError, match="Text 2 of corpus is 7, of type int; give strings"):
        texts_or_names([*TWO, 7])


def test_a_table_without_the_column_names_its_columns():
    table = pandas.DataFrame({"id": [1, 2], "body": TWO})
    with pytest.raises(minibert.InputError, match="no column for column='text', only id, body; name one"):
        minibert.pretrain(table)
    assert texts_or_names(table, "body") == (TWO, None)
    with pytest.raises(minibert.InputError, match=r"several tables \(train, test\).*corpus\['train'\]"):
        minibert.pretrain({"train": table, "test": table})


@pytest.mark.thorough
def test_run_on_texts_equals_one_on_a_file_of_them(documents, tmp_path):
    with open(tmp_path / "texts.jsonl", "w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in documents)
    minibert.pretrain(tmp_path / "texts.jsonl", **SMALL, out=tmp_path / "file")
    run = minibert.pretrain(documents, **SMALL, out=tmp_path / "memory")
    for name in ("model.safetensors", "vocab.txt", "shards/tokens.bin"):
        assert (tmp_path / "file" / name).read_bytes() == (run.folder / name).read_bytes()
    assert not (run.folder / TEXTS).exists()
    assert PretrainOptions.load(run.folder / "training.json").corpus[0].startswith("24 texts in memory, SHA-")


@pytest.mark.thorough
def test_default_folder_of_texts_has_a_short_name(documents, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [minibert.pretrain(documents, **SMALL) for _ in range(2)]
    assert [run.folder for run in runs] == [Path("runs/texts"), Path("runs/texts-2")]


def test_refused_texts_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        minibert.InputError, match="The text is 1 document, and 4 are needed for next sentences: 2"
    ):
        minibert.pretrain(["The cat sleeps. The dog runs."], **SMALL)
    with pytest.raises(minibert.InputError, match="There is no file or folder 'corpus', and nothing"):
        minibert.pretrain(["corpus", "wiki"], **SMALL)
    with pytest.raises(minibert.InputError, match="is not the name of a file .*put it into a list of texts"):
        minibert.pretrain("It was a dark and stormy night. " * 40, **SMALL)
    for text in ("Who is there?", "Who/what\0is it?", "~\0"):
        with pytest.raises(minibert.InputError, match="put it into a list of texts"):
            texts_or_names(text)
    assert os.listdir(tmp_path) == []


def test_an_error_of_ours_leaves_nothing_behind_either(documents, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def fail(*_, **__):
        raise OSError(36, "File name too long")

    monkeypatch.setattr("minibert.pretraining.run.prepare_text", fail)
    with pytest.raises(OSError, match="File name too long"):
        minibert.pretrain(documents, **SMALL)
    assert os.listdir(tmp_path) == []


@pytest.mark.thorough
def test_a_run_on_texts_goes_on_without_them(documents, tmp_path):
    run = minibert.pretrain(documents, **SMALL, out=tmp_path / "run")
    longer = minibert.pretrain(out=run.folder, resume=True, steps=3, show=False)
    assert longer.report["steps"] == 3
    again = minibert.pretrain(documents, out=run.folder, resume=True, steps=4, show=False)
    assert again.report["steps"] == 4
    with pytest.raises(minibert.InputError, match="cannot be resumed with corpus=.*24 texts in memory"):
        minibert.pretrain([*documents, "One more text."], out=run.folder, resume=True, show=False)


@pytest.mark.thorough
@pytest.mark.parametrize("during", ["counting words", "writing shards"])
def test_texts_are_kept_when_their_preparation_is_interrupted(documents, tmp_path, monkeypatch, during):
    whole = minibert.pretrain(documents, **SMALL, out=tmp_path / "whole")
    with monkeypatch.context() as patch:

        def interrupt(*_, **__):
            raise KeyboardInterrupt

        name = "count_files" if during == "counting words" else "write_shards"
        patch.setattr(f"minibert.pretraining.preparation.{name}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            minibert.pretrain(documents, **SMALL, out=tmp_path / "run")
    run = minibert.pretrain(out=tmp_path / "run", resume=True, show=False)
    for name in ("model.safetensors", "training.json", "vocab.txt"):
        assert (run.folder / name).read_bytes() == (whole.folder / name).read_bytes()
    assert not (run.folder / TEXTS).exists()


def test_lost_texts_have_to_be_given_again(documents, tmp_path):
    options = PretrainOptions(corpus="24 texts in memory, SHA-256 00", steps=2)
    with pytest.raises(minibert.InputError, match="which are not there; give the same texts again"):
        pretrain_options(options, tmp_path / "run", show=False)
    assert not (tmp_path / "run").exists()


def test_card_and_page_call_texts_by_their_number(documents, tmp_path):
    run = minibert.pretrain(documents, **SMALL, out=tmp_path / "run")
    assert "24 texts in memory" in (run.folder / "report.html").read_text()


def test_layout_is_that_of_each_text(tmp_path):
    text = write_corpus(tmp_path / "a.txt").read_text()
    whole = [" ".join(text.split())]  # one text of 288 sentences
    with pytest.raises(minibert.InputError, match="layout='continuous' .the text is cut"):
        minibert.pretrain(whole, **SMALL, out=tmp_path / "refused")
    run = minibert.pretrain(whole, **SMALL, layout="continuous", out=tmp_path / "run")
    assert json.loads((run.folder / "shards" / "meta.json").read_text())["documents"] == 9


def test_advice_for_texts_is_not_that_for_files(tmp_path):
    whole = ["The cat sleeps.\nThe dog runs.\n" * 9]
    with pytest.raises(minibert.InputError) as caught:
        minibert.pretrain(whole, **SMALL, layout="documents", out=tmp_path / "refused")
    said = str(caught.value)
    assert "give more documents (in plain text, blank lines separate them)" in said
    assert "layout='documents' (each line is one) or layout='continuous'" in said
    with pytest.warns(UserWarning, match="the texts follow one another, layout='continuous' joins them"):
        minibert.pretrain(TWO * 20, **SMALL | {"vocab_size": 60}, out=tmp_path / "run")
