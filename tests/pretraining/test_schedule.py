"""How long sequences a run ends with: what its tokens pay for, what is stored of it, and who is warned."""

import dataclasses
import json
import math
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from command import ends_badly
from small_corpus import write_corpus

from minibert import cli
from minibert.ask.inference import Bert
from minibert.base.errors import DivergedError, InputError, StopTraining
from minibert.base.machine import cores
from minibert.core import config as configuration
from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import prepare
from minibert.hub import load_hf, save_hf
from minibert.hub.checkpoint import latest
from minibert.model.ops import Ops
from minibert.model.params import Head, initialise
from minibert.pretraining import budget, evaluation
from minibert.pretraining.objective import Pretraining
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.predict import evaluate
from minibert.pretraining.preparation import prepare_text
from minibert.pretraining.recipes import RECIPES, SCHEDULES, Stage, further_rate, parse_lengths, schedule_for
from minibert.pretraining.run import pretrain, report_text
from minibert.tokenizer import Tokenizer

PAPER = {size for size, recipe in RECIPES.items() if recipe.paper}
SMALL = {"vocab_size": 120, "batch_size": 2, "held_out": 0.2, "evaluations": 0, "engine": "numpy"}


def longest(schedule):
    return max(length for length, _ in parse_lengths(schedule))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "animals.txt")


@pytest.fixture
def run(corpus, tmp_path):
    """A run that ends with sequences of 16 tokens, of a model with 40 positions."""
    given = SMALL | {"batch_size": 8, "seq_length": "8:0.5,16:0.5", "max_positions": 40, "steps": 4}
    pretrain(PretrainOptions((str(corpus),), **given), tmp_path / "run", show=False)
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def unwarned(monkeypatch):
    """Every test is a process that has not warned yet; so small a text is read a few times only."""
    configuration._warn_untrained.cache_clear()
    monkeypatch.setattr(evaluation, "PASSES", 2)
    monkeypatch.setattr(budget, "CORRECTIONS", ())


def beyond(caught):
    return [str(one.message) for one in caught if "pre-trained on sequences of up to" in str(one.message)]


# the rule


def test_the_more_tokens_a_run_has_the_longer_its_last_sequences():
    tokens = [0, 1e5, 1.4e6, 1.5e6, 4e6, 7e6, 9.9e6, 1e7, 64e6, 1e12]
    found = [longest(schedule_for(lambda _, count=count: count, 512)) for count in tokens]
    assert found == sorted(found)
    assert [length for length, count in zip(found, tokens, strict=True) if 1.5e6 <= count < 1e7] == [64] * 4
    assert [length for length, count in zip(found, tokens, strict=True) if count >= 1e7] == [128] * 3


def test_a_schedule_longer_than_the_positions_is_none_to_choose():
    for positions, expected in ((512, 128), (128, 128), (127, 64), (64, 64), (63, 32), (16, 32)):
        assert longest(schedule_for(lambda _: math.inf, positions)) == expected


def test_every_schedule_begins_with_enough_tokens_to_leave_the_plateau():
    """0.4M tokens at length 10, or the first half of a run that is too short for that."""
    for schedule in SCHEDULES:
        lengths = parse_lengths(schedule.lengths)
        assert lengths[0][0] == 10 and lengths == sorted(lengths)
        assert lengths[0][1] * schedule.tokens >= min(3.5e5, 0.25 * schedule.tokens)


