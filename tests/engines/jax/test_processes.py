"""Several processes as one training, over loopback: the figures of one, whatever ends them in between."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from command import PATIENCE, ROOT, steps_done, wait_for_step
from small_corpus import write_corpus

from minibert.core.config import BertConfig
from minibert.hub import save_hf
from minibert.hub.checkpoint import checkpoints, latest
from minibert.model.params import initialise
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import learn_vocabulary
from minibert.pretraining.run import pretrain
from minibert.training.runlog import SPEEDS, read_metrics

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.slow

SAME, STOPPED_WITHIN = 1e-10, 60
STEPS = 160
CLUSTER = 61440  # the port for job 0 of SLURM's, as JAX has it


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "animals.txt")


@pytest.fixture(scope="module")
def tiny(corpus, tmp_path_factory):
    """A model of one layer, soon compiled, to start from."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = learn_vocabulary([corpus], 120, show=False)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=24, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16,
    )  # fmt: skip
    save_hf(folder, config, initialise(config, 0, np.float32))
    tokenizer.save_pretrained(folder)
    return folder


def flags_for(corpus, tiny, out):
    """Of a new run."""
    return [
        corpus, f"--model={tiny}", f"--out={out}", "--engine=jax", "--dtype=float64", "--dropout=0.1",
        "--seq-length=16", "--batch-size=10", "--held-out=0.2", "--evaluations=4", "--save-every=10",
        "--keep=0", f"--steps={STEPS}", "--lr=2e-3",
    ]  # fmt: skip


def free_port():
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


def process(words, patience="", **environment):
    """A process with one small device; `patience` sets how long it waits for others."""
    known = {
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
    }
    patience = f"from minibert.engines.jax import cluster; cluster.{patience}\n" if patience else ""
    script = f"{patience}import sys\nfrom minibert import cli\nsys.exit(cli.main())"
    command = [sys.executable, "-c", script, "pretrain", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=os.environ | known | environment, **pipes)


def together(count, words, own=None, patience=""):
    """So many processes of one run; `own` has further words of each."""
    place = [f"--coordinator=localhost:{free_port()}", f"--processes={count}"]
    own = own or [[]] * count
    return [process([*words, *place, f"--process-id={i}", *own[i]], patience) for i in range(count)]


def as_slurm_starts(count, words):
    """The same as a job of SLURM's: what is said to each stands in its environment."""
    job = next(number for number in range(1, 4000) if _is_free(CLUSTER + number))
    told = {"SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": count}
    own = [told | {"SLURM_PROCID": i, "SLURM_LOCALID": i} for i in range(count)]
    return [
        process([*words, "--coordinator=auto"], **{name: str(value) for name, value in one.items()})
        for one in own
    ]


def _is_free(port):
    with socket.socket() as one:
        return one.connect_ex(("localhost", port)) != 0


def ended(processes, seconds=PATIENCE):
    """Exit status, output and errors of each, which have to end."""
    deadline = time.monotonic() + seconds
    try:
        found = [one.communicate(timeout=max(0.1, deadline - time.monotonic())) for one in processes]
    finally:
        for one in processes:
            one.kill()
    return [(one.returncode, *streams) for one, streams in zip(processes, found, strict=True)]


def sentences(errors):
    """What a process of ours complains of, among lines of JAX's own."""
    assert "Traceback" not in errors
    return re.findall(r"^minibert: (.*)$", errors, re.MULTILINE)


def require_figures_of(expected, out, least):
    """The log has the figures of NumPy's run for every step, and has come to `least` steps."""
    found = read_metrics(out)
    assert max(line["step"] for line in found) >= least
    assert [line["step"] for line in found] == [line["step"] for line in expected[: len(found)]]
    for line, right in zip(found, expected, strict=False):
        names = right.keys() - {"seconds", *SPEEDS}
        assert names == line.keys() - {"seconds", *SPEEDS}
        for name in names:
            assert abs(line[name] - right[name]) <= SAME * max(1, abs(right[name])), (line["step"], name)
        assert line.get("tokens") == right.get("tokens")


