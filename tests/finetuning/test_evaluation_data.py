"""Which examples a fine-tuned model is asked about: never by mistake those that it has learnt from."""

import gzip
import json
import shutil
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from small_tasks import reviews, write_model, write_table

from minibert import cli
from minibert.base.errors import InputError
from minibert.data.choice import ChoiceExample
from minibert.data.glue import TextExample
from minibert.data.ner import TaggedSentence
from minibert.data.squad import Question
from minibert.data.tables import read_texts
from minibert.finetuning.examples import EvaluationData, read_examples, text_checksums
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import read_labelled
from minibert.finetuning.run import evaluate, finetune, predict, predicted_text
from minibert.tasks import registry

QUICK = dict(engine="numpy", batch_size=16, learning_rates=(5e-3,), max_steps=2)


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


def asked(run, data, split, same_task=True):
    return EvaluationData(registry.create("classify"), run, data, split).read(same_task)


def parts(run):
    return read_examples(registry.create("classify"), FinetuneOptions.load(run / "finetune.json"))


@pytest.mark.thorough
def test_the_parts_of_a_divided_file_are_distinguished(of_a_file, of_a_folder, table):
    for run, data in ((of_a_file, table), (of_a_folder, table.parent), (of_a_folder, table)):
        train, dev = parts(run)
        assert (len(train), len(dev)) == (80, 20)
        for named in (None, data, str(data)):
            assert asked(run, named, "dev") == asked(run, named, "dev", same_task=False) == dev
            assert asked(run, named, "train") == train


def test_errors_about_an_example_say_where_it_is_from(of_a_file, tmp_path):
    other = write_table(tmp_path / "other.tsv", ("text", "label"), [("\u200b", "1")])
    for ask in (evaluate, partial(predict, out=tmp_path / "out")):
        with pytest.raises(InputError, match=f"^{other}, line 2: a text is empty, or has no piece"):
            ask([of_a_file], other, "dev", engine="numpy")


def test_a_copy_of_the_divided_file_means_its_dev_part(of_a_file, table, tmp_path):
    copy = shutil.copy(table, tmp_path / "copy.tsv")
    assert asked(of_a_file, copy, "dev") == parts(of_a_file)[1]
    told = predicted_text(predict([of_a_file], copy, "dev", tmp_path / "out", engine="numpy"))
    assert "20 examples of dev, the part of copy.tsv that was held out\n" in told
    other = write_table(tmp_path / "other.tsv", ("text", "label"), reviews(30, 2))
    for split in ("dev", "test"):
        assert len(asked(of_a_file, other, split)) == 30


def test_a_copy_whose_columns_have_other_names_means_its_dev_part(of_a_file, table, tmp_path):
    _, *rows = table.read_text("utf-8").splitlines()
    renamed = tmp_path / "renamed.tsv"
    renamed.write_text("\n".join(["review\tstars", *rows]) + "\n", "utf-8")
    columns = {"text": "review", "label": "stars"}
    expected = evaluate(of_a_file, shutil.copy(table, tmp_path / "copy.tsv"), engine="numpy")
    expected["source"] = f"{renamed}, dev"
    assert evaluate(of_a_file, renamed, columns=columns, engine="numpy") == expected
    for split, part in zip(("train", "dev"), parts(of_a_file), strict=True):
        assert (
            EvaluationData(registry.create("classify", columns), of_a_file, renamed, split).read(True) == part
        )


def test_other_columns_of_the_divided_file_are_read_in_the_rows_held_out(of_a_file, tmp_path):
    run = shutil.copytree(of_a_file, tmp_path / "run")
    rows = [(text, f"the {text}", label, str(row % 2)) for row, (text, label) in enumerate(reviews(100, 4))]
    more = write_table(tmp_path / "more.tsv", ("text", "other", "label", "odd"), rows)
    options = json.loads((run / "finetune.json").read_text("utf-8"))
    (run / "finetune.json").write_text(json.dumps(options | {"data": str(more)}))
    held_out = [rows[int(example.id)] for example in parts(run)[1]]
    assert len(held_out) == 20
    for columns, first, label in (({"text": "other"}, 1, 2), ({"label": "odd"}, 0, 3)):
        found = EvaluationData(registry.create("classify", columns), run, more, "dev").read(True)
        assert [example[1::2] for example in found] == [(row[first], row[label]) for row in held_out]
    with pytest.raises(InputError, match=r"more.tsv' has 101 examples with these columns, and .* 100; leave"):
        evaluate(run, more, columns={"text": "1", "label": "3", "header": "no"}, engine="numpy")


