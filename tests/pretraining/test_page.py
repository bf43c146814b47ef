"""The page of a pre-training says what the run measured and decided, on the way and at the end."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from html_page import Page, require_self_contained
from small_corpus import write_corpus

from minibert.pretraining import page
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.page import RunPage
from minibert.pretraining.preparation import Text
from minibert.pretraining.recipes import Timetable
from minibert.pretraining.run import pretrain
from minibert.reports import pictures
from minibert.reports.markup import shown
from minibert.training import runlog
from minibert.training.runlog import read_metrics

STEPS, LOOKS = 12, 3
pytestmark = pytest.mark.usefixtures("few_passes")


def options(corpus, **more):
    given = dict(
        corpus=(str(corpus),), vocab_size=120, seq_length="8:0.5,16:0.5", batch_size=8, max_positions=16,
        steps=STEPS, evaluations=LOOKS, held_out=0.2, engine="numpy", threads=1,
    )  # fmt: skip
    return PretrainOptions(**given | more)


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """The folder of a run, its report, and its page at each step as a browser had it then."""
    out, seen = tmp_path_factory.mktemp("runs") / "run", {}

    def note(step, values):
        seen[step] = (out / "report.html").read_text("utf-8")

    report = pretrain(options(corpus), out, show=False, on_log=note)
    return out, report, seen


def renews_itself(document):
    return [had["content"] for had in Page(document).of("meta", **{"http-equiv": "refresh"})] == [
        str(page.REFRESH)
    ]


def dots(document):
    """The places of the dots for held-out text."""
    return np.array([(float(one["cx"]), float(one["cy"])) for one in Page(document).of("circle", r="4")][1:])


def test_the_page_of_a_finished_run_is_self_contained_and_does_not_renew_itself(finished):
    out, report, _ = finished
    assert report["page"] == str(out / "report.html") == json.loads((out / "report.json").read_text())["page"]
    document = (out / "report.html").read_text("utf-8")
    require_self_contained(document)
    assert not renews_itself(document)
    assert sorted(path.name for path in out.glob("loss.*")) == []


def test_it_has_the_figures_of_the_report(finished):
    out, report, _ = finished
    found, held_out = Page((out / "report.html").read_text("utf-8")), report["held_out"]
    assert found.said("b") == [f"{held_out['loss']:.3f}"]
    for row in (
        ["loss, nats", f"{held_out['loss']:.3f}"],
        ["unigram entropy of the whole text", f"{held_out['text_unigram']:.3f}"],
        ["loss with the context shuffled", f"{held_out['shuffled_loss']:.3f}"],
        ["accuracy", f"{held_out['accuracy']:.1%}"],
        ["vocab_size", "120"],
    ):
        assert [row] == [one for one in found.rows if one[0] == row[0]], row
    [speed] = [float(row[1].replace(",", "")) for row in found.rows if row[0] == "tokens a second"]
    last = [line for line in read_metrics(out) if "tokens" in line][-1]
    assert speed == pytest.approx(last["tokens"] / last["seconds"], rel=0.01)
    assert len(report["examples"]) == 3
    example = report["examples"][0]
    [row] = [row for row in found.rows if row[0] == example["text"]]
    said = ", ".join(f"{piece} {100 * share:.0f}%" for piece, share in example["guesses"])
    assert row[1:] == [example["answer"], said]


def test_the_curve_has_the_steps_the_looks_the_floors_and_the_stages(finished):
    out, report, _ = finished
    document, held_out = (out / "report.html").read_text("utf-8"), report["held_out"]
    found = Page(document)
    picture = document.partition("<h2>Loss</h2>")[2].partition("<h2>")[0]
    assert picture.count('class="loss raw"') == 1 and picture.count('class="loss"') == 1 + 2  # key, stages
    assert picture.count('class="line"') == 2
    words = found.said("text")
    assert f"unigram entropy of the held-out targets: {held_out['unigram']:.2f}" in words
    assert f"held out, its context shuffled: {held_out['shuffled_loss']:.2f}" in words
    looks = [(line["step"], line["held_out_loss"]) for line in read_metrics(out) if "held_out_loss" in line]
    looks.append((STEPS, held_out["loss"]))
    assert len(looks) == LOOKS + 1
    told = [f"held-out, step {step}: {loss:.3f}" for step, loss in looks]
    assert [one for one in found.said("title") if one.startswith("held-out")] == told
    width = pictures.WIDTH - pictures.LEFT - pictures.RIGHT
    expected = [pictures.LEFT + step / STEPS * width for step, _ in looks]
    np.testing.assert_allclose(dots(document)[:, 0], expected, atol=0.06)
    heights = np.polyfit(dots(document)[:, 1], [loss for _, loss in looks], 1, full=True)
    assert heights[1].sum() < 1e-3  # on one straight scale


def test_it_has_the_gradient_norm_and_the_rate_of_every_step(finished):
    out, _, _ = finished
    found, lines = Page((out / "report.html").read_text("utf-8")), read_metrics(out)
    assert "Gradient norm and learning rate" in found.said("h2")
    for title, name, form in (
        ("gradient norm", "gradient_norm", shown),
        ("learning rate", "learning_rate", "{:.3g}".format),
    ):
        told = [path["data-values"].split() for path in found.of("path", **{"data-name": title})]
        assert sum(told, []) == [form(line[name]) for line in lines if name in line], title
    norms = [line["gradient_norm"] for line in lines if "gradient_norm" in line]
    assert len(norms) == STEPS
    cut = sum(norm > 1 for norm in norms) or "none"
    assert any(f"here at {cut} of {STEPS} steps;" in text for text in found.said("p"))


def test_on_the_way_cut_gradients_are_counted_as_long_as_all_steps_are_read(corpus, tmp_path, monkeypatch):
    most, out = 6, tmp_path / "run"
    monkeypatch.setattr(page, "MOST_LINES", most)
    monkeypatch.setattr(runlog, "LAST_LINES", 2)
    monkeypatch.setattr(page, "REFRESH", 0)
    monkeypatch.setattr(page, "SHARE", math.inf)  # so that the page is written at every step
    seen = {}

    def note(step, values):
        seen[step] = (out / "report.html").read_text("utf-8")

    pretrain(options(corpus), out, show=False, on_log=note)
    for step in range(1, STEPS + 1):
        assert ("here at " in seen[step]) == (step <= most), step
    assert f" of {STEPS} steps; a norm" in (out / "report.html").read_text("utf-8")


def test_it_says_what_was_decided_and_why(finished):
    out, report, _ = finished
    rows = {row[0]: row[1:] for row in Page((out / "report.html").read_text("utf-8")).rows if len(row) == 3}
    assert rows["steps"] == ["12", "--steps"]
    assert rows["sequence lengths"] == ["8 for 6 steps, then 16 for 6 steps", "given"]
    assert rows["learning rate"] == ["0.002", "recipe of tiny"]
    assert rows["warm-up"] == ["1 step, a share of 0.1", "recipe of tiny"]
    assert rows["vocabulary"] == [f"{report['vocab_size']} pieces", "learnt from the text"]
    assert rows["size"][0].startswith("2 layers of 128 in 2 heads") and rows["size"][1] == "--size tiny"
    average = report["tokens"] / STEPS
    assert rows["tokens a step"] == [f"{average:.0f} on average, at most 128", "given"] and average < 128


def test_it_names_no_folder_of_the_machine(finished, corpus):
    document = (finished[0] / "report.html").read_text("utf-8")
    assert corpus.name in document and str(corpus.parent) not in document
    named = page.named_paths(PretrainOptions(corpus=("/a/b.txt", "c"), model="/d/e"))
    assert named == {"corpus": ("b.txt", "c"), "shards": None, "vocab": None, "model": "e"}


def test_minutes_are_explained_by_the_measured_speed():
    minutes = PretrainOptions(minutes=8).resolved()
    plan = {"per_step": [[10, 0.0125], [16, 0.025]], "held_out_share": 0.5}
    changed = Timetable.of(100).rescheduled(end=140, from_step=20)
    assert page._budget(minutes, plan, changed) == (
        "what fits into 8 minutes: a step took 12.5 ms at length 10, 25 ms at length 16; 100 were planned, "
        "before the speed changed on the way; held-out text is measured on 50% of the usual targets"
    )
    assert "planned" not in page._budget(minutes, plan, Timetable.of(100))


def test_a_warmup_is_told_in_the_steps_of_a_changed_plan():
    tenth = PretrainOptions(steps=100, warmup=0.1)
    assert page._warmup_text(tenth, Timetable.of(100)) == "10 steps, a share of 0.1"
    slower = Timetable.of(100).rescheduled(end=195, from_step=5)  # the other 95 steps take 190
    assert page._warmup_text(tenth, slower) == "15 steps, a share of 0.1"


def test_before_the_first_step_it_says_how_many_tokens_fit():
    state = SimpleNamespace(step=0, tokens=0)
    assert page._tokens_per_step(PretrainOptions(batch_size=8, seq_length="16"), state) == "at most 128"


def test_on_the_way_it_renews_itself_and_has_every_look_so_far(finished):
    _, _, seen = finished
    assert sorted(seen) == list(range(1, STEPS + 1))
    for number, step in enumerate((4, 8, 12), start=1):
        document = seen[step]
        require_self_contained(document)
        assert renews_itself(document) and f"{step} of 12 steps" in document
        assert len(dots(document)) == number
        assert "nats, the loss of training on masked words" in document and "Guesses" not in document


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("seconds", "share", "writings"),
    [(math.inf, 1.0, 1 + LOOKS + 1), (0.0, math.inf, STEPS + LOOKS + 1)],
    ids=["seldom", "often"],
)
def test_it_is_written_at_every_look_and_otherwise_by_the_clock(
    seconds, share, writings, corpus, tmp_path, monkeypatch
):
    written = []

    def write(self, status, *given):
        written.append(status)
        return original(self, status, *given)

    original = RunPage.write
    monkeypatch.setattr(RunPage, "write", write)
    monkeypatch.setattr(page, "REFRESH", seconds)
    monkeypatch.setattr(page, "SHARE", share)
    pretrain(options(corpus), tmp_path / "run", show=False)
    assert written == ["training"] * (writings - 1) + ["finished"]


def test_a_run_that_is_stopped_says_so(corpus, tmp_path):
    def stop(step, values):
        if step == 5:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        pretrain(options(corpus), tmp_path / "run", show=False, on_log=stop)
    document = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert not renews_itself(document) and "5 of 12 steps" in document
    assert "The run has stopped" in document and "are left" not in document


def test_a_left_to_right_run_has_next_words_and_no_guesses(corpus, tmp_path):
    pretrain(options(corpus, left_to_right=True, evaluations=1), tmp_path / "run", show=False)
    document = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "the loss on held-out next words" in document
    assert "Guesses" not in document and "shuffled" not in document


def test_the_least_number_of_held_out_documents_is_explained(tmp_path, capsys):
    text = write_corpus(tmp_path / "text.txt", documents=5)
    pretrain(options(text, held_out=0.05, steps=2, evaluations=1), tmp_path / "run")
    said = "3 documents to train on, 2 held out (the least that has to be, whatever the share),"
    assert said in capsys.readouterr().err
    rows = {row[0]: row[1:] for row in Page((tmp_path / "run" / "report.html").read_text()).rows if row}
    assert rows["held out"][1].startswith("the least that has to be; a share of 0.05 is less")


@pytest.mark.parametrize(("train", "held_out", "is_least"), [(3, 2, True), (38, 2, False), (3, 1, False)])
def test_a_share_that_is_held_out_needs_no_explanation(train, held_out, is_least):
    text = Text(None, None, np.arange(train), np.arange(held_out))
    assert text.holds_out_least(0.05 if held_out == 2 else 0.25) == is_least