@pytest.mark.parametrize("size", sorted(RECIPES.keys() - PAPER))
def test_with_steps_the_tokens_are_those_of_the_steps(size):
    def decided(steps, **more):
        return PretrainOptions(size=size, steps=steps, **more).resolved()

    batch = RECIPES[size].batch_size
    enough = math.ceil(1e7 / (batch * 128))
    assert (decided(enough - 1).longest, decided(enough).longest) == (64, 128)
    assert decided(enough).tokens_per_step * enough >= 1e7
    assert decided(2 * enough, batch_size=batch // 2).longest == 128
    assert decided(1).longest == 32
    assert decided(enough, max_positions=100).longest == 64
    assert decided(enough, seq_length="16").seq_length == decided(1, seq_length="16").seq_length == "16"


@pytest.mark.parametrize(
    ("size", "like"),
    [
        ("3-192-3", "mini"),  # 192 is nearer to 256 than to 128, as ratios go
        ("3-160-5", "tiny"),
        ("5-512-8", "small"),  # of two sizes of one width the one of the nearest depth
        ("7-512-8", "medium"),
        ("3-768-12", "base"),  # Table 6 of the paper, as base
        ("6-768-3", "base"),
        ("12-1024-16", "base"),
        ("48-1600-25", "large"),
        ("2-128-4", "2-128-4"),
    ],
)
def test_any_shape_is_a_size_with_the_recipe_of_the_nearest(size, like):
    options = PretrainOptions(size=size, steps=100)
    assert options.recipe == RECIPES[like]
    config = options.resolved().model_config(50)
    assert (config.L, config.H, config.A) == tuple(map(int, size.split("-"))) and config.F == 4 * config.H
    assert config.size == size and BertConfig.from_size(size, vocab_size=50).H == config.H


@pytest.mark.parametrize("size", ["0-192-3", "3-192", "3-192-3-1", "3-192-0", "-3-192-3", "huge"])
def test_what_is_no_shape_is_refused_as_a_size(size, capsys, tmp_path):
    told = f"size={size!r} is not a size of BERT; give tiny, mini, small, medium, base, large, or L-H-A such"
    for make in (BertConfig.from_size, lambda size: PretrainOptions(size=size)):
        with pytest.raises(InputError) as caught:
            make(size)
        assert str(caught.value) == f"{told} as 3-192-3, with H a multiple of A."
    error = ends_badly(capsys, 2, "pretrain", f"--size={size}", "--out", str(tmp_path / "out"))
    assert f"--size {size} is not a size of BERT" in error and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("size", "sentence"),
    [
        ("3-192-5", "has a hidden size of 192, which is not a multiple of 5 heads; give one such as 3-192-4"),
        ("2-7-3", "has a hidden size of 7, which is not a multiple of 3 heads; give one such as 2-7-1"),
        ("bert-base", "is not a size of BERT; give base"),
        ("bert-large-uncased", "is not a size of BERT; give large"),
    ],
)
def test_a_size_that_is_nearly_right_is_corrected(size, sentence):
    with pytest.raises(InputError) as caught:
        BertConfig.from_size(size)
    assert str(caught.value) == f"size={size!r} {sentence}."
    assert caught.value.arguments == {"size": size}


@pytest.mark.parametrize("size", sorted(PAPER))
@pytest.mark.parametrize("length", [{"steps": 1}, {"steps": 10**6}, {"minutes": 1.0}])
def test_the_papers_sizes_keep_the_papers_schedule(size, length):
    assert PretrainOptions(size=size, **length).resolved().seq_length == "128:0.9,512:0.1"


def test_the_help_lists_the_schedules(capsys):
    with pytest.raises(SystemExit):
        cli.main(["pretrain", "--help"])
    text = capsys.readouterr().out
    for schedule in SCHEDULES:
        assert re.sub(r"\b0\.", ".", schedule.lengths) in text


# minutes


def clocked(corpus, folder, **given):
    options = PretrainOptions((str(corpus),), **SMALL | given).resolved()
    return Pretraining(options, prepare_text(options, folder, False), Ops())


@pytest.mark.parametrize(("tokens_per_second", "expected"), [(1.5e6, 128), (300e3, 64), (5e3, 32)])
def test_with_minutes_the_lengths_follow_from_the_speed(
    corpus, tmp_path, monkeypatch, tokens_per_second, expected
):
    rehearsed = []

    def seconds_per_step(task, state, seq_length, *_):
        rehearsed.append(seq_length)
        return task.options.tokens_per_step / tokens_per_second

    monkeypatch.setattr(budget, "seconds_per_step", seconds_per_step)
    monkeypatch.setattr(budget.time, "monotonic", lambda: 1000.0)
    task = clocked(corpus, tmp_path, minutes=0.5)
    assert task.options.seq_length is None
    settled = budget.resolve_auto(task, task.start(), 1000.0, print)
    assert settled.options.longest == expected and rehearsed == [128]
    assert settled.options == dataclasses.replace(task.options, seq_length=settled.options.seq_length)
    given = clocked(corpus, tmp_path, minutes=0.5, seq_length="16")
    assert budget.resolve_auto(given, given.start(), 1000.0, print).options == given.options
    assert rehearsed == [128]