@pytest.mark.parametrize("change", [slice(None, None, -1), slice(30, None)], ids=["sorted", "fewer"])
def test_a_divided_file_that_has_changed_is_refused(of_a_file, table, tmp_path, change):
    run = shutil.copytree(of_a_file, tmp_path / "run")
    head, *rows = table.read_text("utf-8").splitlines()
    changed = tmp_path / "train.tsv"
    changed.write_text("\n".join([head, *rows[change]]) + "\n", "utf-8")
    options = json.loads((run / "finetune.json").read_text("utf-8"))
    (run / "finetune.json").write_text(json.dumps(options | {"data": str(changed)}))
    for ask in (evaluate, partial(predict, out=tmp_path / "out")):
        with pytest.raises(InputError, match=r"train.tsv' has changed since .* was trained on it"):
            ask([run], None, "dev", engine="numpy")
    assert len(asked(run, table, "dev")) == len(rows)  # another file, by its path and contents


def test_a_divided_file_has_no_test_part(of_a_file, of_a_folder, table, tmp_path):
    for data in (None, table):
        with pytest.raises(InputError, match="has no test part"):
            evaluate([of_a_file], data, "test", engine="numpy")
        with pytest.raises(InputError, match="has no test part"):
            predict([of_a_file], data, "test", tmp_path / "out", engine="numpy")
    with pytest.raises(InputError, match=r"has no test\.csv"):
        evaluate([of_a_folder], None, "test", engine="numpy")
    assert not (tmp_path / "out").exists()


def test_the_majority_is_that_of_what_was_learnt(of_a_file, tmp_path):
    train = [example.label for example in parts(of_a_file)[0]]
    usual, rare = sorted(set(train), key=train.count, reverse=True)
    rows = [(text, rare) for text, _ in reviews(10, 3)]
    other = write_table(tmp_path / "other.tsv", ("text", "label"), rows)
    report = predict([of_a_file], other, "test", tmp_path / "out", majority=True, engine="numpy")
    assert train.count(usual) > train.count(rare) and report["scores"]["accuracy"] == 0.0


# tables without labels


UNLABELLED = {
    "csv": "text\n{}\n{}\n",
    "tsv": "text\n{}\n{}\n",
    "jsonl": '{{"text": "{}"}}\n{{"text": "{}"}}\n',
}
TEXTS = ("the film is warm", "a dull story")


@pytest.mark.parametrize("suffix", UNLABELLED)
@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_table_without_labels_is_predicted_with_its_texts(of_a_file, tmp_path, suffix, split):
    other = tmp_path / f"{split}.{suffix}"
    other.write_text(UNLABELLED[suffix].format(*TEXTS))
    for out, data in {"a": other, "b": tmp_path}.items():
        report = predict([of_a_file], data, split, tmp_path / out, engine="numpy")
        table, lines = ([*open(file, encoding="utf-8")] for file in report["files"])
        rows = [line.rstrip("\n").split("\t") for line in table]
        found = [json.loads(line) for line in lines]
        assert report["scores"] is None and rows[0] == ["id", "prediction", "text"]
        assert [row[2] for row in rows[1:]] == [one["text"] for one in found] == [*TEXTS]
        assert [row[1] for row in rows[1:]] == [one["label"] for one in found]
    with pytest.raises(InputError, match="no (column )?'label', (the keys are|its header is) text"):
        evaluate([of_a_file], other, "dev", engine="numpy")


