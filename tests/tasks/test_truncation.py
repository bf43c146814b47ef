"""Texts longer than a model reads: what is cut of them is counted, reported once, and marked."""

import io
import sys
import warnings
from types import SimpleNamespace

import pytest
from small_tasks import report_in, small_options, write_swag, write_table

from minibert import cli
from minibert.data.choice import ChoiceExample
from minibert.data.squad import Question
from minibert.finetuning.run import classify, evaluate, finetune, predict
from minibert.tasks import registry
from minibert.tasks.task import Mistake
from minibert.tasks.truncation import Truncation, warn_of_truncation, with_marks
from minibert.tokenizer import Tokenizer

LENGTH = 8
MARK = "[the model reads no further: {} more tokens]"


@pytest.fixture
def tokenizer(model):
    return Tokenizer.from_pretrained(model)


def words(count):
    return " ".join(["film"] * count)


def table(folder, lengths):
    """A table of texts of so many words for train and for dev; of two of a length one is of each class."""
    for split, counts in zip(("train", "dev"), lengths, strict=True):
        rows = [(words(count), number % 2) for number, count in enumerate(counts)]
        write_table(folder / f"{split}.tsv", ("text", "label"), rows)
    return folder


@pytest.fixture(scope="module")
def long_run(model, tmp_path_factory):
    """A run that read 8 tokens of texts of 4, 10 and 20 words; what it warned of; its data."""
    folder = tmp_path_factory.mktemp("long")
    data = table(folder / "data", ([4] * 20 + [10] * 15 + [20] * 5, [4] * 6 + [10] * 2 + [20] * 2))
    options = small_options(model, data, "classify", max_steps=2, max_length=LENGTH)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        finetune(options, folder / "run", show=False)
    return folder / "run", [str(one.message) for one in caught], data


WARNING = (
    "20 of 40 examples of train (50%) and 4 of 10 examples of dev (40%) are longer than 8 tokens and lose "
    "their ends, 32% of all tokens. When fine-tuning, max_length=16 would cut 14%, max_length=24 would "
    "cut none."
)


def test_fine_tuning_tells_once_what_is_cut_and_what_would_cut_less(long_run):
    [text] = [text for text in long_run[1] if "lose their ends" in text]
    assert text == WARNING


def test_the_report_and_its_page_have_the_counts(long_run):
    run = long_run[0]
    assert report_in(run)["truncated"] == {
        "max_length": LENGTH,
        "train": {
            "examples": 40,
            "cut": 20,
            "tokens": 20 * 6 + 15 * 12 + 5 * 22,
            "tokens_cut": 15 * 4 + 5 * 14,
        },
        "dev": {"examples": 10, "cut": 4, "tokens": 6 * 6 + 2 * 12 + 2 * 22, "tokens_cut": 2 * 4 + 2 * 14},
        "warning": WARNING,
    }
    assert WARNING in (run / "report.html").read_text()


def test_mistakes_show_where_the_model_stopped_reading(long_run):
    run, _, data = long_run
    mistakes = report_in(run)["mistakes"]
    examples = [line.split("\t")[0] for line in (data / "dev.tsv").read_text().splitlines()[1:]]
    page = (run / "report.html").read_text()
    wrong = {mistake["example"] for mistake in mistakes}
    assert len({6, 7} & wrong) == len({8, 9} & wrong) == 1  # two labels of one text, which is cut
    for mistake in mistakes:
        text = examples[mistake["example"]]
        read, more = " ".join(text.split()[:6]), len(text.split()) - 6
        marked = f"{read} {MARK.format(more)}  {' '.join(text.split()[6:])}" if more > 0 else text
        assert mistake["text"] == marked
        assert mistake["text"] in page


@pytest.mark.thorough
def test_where_nothing_is_cut_there_is_no_warning(run, sst2):
    assert "truncated" not in report_in(run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "truncated" not in evaluate(run, sst2, engine="numpy")


@pytest.mark.filterwarnings("ignore:.*lose their ends")
@pytest.mark.filterwarnings("ignore:The model was trained on the texts of")  # dev has the same ones
def test_predicting_and_measuring_tell_it_too(long_run, tmp_path):
    run = long_run[0]
    expected = (
        "4 of 10 examples of dev (40%) are longer than 8 tokens and lose their ends, 35% of all tokens."
    )
    with pytest.warns(UserWarning, match="lose their ends") as caught:
        report = evaluate(run, engine="numpy")
    [told] = [str(one.message) for one in caught if "lose their ends" in str(one.message)]
    assert told.startswith(expected)
    assert report["truncated"]["dev"] == report_in(run)["truncated"]["dev"]
    with pytest.warns(UserWarning, match="lose their ends") as caught:
        found = predict(run, None, "dev", tmp_path / "out", engine="numpy")
    assert len([one for one in caught if "lose their ends" in str(one.message)]) == 1
    assert found["truncated"] == report["truncated"]
    with pytest.warns(UserWarning, match="The text has 12 tokens, of which the model reads 8. When fine-tun"):
        classify(run, [words(10)], engine="numpy")


def test_classify_tells_it_once_for_all_lines(long_run, capsys, monkeypatch):
    lines = "".join(f"{words(count)}\n" for count in (3, 10, 20, 30))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(lines.encode())))
    assert cli.main(["classify", "--model", str(long_run[0]), "--engine", "numpy"]) == 0
    said = capsys.readouterr()
    assert said.out.count("\n") == 4
    assert said.err == (
        "minibert: 3 of 4 examples (75%) are longer than 8 tokens and lose their ends, 59% of all tokens. "
        "When fine-tuning, max_length=16 would cut 50%, max_length=24 would cut 25%.\n"
    )


