"""Ctrl-C in whatever a run does: nothing is lost, and one sentence says how to go on."""

import re
import signal

import pytest

import minibert
from minibert import cli
from minibert.pretraining.objective import Pretraining

pytestmark = pytest.mark.usefixtures("few_passes")
FLAGS = "--vocab-size=120 --seq-length=16 --batch-size=4 --max-positions=16 --steps=4 --evaluations=2"
FLAGS += " --threads=1"
OPTIONS = dict(
    vocab_size=120, seq_length="16", batch_size=4, max_positions=16, steps=4, evaluations=2, threads=1
)  # fmt: skip
PLACES = {
    "vocabulary": "minibert.pretraining.preparation.count_files",
    "pieces": "minibert.pretraining.preparation.learn_vocab",
    "shards": "minibert.pretraining.preparation.write_shards",
    "evaluation": "minibert.pretraining.objective.score",
    "the end": "minibert.pretraining.run._measured",
    "guesses": "minibert.pretraining.run._examples",
}


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory, few_passes):
    out = tmp_path_factory.mktemp("runs") / "whole"
    return minibert.pretrain(corpus, **OPTIONS, out=out, show=False)


def same_bytes(run, whole):
    for name in ("model.safetensors", "vocab.txt", "shards/tokens.bin", "training.json"):
        if (run / name).read_bytes() != (whole.folder / name).read_bytes():
            return False
    return minibert.Run.open(run).report["held_out"] == whole.report["held_out"]


def interrupt_at(monkeypatch, place):
    """Press Ctrl-C when this is called for the first time."""
    pressed = []
    name = PLACES[place]
    module, _, function = name.rpartition(".")
    original = getattr(__import__(module, fromlist=[function]), function)

    def press(*args, **kwargs):
        if not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)  # a run that is training finishes its step first
        return original(*args, **kwargs)

    monkeypatch.setattr(name, press)


@pytest.mark.representatives(place="vocabulary")
@pytest.mark.parametrize("place", PLACES)
def test_command_says_once_how_to_go_on_and_loses_nothing(
    corpus, tmp_path, monkeypatch, capsys, whole, place
):
    out = tmp_path / "a run"
    with monkeypatch.context() as patch:
        interrupt_at(patch, place)
        assert cli.main(["pretrain", str(corpus), *FLAGS.split(), "--out", str(out)]) == 130
    said = capsys.readouterr().err
    sentences = re.findall("go on with: (.*)", said)
    assert sentences == [f"minibert pretrain --resume --out '{out}'"]
    assert cli.main(["pretrain", "--resume", "--out", str(out), "--quiet"]) == 0
    assert same_bytes(out, whole)


@pytest.mark.representatives(place="vocabulary")
@pytest.mark.parametrize("place", PLACES)
def test_python_says_it_as_a_call_that_runs(corpus, tmp_path, monkeypatch, capsys, whole, place):
    with monkeypatch.context() as patch:
        interrupt_at(patch, place)
        with pytest.raises(KeyboardInterrupt) as stopped:
            minibert.pretrain(corpus, **OPTIONS, out=tmp_path / "run")
    assert "go on with" not in capsys.readouterr().err  # no command in answer to a call
    (call,) = re.findall(r"minibert\.pretrain\(.*\)", str(stopped.value))
    assert call == f"minibert.pretrain(out={str(tmp_path / 'run')!r}, resume=True)"
    run = eval(call, {"minibert": minibert})
    assert same_bytes(run.folder, whole)


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["the end", "guesses"])
def test_page_of_a_run_that_was_stopped_at_the_end_says_so(corpus, tmp_path, monkeypatch, place):
    with monkeypatch.context() as patch:
        interrupt_at(patch, place)
        with pytest.raises(KeyboardInterrupt):
            minibert.pretrain(corpus, **OPTIONS, out=tmp_path / "run", show=False)
    assert "The run has stopped" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.thorough
def test_second_press_stops_an_evaluation_at_once(corpus, tmp_path, monkeypatch, whole):
    with monkeypatch.context() as patch:

        def press_twice(*_):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            pytest.fail("it went on")

        patch.setattr(Pretraining, "score", press_twice)
        with pytest.raises(KeyboardInterrupt):
            minibert.pretrain(corpus, **OPTIONS, out=tmp_path / "run", show=False)
    run = minibert.pretrain(out=tmp_path / "run", resume=True, show=False)
    assert same_bytes(run.folder, whole)