def test_interrupted_runs_of_several_processes_equal_that_of_one(corpus, tiny, tmp_path):
    alone, out = tmp_path / "alone", tmp_path / "many"
    pretrain(
        PretrainOptions(
            corpus=(str(corpus),), model=str(tiny), dtype="float64", dropout=0.1, seq_length="16",
            batch_size=10, held_out=0.2, evaluations=4, checkpoint_steps=10, keep=0, steps=STEPS,
            learning_rate=2e-3, engine="numpy",
        ),
        alone,
        show=False,
    )  # fmt: skip
    expected = read_metrics(alone)
    assert sum("held_out_loss" in line for line in expected) == 4

    # Two, as SLURM starts them: 50 steps, then Ctrl-C to one of them stops both, with a checkpoint.
    two = as_slurm_starts(2, flags_for(corpus, tiny, out))
    wait_for_step(two[0], out, 50)
    two[1].send_signal(signal.SIGINT)
    (status, _, errors), (other, nothing, other_errors) = ended(two)
    assert (status, other, nothing) == (130, 130, ""), errors + other_errors
    assert "a checkpoint is saved" in errors and "--resume" in errors
    assert sentences(errors + other_errors) == []
    require_figures_of(expected, out, least=50)
    stopped = latest(out / "checkpoints").state["step"]
    assert 50 <= stopped == steps_done(out) < 100

    # Four go on: 50 steps and more, until one is killed.
    four = together(4, ["--resume", f"--out={out}"])
    late = stopped + 50
    wait_for_step(four[0], out, late + 10 - late % 10 + 1)  # a checkpoint behind them
    four[2].kill()
    killed = time.monotonic()
    found = ended(four, STOPPED_WITHIN)
    assert time.monotonic() - killed < STOPPED_WITHIN
    assert [status for status, _, _ in found] == [1, 1, -signal.SIGKILL, 1], found
    for number in (0, 1, 3):
        (sentence,) = sentences(found[number][2])
        assert "the last checkpoint is intact" in sentence.lower()
        assert "to resume it (with --resume)" in sentence or "to resume it (with `resume`)" in sentence
    require_figures_of(expected, out, least=late)
    assert late <= latest(out / "checkpoints").state["step"] < STEPS

    # Two go on to the end, each with a part of the parameters.
    (status, output, errors), (other, nothing, _) = ended(
        together(2, ["--resume", f"--out={out}", "--fsdp", "--json"])
    )
    assert (status, other, nothing) == (0, 0, ""), errors
    require_figures_of(expected, out, least=STEPS)
    assert len(read_metrics(out)) == len(expected)
    report, right = json.loads(output), json.loads((alone / "report.json").read_text())
    assert report["steps"] == STEPS and report["tokens"] == right["tokens"]
    for name, value in right["held_out"].items():
        assert abs(report["held_out"][name] - value) <= SAME * max(1, value), name
    ours, theirs = (latest(one / "checkpoints") for one in (out, alone))
    for name in ("m", "v"):
        assert np.abs(getattr(ours, name) - getattr(theirs, name)).max() <= SAME
    assert np.abs(ours.params.flat - theirs.params.flat).max() <= SAME

    # Only the first process of each sitting has written.
    assert len(list((out / "tensorboard").iterdir())) == 3
    by_the_command = {"explorer.html"}
    assert {path.name for path in out.iterdir()} == {path.name for path in alone.iterdir()} | by_the_command
    assert not list(out.rglob(".*.tmp"))
    every_ten = {*range(0, STEPS + 1, 10), stopped}
    assert [int(path.stem[-9:]) for path in checkpoints(out / "checkpoints")] == sorted(every_ten)


def test_processes_with_different_options_say_what_differs(corpus, tiny, tmp_path):
    out = tmp_path / "run"
    found = ended(together(2, flags_for(corpus, tiny, out), [["--batch-size=4"], ["--seed=1"]]))
    assert [status for status, _, _ in found] == [2, 2], found
    for _, _, errors in found:
        assert sentences(errors) == [
            "Process 0 has --batch-size 4, --seed 0, and process 1 has --batch-size 10, --seed 1; give all "
            "of them the same."
        ]
    assert not out.exists()


@pytest.mark.parametrize("number", [0, 1])
def test_where_the_first_process_can_not_listen_or_nobody_is_there_is_a_sentence(number, tmp_path):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1] if number == 0 else free_port()
        words = [f"--coordinator=localhost:{port}", "--processes=2", f"--process-id={number}"]
        one = process(["--engine=jax", f"--out={tmp_path / 'run'}", *words], patience="WAIT = 2")
        ((status, output, errors),) = ended([one])
    said = (
        "process 0 can't listen there"
        if number == 0
        else f"Not all of the processes came to localhost:{port}"
    )
    assert said in sentences(errors)[-1]
    assert (status, output) == (2 - number, "")
    assert not (tmp_path / "run").exists()


def test_what_the_first_process_fails_of_ends_the_others_with_its_reason(tiny, tmp_path):
    out = tmp_path / "run"
    found = ended(together(2, flags_for(tmp_path / "nowhere.txt", tiny, out)), STOPPED_WITHIN)
    assert [status for status, _, _ in found] == [2, 1], found
    (sentence,), (other,) = (sentences(errors) for _, _, errors in found)
    assert "nowhere.txt" in sentence
    assert other.startswith(f"Process 0 of 2 has stopped ({sentence.rstrip('.')}), so this one, 1, stops")
    assert not out.exists()


@pytest.mark.parametrize(
    ("number", "sent", "said"),
    [
        (0, signal.SIGKILL, "Process 0 of 2 can't be reached"),
        (1, signal.SIGSTOP, "Process 1 of 2 has not been heard of for 8 seconds"),
    ],
)
def test_without_the_first_process_or_a_word_of_another_there_is_an_end(
    number, sent, said, corpus, tiny, tmp_path
):
    out = tmp_path / "run"
    two = together(2, flags_for(corpus, tiny, out), patience="SILENCE = 8")
    while not (out / "training.json").exists() and two[0].poll() is None:
        time.sleep(0.05)
    two[number].send_signal(sent)
    other = two.pop(1 - number)
    try:
        ((status, _, errors),) = ended([other], STOPPED_WITHIN)
    finally:
        two[0].kill()
        two[0].communicate()
    assert status == 1 and said in sentences(errors)[-1]