def test_finetune_tells_it_in_a_quiet_run_too(model, tmp_path, capsys):
    data = table(tmp_path / "data", ([4, 4, 40, 40], [3, 5]))
    line = f"finetune classify --data {data} --model {model} --out {tmp_path / 'run'} --engine numpy"
    assert cli.main([*line.split(), "--max-steps", "1", "--quiet"]) == 0
    assert capsys.readouterr().err == (
        "minibert: 2 of 4 examples of train (50%) and 0 of 2 examples of dev (none) are longer than 24 "
        "tokens and lose their ends, 33% of all tokens. The model has no more positions.\n"
    )


# every task whose texts are cut


def test_pairs_numbers_and_choices_are_counted_alike(model, tmp_path):
    rows = [(f"{words(9)} warm", words(2), 0.5), ("a film", words(3), 1.0), (words(2), words(20), 2.0)]
    for split in ("train", "dev"):
        write_table(tmp_path / "pairs" / f"{split}.tsv", ("text", "other", "label"), rows)
    columns = {"second": "other"}
    options = small_options(model, tmp_path / "pairs", "regress", columns=columns, max_length=12, max_steps=1)
    with pytest.warns(UserWarning, match=r"^2 of 3 examples of train \(67%\) and 2 of 3 examples of dev"):
        report = finetune(options, tmp_path / "run", show=False)
    texts = {mistake["example"]: mistake["text"] for mistake in report["mistakes"]}
    assert texts[1] == f"a film\n{words(3)}"
    assert texts[0] == f"{words(7)} {MARK.format(3)}  film film warm\n{words(2)}"
    assert texts[2] == f"{words(2)}\n{words(7)} {MARK.format(13)}  {words(13)}"

    (tmp_path / "swag").mkdir()
    options = small_options(model, write_swag(tmp_path / "swag"), "swag", max_length=8, max_steps=1)
    with pytest.warns(UserWarning, match="are longer than 8 tokens and lose their ends"):
        report = finetune(options, tmp_path / "choices", show=False)
    part = report["truncated"]["dev"]
    task = registry.create("swag")
    examples = task.read(tmp_path / "swag", "dev")
    tokenizer = Tokenizer.from_pretrained(model)
    whole = [[len(tokenizer(e.context, f"{e.start} {ending}").ids) for ending in e.endings] for e in examples]
    assert part["cut"] == sum(max(one) > 8 for one in whole) > 0 and part["tokens"] == sum(map(sum, whole))
    assert part["tokens_cut"] == sum(max(0, n - 8) for one in whole for n in one)


def test_a_choice_shows_how_far_its_context_and_endings_were_read(tokenizer):
    example = ChoiceExample("0", words(3), "it was", (words(1), f"{words(9)} warm"), 1)
    task = registry.create("swag")
    mistake = task.mistakes([example], [{"choice": 0, "probabilities": [0.9, 0.1]}])[0]
    found = task.as_read(mistake, example, tokenizer, 12)
    assert found == mistake._replace(expected=f"{words(4)} {MARK.format(6)}  {words(5)} warm")


@pytest.mark.parametrize("task", ["squad1", "ner"])
def test_a_task_that_reads_windows_marks_nothing(task, tokenizer):
    mistake = Mistake(words(40), "a", "b", 1.0, 0)
    assert registry.create(task).as_read(mistake, None, tokenizer, LENGTH) is mistake


def test_windows_over_a_paragraph_cut_nothing(tokenizer):
    asked = [Question("1", "the film", words(50), (), None)]
    windows = registry.create("squad1").features(asked, tokenizer, (), LENGTH, training=False)
    cuts = Truncation(LENGTH)
    cuts.add(windows)
    assert len(windows) > 1 and warn_of_truncation({"dev": cuts}, 24) == {}


def test_a_mark_stands_behind_the_last_character_that_was_read(tokenizer):
    text = "A  FILM,\nvery  Warm\tindeed"  # [UNK] counts as any other piece
    assert len(tokenizer.tokenize(text)) == 6
    assert with_marks(tokenizer, 8, text) == [text]
    assert with_marks(tokenizer, 6, text) == [f"A  FILM,\nvery {MARK.format(2)}   Warm\tindeed"]
    assert with_marks(tokenizer, 3, text) == [f"A {MARK.format(5)}   FILM,\nvery  Warm\tindeed"]