def test_a_long_run_is_rehearsed_no_longer_than_a_short_one(corpus, tmp_path, monkeypatch):
    trials = []

    def seconds_per_step(task, state, seq_length, trial, *_):
        trials.append(trial)
        return 1e-3

    monkeypatch.setattr(budget, "seconds_per_step", seconds_per_step)
    monkeypatch.setattr(budget, "evaluation_seconds", lambda *_: (3.0, 1.0))
    for minutes, most in ((8, 0.03 * 480), (600, 20.0)):
        task = clocked(corpus, tmp_path, minutes=minutes)
        trials.clear()
        said = []
        settled = budget.resolve_auto(task, task.start(), budget.time.monotonic(), said.append)
        assert trials == [most / len(task.options.lengths)]
        budget.affordable_steps(settled, settled.start(), budget.time.monotonic(), said.append)
        assert len(trials) == len(settled.options.lengths) == 5  # the longest of them was known
        assert sum(trials) == pytest.approx(most)
        parts = (
            f"128, for some {most / 5:.2g} s.",
            f"10, 16, 32, 64, for some {0.8 * most:.2g} s.",
        )
        assert said[:2] == [f"Measuring the speed at lengths of {part}" for part in parts]


@pytest.mark.thorough
def test_what_the_speed_decided_is_stored_and_gone_on_with(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "seconds_per_step", lambda task, *_: task.options.tokens_per_step / 1e5)
    monkeypatch.setattr(
        budget, "affordable_steps", lambda *_: budget.Afforded(6, 100.0, dict.fromkeys((10, 16, 32, 64), 1.0))
    )
    options = PretrainOptions((str(corpus),), minutes=0.5, **SMALL)
    out = tmp_path / "run"
    report = pretrain(options, out, show=False)
    stored = PretrainOptions.load(out / "training.json")
    assert longest(stored.seq_length) == report["trained_length"] == 64
    monkeypatch.setattr(budget, "seconds_per_step", lambda *_: pytest.fail("measured again"))
    for again in (options, PretrainOptions.resumed(out / "training.json")):
        pretrain(again, out, resume=True, show=False)
    longer = PretrainOptions.resumed(out / "training.json", steps=10**6)
    assert longer.seq_length == stored.seq_length  # though so many steps would pay for more
    assert PretrainOptions.load(out / "training.json") == stored


