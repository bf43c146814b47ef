"""Runs side by side: options that differ, metrics, paired intervals, curves, and what can't be compared."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from command import ends_badly, notice  # noqa: F401 (a fixture)
from html_page import AXES, Page, require_own_script, require_self_contained
from small_corpus import write_corpus
from small_tasks import reviews, small_options, write_sst2

import minibert
from minibert import cli
from minibert.base.errors import InputError
from minibert.experiments.comparison import LETTERS, ComparedRun, Comparison, compare
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.pretraining import evaluation
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain
from minibert.reports import pictures
from minibert.reports.held_out import held_out_rows
from minibert.tasks import metrics
from minibert.training.runlog import read_metrics


@pytest.fixture(scope="module")
def tuned(model, tmp_path_factory):
    """Two fine-tunings on data of their own, the second shorter and with another seed."""
    at = tmp_path_factory.mktemp("tuned")
    data = write_sst2(at / "SST-2")
    finetune(small_options(model, data), at / "long", show=False)
    finetune(small_options(model, data, seed=7, epochs=1, learning_rates=(1e-4,)), at / "short", show=False)
    return at


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """Two pre-trainings that differ in their length and in how many documents are held out."""
    at = tmp_path_factory.mktemp("pretrained")
    corpus = str(write_corpus(at / "animals.txt"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "PASSES", 2)
        for name, held_out, steps in (("one", 0.2, 8), ("two", 0.3, 12)):
            options = PretrainOptions(
                corpus=(corpus,), vocab_size=120, seq_length="16", batch_size=8, max_positions=16,
                steps=steps, evaluations=2, held_out=held_out, engine="numpy", threads=1,
            )  # fmt: skip
            pretrain(options, at / name, show=False)
    return at


def report_of(folder):
    return json.loads((folder / "report.json").read_text())


# metrics and options


@pytest.mark.thorough
def test_of_the_options_only_those_that_differ_are_listed(tuned, pretrained):
    found = compare([tuned / "long", tuned / "short"]).to_json()["options"]
    assert {name: found[name][1] for name in ("seed", "epochs", "learning_rates")} == {
        "seed": 7, "epochs": 1, "learning_rates": (1e-4,),
    }  # fmt: skip
    assert sorted(found) == ["epochs", "learning_rates", "seed"]
    found = compare([pretrained / "one", pretrained / "two"]).to_json()["options"]
    assert found == {"held_out": [0.2, 0.3], "steps": [8, 12]}


@pytest.mark.thorough
def test_final_metrics_are_those_of_the_reports(tuned, pretrained):
    for folder, one in zip(
        ("long", "short"), compare([tuned / "long", tuned / "short"]).figures.values(), strict=True
    ):
        report = report_of(tuned / folder)
        assert [one["accuracy"], one["low"], one["high"]] == [
            report["scores"]["accuracy"],
            *report["interval"],
        ]
        assert (one["steps"], one["tokens"]) == (report["steps"], report["tokens"])
    both = compare([pretrained / "two", pretrained / "one"])
    for folder, one in zip(("two", "one"), both.figures.values(), strict=True):
        held_out = report_of(pretrained / folder)["held_out"]
        assert (one["loss"], one["floor"]) == (held_out["loss"], held_out["unigram"])
    assert both.figures["A"]["steps"] == 12


@pytest.mark.parametrize(
    ("column", "label"),
    [
        ("loss", "loss, nats"),
        ("floor", "unigram entropy of the targets: the best guess without context"),
        ("perplexity", "perplexity"),
        ("accuracy", "accuracy"),
    ],
)
def test_final_metrics_are_written_as_on_the_page_of_a_run(pretrained, column, label):
    head, *rows = compare([pretrained / "one", pretrained / "two"])._rows()
    for folder, row in zip(("one", "two"), rows, strict=True):
        on_its_page = dict(held_out_rows(report_of(pretrained / folder)["held_out"]))
        assert row[head.index(column)] == on_its_page[label]


def test_comparing_losses_of_other_targets_is_warned_of(pretrained):
    (note,) = compare([pretrained / "one", pretrained / "two"]).to_json()["notes"]
    assert note.startswith("No interval, as held-out targets differ: compare each loss with its own floor")


def test_losses_without_an_interval_say_why(pretrained, tmp_path):
    shutil.copytree(pretrained / "one", tmp_path / "same")
    found = compare([pretrained / "one", tmp_path / "same"])
    (note,) = found.to_json()["notes"]
    assert note.startswith("No interval of held-out losses, as a run keeps only their mean")
    assert note in " ".join(found.text().split())
    assert note in found.write(tmp_path / "page.html").read_text("utf-8")


def right_of(tuned, name):
    """Whether each prediction on dev is right, from the files alone."""
    with open(tuned / "SST-2" / "dev.tsv", newline="") as file:
        gold = [row["label"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    found = [one["label"] for one in json.loads((tuned / name / "dev_predictions.json").read_text())]
    return np.equal(gold, found)


def test_the_difference_and_its_paired_interval_are_those_of_a_count_by_hand(tuned):
    long, short = (right_of(tuned, name).astype(float) for name in ("long", "short"))
    assert 0 < np.mean(long != short) < 1
    [found] = compare([tuned / "long", tuned / "short"]).to_json()["differences"]
    assert found["runs"] == ["B", "A"] and found["examples"] == 60
    assert found["difference"] == pytest.approx(short.mean() - long.mean())
    by_hand = metrics.bootstrap(lambda rows: (short - long)[rows].mean(), 60)
    assert found["interval"] == pytest.approx(by_hand)
    text = " ".join(compare([tuned / "long", tuned / "short"]).text().split())
    assert f"B - A: {100 * found['difference']:.2f}, 95% of paired bootstrap samples of 60 examples" in text


def test_an_interval_with_zero_is_not_called_a_difference(tuned, tmp_path):
    shutil.copytree(tuned / "long", tmp_path / "same")
    found = compare([tuned / "long", tmp_path / "same"])
    assert found.to_json()["differences"][0]["interval"] == pytest.approx([-0.0602, 0.0602], abs=1e-4)
    assert "not told apart by these examples" in " ".join(found.text().split())
    assert "The options are the same." in found.text()


@pytest.fixture
def copies(tuned, tmp_path):
    """Copies of both that may be spoiled, with their data."""
    shutil.copytree(tuned, tmp_path / "all")
    for name in ("long", "short"):
        path = tmp_path / "all" / name / "finetune.json"
        path.write_text(path.read_text().replace(str(tuned), str(tmp_path / "all")))
    return tmp_path / "all"


def altered_predictions(at):
    path = at / "short" / "dev_predictions.json"
    path.write_text(path.read_text().replace('"label": "1"', '"label": "0"', 1))


def without_a_checksum(at):
    report = report_of(at / "short")
    del report["crc32"]["dev_predictions.json"]
    (at / "short" / "report.json").write_text(json.dumps(report))


def other_labels(at):
    path = at / "SST-2" / "dev.tsv"
    path.write_text(path.read_text().replace("\t1\n", "\t0\n"))


def other_examples(at):
    lines = (at / "SST-2" / "dev.tsv").read_text().splitlines(True)
    (at / "SST-2" / "dev.tsv").write_text("".join(lines[:-1]))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (
            altered_predictions,
            "with B: .*dev_predictions.json is damaged: its checksum differs; put a copy",
        ),
        (without_a_checksum, "with B: .*dev_predictions.json is damaged: its checksum differs; put a copy"),
        (other_labels, "with A: the data of .* are no longer those that it was measured on"),
        (other_examples, "with A: .* does not hold the predictions of 59 examples"),
        (lambda at: (at / "short" / "report.json").unlink(), "with B: it is not finished"),
        (lambda at: shutil.rmtree(at / "SST-2"), "with A: The data that .* are not there"),
    ],
    ids=["predictions", "checksum", "labels", "examples", "unfinished", "data"],
)
def test_there_is_no_interval_where_examples_or_predictions_are_not_those_of_the_runs(spoil, told, copies):
    assert compare([copies / "long", copies / "short"]).to_json()["notes"] == []
    spoil(copies)
    found = compare([copies / "long", copies / "short"]).to_json()
    assert found["differences"] == [] and len(found["notes"]) in (1, 2)
    assert re.match(f"No interval {told}", found["notes"][0])


def test_tables_whose_columns_have_other_names_are_compared_row_by_row(model, tmp_path):
    rows = [f"{text},{label}" for text, label in reviews(40, 1)]
    for name, columns in (("a", ("text", "label")), ("b", ("review", "stars"))):
        (tmp_path / f"{name}.csv").write_text("\n".join([",".join(columns), *rows]))
        given = {
            "columns": tuple(zip(("text", "label"), columns, strict=True)),
            "split_dev": 0.5,
            "epochs": 1,
        }
        options = FinetuneOptions("classify", str(tmp_path / f"{name}.csv"), model, engine="numpy", **given)
        finetune(options, tmp_path / "run" / name, show=False)
    found = compare([tmp_path / "run" / "a", tmp_path / "run" / "b"]).to_json()
    assert found["notes"] == []
    assert [(one["examples"], one["difference"]) for one in found["differences"]] == [(20, 0.0)]


# curves


def test_runs_are_compared_in_python_as_by_the_command(tuned, capsys):
    runs = [minibert.Run.open(tuned / "long"), tuned / "short"]
    comparison = minibert.compare(runs)
    cli.main(["compare", str(tuned / "long"), str(tuned / "short")])
    assert str(comparison) == capsys.readouterr().out.rstrip("\n")
    assert comparison.to_json()["runs"][0]["folder"] == str(tuned / "long")
    shown = comparison._repr_html_()
    assert shown.startswith("<iframe") and "Comparison of 2 runs" in shown
    with pytest.raises(InputError, match=r"is one run; give a list, compare\(\['.*', \.\.\.\]\)"):
        minibert.compare(runs[0])


def test_points_stand_over_steps_tokens_or_minutes(pretrained):
    run = compare([pretrained / "one", pretrained / "two"]).runs[1]
    lines = read_metrics(pretrained / "two")
    steps = [line for line in lines if "mlm_loss" in line]
    for by, place in (("step", "step"), ("tokens", "tokens"), ("minutes", "seconds")):
        unit = 60 if by == "minutes" else 1
        expected = [(line[place] / unit, line["mlm_loss"]) for line in steps]
        np.testing.assert_allclose(run.points("mlm_loss", by), expected)
        at = {line["step"]: line[place] / unit for line in steps}
        looks = [(at[line["step"]], line["held_out_loss"]) for line in lines if "held_out_loss" in line]
        assert len(looks) == 2
        np.testing.assert_allclose(run.points("held_out_loss", by), looks)
    assert run.points("nothing", "tokens").shape == (0, 2)


@pytest.mark.parametrize("by", ["step", "tokens", "minutes"])
def test_the_page_has_a_curve_of_every_run_on_one_axis(pretrained, tmp_path, by):
    path = compare([pretrained / "one", pretrained / "two"], by).write(tmp_path / "page.html")
    document = path.read_text("utf-8")
    require_self_contained(document, AXES)
    found = Page(document)
    assert [had["aria-label"].split(" from ")[0] for had in found.of("svg", role="img")] == [
        f"{what} loss over {by.rstrip('s')}s, A one" for what in ("training", "held-out")
    ]
    assert found.said("text").count(pictures.AXES[by]) == 2
    ends = []
    for kind in ("run0", "run1"):
        *_, training, looks = [had["d"] for had in found.of("path") if had["class"] == kind]
        assert training.count("L") == {"run0": 7, "run1": 11}[kind] and looks.count("L") == 1
        ends.append(float(training[1:].split("L")[-1].split()[0]))
        assert len(found.of("circle", **{"class": kind})) == 2
    assert max(ends) == pytest.approx(pictures.WIDTH - pictures.RIGHT, abs=0.1)
    if by == "step":
        width = pictures.WIDTH - pictures.LEFT - pictures.RIGHT
        assert ends[0] == pytest.approx(pictures.LEFT + 8 / 12 * width, abs=0.1)
    assert ["steps", "8", "12"] in found.rows and ["option", "A one", "B two"] in found.rows


@pytest.mark.parametrize("by", ["step", "tokens", "minutes"])
def test_smoothing_restarts_where_a_stage_begins(by):
    lines = []
    for step in range(1, 61):
        loss = 4.0 if step <= 30 else 8.0
        lines.append({"step": step, "mlm_loss": loss, "tokens": 100 * step, "seconds": 6.0 * step})
    report = {"stages": [[0, 16], [30, 32]], "steps": 60, "tokens": 6000, "training_seconds": 360.0}
    options = [PretrainOptions(corpus=(name,)) for name in "AB"]
    runs = [
        ComparedRun(letter, Path(letter), given, lines, report)
        for letter, given in zip("AB", options, strict=True)
    ]
    losses, _ = Comparison(runs, by)._pictures()
    for kind in ("run0", "run1"):
        parts = [path.values.split() for path in losses["paths"] if path.kind == kind]
        assert parts == [["4.000"] * 30, ["8.000"] * 30]


def test_page_begins_with_the_metrics_and_says_their_units(tuned, pretrained):
    document = compare([pretrained / "one", pretrained / "two"])._page()
    assert Page(document).said("h2") == ["Final metrics", "Options that differ", "Curves"]
    assert "The loss is in nats and the accuracy in percent" in document
    assert "A gap is where a stage" in document
    document = compare([tuned / "long", tuned / "short"])._page()
    assert "Low and high are the ends of the 95% interval of accuracy, in percent." in document
    assert "A gap is where a stage" not in document


def test_a_run_on_its_way_is_drawn_as_far_as_it_has_come(pretrained, tmp_path):
    shutil.copytree(pretrained / "two", tmp_path / "on-its-way")
    (tmp_path / "on-its-way" / "report.json").unlink()
    found = compare([pretrained / "one", tmp_path / "on-its-way"])
    assert found.figures["B"]["loss"] is None and found.figures["B"]["steps"] == 12
    assert found.text().splitlines()[5].split()[:5] == ["B", "-", "-", "-", "-"]
    document = found.write(tmp_path / "page.html").read_text("utf-8")
    assert "not finished" in document and document.count('class="run1"') == 2 + 2 + 2


def test_a_name_by_an_option_that_was_not_given_says_default():
    runs = []
    for letter, warmup in (("A", None), ("B", 0.05)):
        folder = Path(f"a-folder-whose-name-is-long-{letter}")
        runs.append(ComparedRun(letter, folder, PretrainOptions(corpus=("books",), warmup=warmup), [], None))
    assert Comparison(runs, "step").labels == ["A warmup not given", "B warmup 0.05"]


def test_page_has_short_names_and_whole_paths(pretrained):
    found = Page(compare([pretrained / "one", pretrained / "two"])._page())
    folders = [str(pretrained / name) for name in ("one", "two")]
    assert found.said("label") == ["A one", "B two"]
    assert [had["title"] for had in found.of("label")] == folders
    assert [had["title"] for had in found.of("th") if "title" in had] == folders * 2
    assert [[row[0].strip(), row[-1]] for row in found.rows[1:3]] == [
        ["A one", folders[0]],
        ["B two", folders[1]],
    ]
    names = {path["data-name"] for path in found.of("path") if "data-name" in path}
    assert names == {"A one", "B two"}  # so few steps are not smoothed


def test_hostile_names_stay_text_on_terminal_and_page(pretrained, tmp_path):
    name = "<script>\x1b[31m" + "long" * 30
    short = name[:13]
    for folder in (name, short):
        shutil.copytree(pretrained / "one", tmp_path / folder)
    found = compare([pretrained / "one", tmp_path / name, tmp_path / short])
    assert "\x1b" not in found.text() and max(map(len, found.text().splitlines())) <= 80
    document = found.write(tmp_path / "page.html").read_text("utf-8")
    require_own_script(Page(document), AXES)
    assert "\x1b" not in document
    assert Page(document).said("label")[1:] == [f"B …{name[-23:]}", "C <script>\ufffd[31m"]


# the command


def test_the_command_prints_a_table_within_eighty_columns_and_writes_the_page(tuned, tmp_path, capsys):
    page = str(tmp_path / "page.html")
    words = [str(tuned / "long"), "--by", "tokens", str(tuned / "short"), "--out", page]
    assert cli.main(["compare", *words]) == 0
    said = capsys.readouterr()
    assert said.err == "" and said.out.endswith(f"\nPage: {page}\n")
    lines = said.out.partition("\nPage: ")[0].splitlines()
    assert max(map(len, lines)) <= 80
    head = next(number for number, line in enumerate(lines) if "accuracy" in line)
    assert lines[head].split() == ["accuracy", "low", "high", "steps", "tokens", "minutes"]
    report = report_of(tuned / "long")
    assert lines[head + 1].split()[:2] == ["A", f"{100 * report['scores']['accuracy']:.2f}"]
    assert "  seed: A 0, B 7" in lines
    rows = [row[1:-1] for row in Page((tmp_path / "page.html").read_text("utf-8")).rows]
    assert lines[head + 1].split()[1:] in rows


def test_names_and_options_fill_eighty_columns_and_no_more():
    lines = [{"step": 1}]
    names = ["n" * length for length in (76, 77, 78, 200)]
    options = [PretrainOptions(corpus=name) for name in names]
    runs = [ComparedRun(*one, lines, None) for one in zip("ABCD", map(Path, names), options, strict=True)]
    shown = Comparison(runs, "step").text().splitlines()
    assert shown[:4] == [f"A  {names[0]}", f"B  {names[1]}", *(f"{letter}  …{'n' * 76}" for letter in "CD")]
    assert max(map(len, shown)) == 80


def test_json_has_what_the_table_has(pretrained, capsys):
    assert cli.main(["compare", "--json", str(pretrained / "one"), str(pretrained / "two")]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = compare([pretrained / "one", pretrained / "two"]).to_json()
    assert found == json.loads(json.dumps(expected)) | {"page": None}
    assert [one["run"] for one in found["runs"]] == ["A", "B"]
    assert found["options"]["steps"] == [8, 12]


def test_what_curves_are_drawn_over_is_asked_for_with_a_page_alone(pretrained, capsys):
    words = ["compare", str(pretrained / "one"), str(pretrained / "two"), "--by", "tokens"]
    assert "--by is for the curves, which are only on the page; name the page with --out." in ends_badly(
        capsys, 2, *words
    )


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("one", "nothing"), r"nothing' is not a folder; name that of a run\."),
        (("one", "."), r"holds no run \(neither training.json nor finetune.json is there\)"),
        (("one", "../../one"), r"is not a folder"),
        (("one", "one"), r"A run is named twice"),
        (("one",), r"1 run can't be compared; name 2 to 8"),
        (tuple("one" for _ in range(9)), r"9 runs can't be compared"),
    ],
)
def test_what_is_named_wrongly_gets_one_sentence(names, told, pretrained):
    with pytest.raises(InputError, match="by='epochs' is unknown; choose one of step, tokens, minutes"):
        compare([pretrained / "one", pretrained / "two"], by="epochs")
    with pytest.raises(InputError, match=told):
        compare([pretrained / name for name in names])


def test_runs_of_different_kinds_and_tasks_are_refused(tuned, pretrained, tmp_path, capsys):
    said = ends_badly(capsys, 2, "compare", str(tuned / "long"), str(pretrained / "one"))
    assert (
        f"'{tuned / 'long'}' is a fine-tuning for sst2 and '{pretrained / 'one'}' a pre-training, whose"
        in said
    )
    shutil.copytree(tuned / "short", tmp_path / "cola")
    path = tmp_path / "cola" / "finetune.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"task": "cola"}))
    said = ends_badly(capsys, 2, "compare", str(tuned / "long"), str(tmp_path / "cola"))
    assert "is a fine-tuning for sst2 and" in said and "a fine-tuning for cola, whose metrics" in said


def test_a_sweep_is_answered_with_the_name_of_one_of_its_runs(tuned, tmp_path, capsys):
    (tmp_path / "sweep").mkdir()
    stored = json.loads((tuned / "long" / "finetune.json").read_text()) | {"restarts": 2}
    (tmp_path / "sweep" / "finetune.json").write_text(json.dumps(stored))
    said = ends_badly(capsys, 2, "compare", str(tmp_path / "sweep"), str(tuned / "long"))
    assert "holds a sweep of 2 runs; name some of these, such as" in said and "-seed0." in said


def test_a_page_is_written_over_nothing_but_a_page(tuned, capsys):
    report = tuned / "long" / "report.json"
    before = report.read_bytes()
    words = ["compare", str(tuned / "long"), str(tuned / "short"), "--out", str(report)]
    assert "is not the name of a page; give one that ends in .html" in ends_badly(capsys, 2, *words)
    assert report.read_bytes() == before


def test_every_run_of_a_picture_has_a_letter_and_a_style(pretrained, tmp_path):
    folders = [pretrained / "one"]
    for number in range(1, len(LETTERS)):
        folders.append(shutil.copytree(pretrained / "one", tmp_path / str(number)))
    document = compare(folders).write(tmp_path / "page.html").read_text("utf-8")
    styles = [line for line in document.splitlines() if line.startswith("svg .run")]
    dashes = {line.partition("stroke-dasharray: ")[2] for line in styles}
    assert len(styles) == len(dashes) == len(LETTERS)
    assert document.count("--run7:") == 2  # light and dark