def test_a_missing_column_of_texts_is_no_table_without_labels(of_a_file, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("review\na film\n")
    advice = "its header is review; name the column of the text, such as columns={'text': 'NAME'}, or"
    with pytest.raises(InputError, match=f"has no column 'text', {advice}"):
        predict([of_a_file], other, "dev", tmp_path / "out", engine="numpy")
    other.write_text("text\na film\n")
    advice = "its header is text; name the column of the label, such as columns={'label': 'NAME'}, or"
    with pytest.raises(InputError, match=f"has no column 'label', {advice}"):
        evaluate([of_a_file], other, "dev", engine="numpy")


def test_other_columns_than_those_of_the_training_are_named(of_a_file, tmp_path, capsys):
    usual, other = tmp_path / "usual.csv", tmp_path / "other.csv"
    rows = "".join(f"{text},{label}\n" for text, label in zip(TEXTS * 2, (1, 0, 0, 1), strict=True))
    usual.write_text(f"text,label\n{rows}")
    other.write_text(f"review,stars\n{rows}")
    columns = {"text": "review", "label": "stars"}
    expected = evaluate(of_a_file, usual, engine="numpy")
    found = evaluate(of_a_file, other, columns=columns, engine="numpy")
    assert found == expected | {"source": str(other)}
    predict(of_a_file, usual, "dev", tmp_path / "a", engine="numpy")
    report = predict(of_a_file, other, "dev", tmp_path / "b", columns={"text": "review"}, engine="numpy")
    assert report["scores"] is None  # without the column of labels
    for form in ("{}_predictions.tsv", "classify-{}.jsonl"):  # named by the table
        first, second = tmp_path / "a" / form.format("usual"), tmp_path / "b" / form.format("other")
        assert first.read_text() == second.read_text()
    words = ["--column", "text=review", "--column", "label=stars", "--engine", "numpy", "--json"]
    assert cli.main(["evaluate", "--model", str(of_a_file), "--data", str(other), *words]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == expected["scores"]
    words += ["--out", str(tmp_path / "c")]
    assert cli.main(["predict", "--model", str(of_a_file), "--data", str(other), *words]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == expected["scores"]


KNOWN = r"The model was trained on the texts of {} of {} examples, so its scores say little about new texts"


def caught(evaluating):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        evaluating()
    return [str(warning.message) for warning in warned if "trained on the texts" in str(warning.message)]


def test_scores_of_trained_texts_come_with_a_warning(of_a_file, table, tmp_path):
    """Such as those of the first rows, or of all of them in another order and under other names."""
    trained, held_out = ([[part.first, part.label] for part in parts(of_a_file)[at]] for at in (0, 1))
    names, columns = ("review", "stars"), {"text": "review", "label": "stars"}
    some = write_table(tmp_path / "some.tsv", names, [*trained[:30], *held_out[:5]])
    for ask in (evaluate, partial(predict, out=tmp_path / "out")):
        [warned] = caught(lambda ask=ask: ask([of_a_file], some, "dev", columns=columns, engine="numpy"))
        assert warned.startswith(KNOWN.format(30, 35))
    moved = shutil.move(shutil.copytree(of_a_file, tmp_path / "run"), tmp_path / "moved")
    turned = write_table(tmp_path / "turned.tsv", ("text", "label"), [*trained, *held_out][::-1])
    [warned] = caught(lambda: evaluate(moved, turned, engine="numpy"))
    assert warned.startswith(KNOWN.format(len(trained), len(trained + held_out)))


def test_dev_of_training_texts_comes_with_a_warning(tmp_path):
    rows = [(f"{text} {row}", label) for row, (text, label) in enumerate(reviews(30, 9))]
    names = ("text", "label")
    write_table(tmp_path / "train.tsv", names, rows)
    dev = write_table(tmp_path / "dev.tsv", names, rows[:10])
    options = FinetuneOptions("classify", str(tmp_path), "model")
    [warned] = caught(lambda: read_labelled(registry.create("classify"), options))
    assert warned == KNOWN.format(10, 10).replace("was", "is") + "; measure it on others."
    write_table(dev, names, [*rows[:1], *((f"{text} new", label) for text, label in rows[:9])])
    assert not caught(lambda: read_labelled(registry.create("classify"), options))


def test_scores_of_new_texts_come_without_a_warning(of_a_file, table, tmp_path):
    new = [(f"{text} {row}", label) for row, (text, label) in enumerate(reviews(30, 9))]
    known = [[part.first, part.label] for part in parts(of_a_file)[0]]
    other = write_table(tmp_path / "other.tsv", ("text", "label"), [*new, *known[:7]])
    assert not caught(lambda: evaluate(of_a_file, other, engine="numpy"))
    assert not caught(lambda: evaluate(of_a_file, engine="numpy"))
    assert not caught(lambda: evaluate(of_a_file, table, "train", engine="numpy"))  # the user asks for it
    unlabelled = write_table(tmp_path / "unlabelled.tsv", ("text",), [(text,) for text, _ in known])
    assert not caught(lambda: predict(of_a_file, unlabelled, "dev", tmp_path / "out", engine="numpy"))


SENTENCE = TaggedSentence(("the", "film"), ("O", "O"), 0)
QUESTION = Question("0", "who", "the film", (), None)
PAIR = TextExample("0", "the film", "a story", "1")
CHOICE = ChoiceExample("0", "the film", "is", ("warm", "dull"), 0)


@pytest.mark.parametrize(
    ("example", "unread", "read"),
    [
        (SENTENCE, {"tags": None, "document": 7}, {"words": ("a", "film")}),
        (QUESTION, {"id": "1", "impossible": True}, {"context": "a story"}),
        (PAIR, {"id": "1", "label": None}, {"second": None}),
        (CHOICE, {"id": "1", "label": None}, {"endings": ("warm", "long")}),
    ],
)
def test_texts_are_known_again_whatever_their_labels(example, unread, read):
    one, same, other = text_checksums([example, example._replace(**unread), example._replace(**read)])
    assert one == same != other


def test_a_divided_table_that_lost_its_labels_is_predicted_as_a_whole(of_a_file, table, tmp_path):
    run = shutil.copytree(of_a_file, tmp_path / "run")
    texts = [(line.split("\t")[0],) for line in table.read_text("utf-8").splitlines()[1:]]
    bare = write_table(tmp_path / "bare.tsv", ("text",), texts)
    options = json.loads((run / "finetune.json").read_text("utf-8"))
    (run / "finetune.json").write_text(json.dumps(options | {"data": str(bare)}))
    report = predict(run, bare, "dev", tmp_path / "out", engine="numpy")
    assert predicted_text(report).startswith("Your own table, classes of texts, 100 examples of bare.tsv\n")
    names = [Path(file).name for file in report["files"]]
    assert names == ["bare_predictions.tsv", "classify-bare.jsonl"]


def test_a_column_of_labels_that_is_named_has_to_be_there(of_a_file, table, tmp_path):
    other = write_table(tmp_path / "other.tsv", ("text",), [("the film",)])
    for data in (table, other):
        with pytest.raises(InputError, match="has no column 'stars'"):
            predict(of_a_file, data, "dev", tmp_path / "out", columns={"label": "stars"}, engine="numpy")


@pytest.mark.parametrize(
    ("name", "part"), [("new.reviews.tsv", "new.reviews"), ("new.tsv.gz", "new"), ("dev.tsv", "dev")]
)
def test_files_of_predictions_are_named_by_their_table(of_a_file, tmp_path, name, part):
    plain = write_table(tmp_path / "plain.tsv", ("text", "label"), reviews(4, 8)).read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(plain) if name.endswith(".gz") else plain)
    for split in ("dev", "test"):
        report = predict(of_a_file, tmp_path / name, split, tmp_path / split, engine="numpy")
        names = [Path(file).name for file in report["files"]]
        assert names == [f"{part}_predictions.tsv", f"classify-{part}.jsonl"]


def test_evaluation_reads_a_table_no_more_often_than_it_must(of_a_file, table, tmp_path, monkeypatch):
    other = write_table(tmp_path / "other.tsv", ("text", "label"), reviews(10, 5))
    count = Counter()

    def counted(path, *columns, **more):
        count[Path(path)] += 1
        return read_texts(path, *columns, **more)

    monkeypatch.setattr("minibert.data.tables.read_texts", counted)
    evaluate(of_a_file, other, engine="numpy")
    # To see whether they are the same; then the one to measure, and the other for the bag of words.
    assert count == {other: 2, table: 2}


@pytest.mark.parametrize(
    ("columns", "data", "message"),
    [
        ({"text": "review"}, None, "`columns` is for another table; name that with `data`, or leave it out"),
        ({"second": "text"}, "train.csv", "for single texts; leave out second=text of `columns`"),
        (
            {"title": "text"},
            "train.csv",
            "'title' in `columns` is not a column of classify; choose from text",
        ),
    ],
)
def test_columns_that_cannot_be_read_are_refused(of_a_file, table, columns, data, message):
    data = data and table
    with pytest.raises(InputError, match=message):
        evaluate(of_a_file, data, columns=columns, engine="numpy")


def test_predictions_are_not_written_over_nor_into_a_run_nor_into_a_file(of_a_file, table, tmp_path):
    ask = partial(predict, [of_a_file], table, "dev", engine="numpy")
    files = ask(out=tmp_path / "out")["files"]
    before = Path(files[-1]).read_bytes()
    with pytest.raises(
        InputError, match="out' already holds predictions, classify-dev.jsonl; choose another"
    ):
        ask(out=tmp_path / "out")
    assert Path(files[-1]).read_bytes() == before
    with pytest.raises(InputError, match="run' is the folder of a model; choose another"):
        ask(out=of_a_file)
    with pytest.raises(InputError, match="results.csv' looks like a file; name a folder"):
        ask(out=tmp_path / "results.csv")
    assert not (tmp_path / "results.csv").exists()


@pytest.mark.parametrize(
    ("task", "own"), {"sst2": "classify", "stsb": "regress", "ner": "tag", "squad1": "qa"}.items()
)
@pytest.mark.parametrize("share", [None, 0.2])
def test_a_table_is_not_the_files_of_an_official_task(table, task, own, share):
    options = FinetuneOptions(task, table, "model", split_dev=share)
    what = f"train.tsv' is a file, and {task} reads a folder of its official files"
    with pytest.raises(InputError, match=f"{what}; for a table of your own choose the task {own}"):
        read_examples(registry.create(task), options)


@pytest.mark.parametrize("header", [True, False])
def test_the_header_of_a_table_without_labels_is_no_text(tmp_path, header):
    """The name of its column of labels is how the first row is known for a header."""
    read = registry.create("classify", {"text": "1", "label": "verdict" if header else "2"}).read
    (tmp_path / "test.csv").write_text("review\nthe film\na story\n")
    texts = [example.first for example in read(tmp_path, "test")]
    assert texts == ["review", "the film", "a story"][header:]


def test_pairs_stand_beside_their_predictions(tmp_path):
    rows = [
        (text, other, label) for (text, label), (other, _) in zip(reviews(30, 1), reviews(30, 2), strict=True)
    ]
    for split in ("train", "dev"):
        write_table(tmp_path / "data" / f"{split}.tsv", ("text", "other", "label"), rows)
    run = run_on(tmp_path / "data", tmp_path, columns={"second": "other"})
    asked = write_table(tmp_path / "asked.tsv", ("other", "text"), [("a story", "the film")])
    report = predict([run], asked, "dev", tmp_path / "out", engine="numpy")
    header, row = (line.rstrip("\n").split("\t") for line in open(report["files"][0], encoding="utf-8"))
    assert header == ["id", "prediction", "text", "second"] and row[2:] == ["the film", "a story"]


def test_questions_and_words_stand_beside_their_predictions():
    question = Question("0", "the film", "a story", (), None)
    assert registry.create("qa").asked(question) == {"question": "the film"}
    assert registry.create("squad1").asked(question) == {}
    assert registry.create("tag").asked(TaggedSentence(("the", "film"), None, 0)) == {
        "words": ["the", "film"]
    }