def test_a_run_that_ended_before_its_lengths_were_decided_decides_them_later(corpus, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    out = tmp_path / "run"
    monkeypatch.setattr(budget, "seconds_per_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pretrain(PretrainOptions((str(corpus),), minutes=0.5, **SMALL), out, show=False)
    assert PretrainOptions.load(out / "training.json").seq_length is None
    monkeypatch.setattr(budget, "seconds_per_step", lambda *_: 100.0)
    monkeypatch.setattr(
        budget, "affordable_steps", lambda *_: budget.Afforded(3, 100.0, dict.fromkeys((10, 16, 32), 1.0))
    )
    resumed = PretrainOptions.resumed(out / "training.json")
    assert pretrain(resumed, out, resume=True, show=False)["trained_length"] == 32


def test_a_run_of_one_step_is_one_of_one_step(corpus, tmp_path, capsys):
    report = pretrain(PretrainOptions((str(corpus),), steps=1, seq_length="16", **SMALL), tmp_path / "run")
    assert report_text(report).count("\n1 step, ") == 1
    assert "; 1 step of up to 32 tokens (1 of 16 long)." in capsys.readouterr().err
    assert (report["engine"], report["dtype"], report["cores"]) == ("numpy", "float32", cores())


def test_a_run_of_minutes_says_once_and_at_its_end_that_the_machine_changed(run):
    report = json.loads((run / "report.json").read_text())
    assert "The machine became" not in report_text(report)
    report |= {"steps": 20_740, "planned_steps": 15_207}
    assert "The machine became faster on the way: 15,207 steps had been planned." in report_text(report)
    report |= {"steps": 10_000}
    assert report_text(report).count("The machine became slower on the way") == 1


def test_a_rehearsal_that_diverges_names_the_step_that_comes_next(corpus, tmp_path):
    options = PretrainOptions((str(corpus),), **SMALL, seq_length="8", steps=4).resolved()
    task = Pretraining(options, prepare_text(options, tmp_path, show=False), Ops())
    for done in (0, 6):
        state = task.start()
        state.step = done
        state.params.flat[:] = np.nan
        with pytest.raises(
            DivergedError, match=f"The loss of step {done + 1} is nan at learning rate 1.00e-06"
        ):
            budget.seconds_per_step(task, state, 8, 0.0, print)


# what was trained


def test_the_report_and_the_model_know_how_long_sequences_were(run):
    report = json.loads((run / "report.json").read_text())
    assert "Trained on sequences of up to 16 tokens." in report_text(report)
    assert json.loads((run / "config.json").read_text())["trained_length"] == 16
    assert load_hf(run)[0].trained_length == 16


def test_a_run_ended_by_on_log_blames_no_machine_and_knows_how_far_it_has_come(corpus, tmp_path):
    def on_log(step, values):
        raise StopTraining

    given = SMALL | {"seq_length": "8:0.5,16:0.5", "steps": 4}
    report = pretrain(PretrainOptions((str(corpus),), **given), tmp_path / "run", show=False, on_log=on_log)
    lines = report_text(report).splitlines()
    assert "It was ended early: 4 steps had been planned." in lines
    assert "Trained on sequences of up to 8 tokens." in lines
    assert not any("The machine became" in line for line in lines)


def test_an_unfinished_run_knows_how_far_it_has_come(corpus, tmp_path, monkeypatch):
    given = SMALL | {"seq_length": "8:0.5,16:0.5", "steps": 8, "checkpoint_steps": 1}
    out, real = tmp_path / "run", Pretraining.config_after

    def interrupted(self, state):
        if state.step == 4:
            raise KeyboardInterrupt
        return real(self, state)

    monkeypatch.setattr(Pretraining, "config_after", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pretrain(PretrainOptions((str(corpus),), **given), out, show=False)
    assert load_hf(out)[0].trained_length == 8
    monkeypatch.undo()
    pretrain(PretrainOptions.resumed(out / "training.json"), out, resume=True, show=False)
    assert load_hf(out)[0].trained_length == 16


@pytest.mark.thorough
def test_training_further_keeps_what_was_longer_and_claims_nothing_of_models_of_others(run, corpus, tmp_path):
    given = SMALL | {"steps": 2}
    del given["vocab_size"]
    for length, expected in (("8", 16), ("32", 32)):
        out = tmp_path / length
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pretrain(PretrainOptions((str(corpus),), model=run, seq_length=length, **given), out, show=False)
        assert load_hf(out)[0].trained_length == expected and not beyond(caught)
    fields = json.loads((run / "config.json").read_text())
    del fields["trained_length"]  # as in any other BERT
    (run / "config.json").write_text(json.dumps(fields))
    out = tmp_path / "released"
    pretrain(PretrainOptions((str(corpus),), model=run, seq_length="8", **given), out, show=False)
    assert load_hf(out)[0].trained_length is None


def test_a_trained_length_that_is_none_is_refused():
    for wrong in (0, "16", True, 1.5):
        with pytest.raises(InputError, match="trained_length=.* is not a positive whole number"):
            BertConfig(trained_length=wrong)


def ids(count):
    return Batch.pack([Sequence([2, *[7] * (count - 2), 3], [0] * count)])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "read",
    [
        lambda run, count: Bert.from_pretrained(run).encode(ids(count)),
        lambda run, count: Bert.from_pretrained(run).fill_mask("the cat " * ((count - 4) // 2) + "[MASK]."),
        lambda run, count: evaluate(run, seq_length=count, targets=10),
    ],
    ids=["encode", "fill-mask", "evaluate"],
)
def test_reading_further_than_the_model_was_trained_warns_once(run, read):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read(run, 16)
        assert not beyond(caught)
        for _ in range(2):
            read(run, 24)
    (sentence,) = beyond(caught)
    assert sentence.startswith("This model was pre-trained on sequences of up to 16 tokens and does worse on")


def test_the_command_warns_on_the_error_stream(run, capsys):
    assert cli.main(["fill-mask", "--model", str(run), "the cat " * 10 + "[MASK]."]) == 0
    out, err = capsys.readouterr()
    assert err.count("pre-trained on sequences of up to 16 tokens") == 1 and "pre-trained" not in out


def test_of_a_model_from_elsewhere_nothing_is_known_and_nothing_said(tmp_path):
    config = BertConfig.from_size("tiny", vocab_size=30, max_position_embeddings=40)
    save_hf(tmp_path, config, initialise(config, 0))
    assert "trained_length" not in json.loads((tmp_path / "config.json").read_text())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Bert.from_pretrained(tmp_path).encode(ids(40))
    assert not beyond(caught)


@pytest.mark.parametrize(("max_length", "warns"), [(16, False), (17, True)])
def test_preparing_examples_beyond_the_trained_length_warns(max_length, warns, run, tmp_path):
    rows = [f"{'the cat ' * 9}{word}\t{word}" for word in ("sings", "runs") for _ in range(6)]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    options = FinetuneOptions("classify", str(tmp_path), str(run), max_length=max_length)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepare(options.resolved())
    assert len(beyond(caught)) == warns


@pytest.mark.thorough
def test_fine_tuning_and_predicting_beyond_the_trained_length_warn_once(run, tmp_path, capsys):
    rows = ["text\tlabel"] + [
        f"{'the cat ' * 9}{word}\t{word}" for word in ("sings", "runs") for _ in range(6)
    ]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    words = (
        f"finetune classify --data {tmp_path} --model {run} --out {tmp_path}/out --epochs 1 --batch-size 4"
    )
    assert cli.main([*words.split(), "--max-length", "16", "--quiet"]) == 0
    assert "pre-trained on" not in capsys.readouterr().err
    words = words.replace("/out", "/further")
    assert cli.main([*words.split(), "--max-length", "24", "--quiet"]) == 0
    assert capsys.readouterr().err.count("pre-trained on sequences of up to 16 tokens") == 1
    configuration._warn_untrained.cache_clear()
    assert cli.main(["classify", "--model", f"{tmp_path}/further", "the cat " * 10]) == 0
    assert capsys.readouterr().err.count("pre-trained on sequences of up to 16 tokens") == 1


# weights without a masked-LM head


@pytest.fixture
def headless(run, tmp_path):
    """The encoder of a run, fine-tuned: a head of two classes in place of those of pre-training."""
    config, params, _ = load_hf(run, head=Head("classify", 2))
    save_hf(tmp_path / "headless", config, params)
    Tokenizer.from_pretrained(run).save_pretrained(tmp_path / "headless")
    return tmp_path / "headless"


def test_a_new_head_is_announced_and_begins_at_the_log_unigram(headless, run, corpus, tmp_path):
    given = SMALL | {"steps": 2, "seq_length": "16"}
    del given["vocab_size"]
    options = PretrainOptions((str(corpus),), model=headless, **given).resolved()
    task = Pretraining(options, prepare_text(options, tmp_path / "task", False), Ops())
    with pytest.warns(UserWarning, match="headless' has no masked-LM head: .* at a rate of 0.0004"):
        state = task.start()
    np.testing.assert_allclose(state.params["mlm.output_bias"], task.text.log_unigram(), rtol=1e-6)
    np.testing.assert_array_equal(state.params["embeddings.word"], load_hf(run)[1]["embeddings.word"])


@pytest.mark.parametrize(
    ("size", "rate", "with_a_new_head"),
    [("base", 2e-5, 3e-4), ("6-384-12", 8e-5, 3e-4), ("4-192-6", 2e-4, 3e-4), ("2-128-4", 4e-4, 4e-4)],
)
def test_a_model_is_trained_further_at_a_fifth_of_the_rate_of_its_size(size, rate, with_a_new_head):
    model = BertConfig.from_size(size)
    assert further_rate(model) == rate
    assert further_rate(model, new_head=True) == with_a_new_head


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("source", "given", "rate"),
    [
        ("headless", {}, 4e-4),
        ("headless", {"learning_rate": 1e-5}, 1e-5),
        ("headless", {"optimizer": "lamb"}, 4e-3),
        ("run", {}, 4e-4),
    ],
)
def test_a_new_head_has_a_rate_of_its_own(source, given, rate, corpus, tmp_path, request):
    folder = request.getfixturevalue(source)
    given = SMALL | {"steps": 2, "seq_length": "16"} | given
    del given["vocab_size"]
    out = tmp_path / "further"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = pretrain(PretrainOptions((str(corpus),), model=folder, **given), out, show=False)
    assert report["new_head"] == (source == "headless")  # which the doctor asks
    assert PretrainOptions.load(out / "training.json").learning_rate == pytest.approx(rate)
    announced = [str(one.message) for one in caught if "no masked-LM head" in str(one.message)]
    assert len(announced) == (source == "headless") and all(f"{rate:g}" in one for one in announced)
    assert latest(out / "checkpoints").state["plan"]["new_head"] == (source == "headless")
    longer = PretrainOptions.resumed(out / "training.json", steps=3)
    assert pretrain(longer, out, resume=True, show=False)["steps"] == 3


@pytest.mark.parametrize(
    ("step", "position", "longer"),
    [
        (0, None, {4, 6}),
        (2, (8, 0, 0), {4, 6}),
        (4, (8, 0, 0), {4, 6}),  # ended right before longer sequences
        (4, (16, 0, 0), {6}),
        (5, (16, 0, 0), {6}),
        (6, (32, 0, 0), set()),
        (6, (16, 0, 0), {6}),
    ],
)
def test_sequences_become_longer_at_steps_to_come_wherever_a_run_was_ended(step, position, longer):
    task = SimpleNamespace(stages=lambda timetable: [Stage(8, 0, 4), Stage(16, 4, 6), Stage(32, 6, 8)])
    state = SimpleNamespace(step=step, position=position, plan={"total_steps": 8})
    assert Pretraining.lengthening_steps(task, state) == longer
