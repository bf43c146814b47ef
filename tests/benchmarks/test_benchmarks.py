"""What the benchmarks of speed count, choose and write; who is measured is compared in tests/oracle."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
from types import SimpleNamespace

import attention
import cores
import finetune
import inference
import numpy as np
import ops
import peak
import pytest
import step
import versions
from paths import ROOT
from peers import bench, children, machine, operations, ops_report, report, ways
from peers.ops_minibert import Cpp, Reference
from peers.train_minibert import Minibert
from peers.work import PHRASES, Rectangle, Work, weights

from minibert import engines
from minibert.base.errors import InputError
from minibert.core import bert
from minibert.core.config import BertConfig
from minibert.engines.flops import encoder_operations, layer_operations, step_operations
from minibert.model.ops import Ops
from minibert.model.params import Parameters

SMALL = BertConfig(
    vocab_size=99,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=37,
    max_position_embeddings=40,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
RAGGED = np.array([1, 2, 7, 24])


class Counting(Ops):
    """Adds up the matrix products that it is asked for."""

    operations = 0

    def linear(self, x, weight, bias):
        self.operations += 2 * x.shape[0] * weight.size
        return super().linear(x, weight, bias)

    def linear_backward(self, dy, saved):
        dx, dweight, dbias = super().linear_backward(dy, saved)
        self.operations += 2 * 2 * dy.shape[0] * dweight.size
        return dx, dweight, dbias

    def attention(self, q, k, v, cu_seqlens, *rest):
        self.operations += self.of_attention(q, cu_seqlens)
        return super().attention(q, k, v, cu_seqlens, *rest)

    def attention_backward(self, dy, saved):
        self.operations += 2 * self.of_attention(saved.q, saved.cu_seqlens)
        return super().attention_backward(dy, saved)

    def of_attention(self, q, cu_seqlens):
        return sum(2 * 2 * int(n) ** 2 * q.shape[1] * q.shape[2] for n in np.diff(cu_seqlens))


def test_useful_operations_are_those_of_a_hand_count():
    # T=34, sum of squares 630, M=4. A layer: 2 34 (4 24^2 + 2 24 37) + 4 630 24.
    layer = 2 * 34 * (2304 + 1776) + 4 * 630 * 24
    assert encoder_operations(SMALL, RAGGED) == 2 * layer == 675_840
    # Of the last layer 8 rows are read, 5 of them in the longest sequence: 1 + 2 + 7 + 5 24 = 130 pairs.
    last = 2 * 34 * 2 * 24**2 + 2 * 8 * (2 * 24**2 + 2 * 24 * 37) + 4 * 130 * 24
    assert encoder_operations(SMALL, RAGGED, np.array([1, 1, 1, 5])) == layer + last
    head = 2 * 4 * 24 * (24 + 99)
    pooler, next_sentence = 2 * 4 * 24 * 24, 2 * 4 * 24 * 2
    found = step_operations(SMALL, RAGGED, np.array([0, 0, 0, 4]))
    assert found == 3 * (layer + last + head + pooler + next_sentence)
    every = step_operations(SMALL, RAGGED, RAGGED - 1)
    assert every == 3 * (2 * layer + 2 * 30 * 24 * (24 + 99) + pooler + next_sentence)


def test_useful_operations_of_mini_are_the_published_ones():
    work = Work("mini", 128, 32)  # 5,510 tokens/s of it were 151 GFLOP/s, all rows of all layers counted
    config, lengths = work.config(0.0), work.sequence_lengths()
    rows = work.make_batch(config).masked_counts + 1
    left_out = 3 * (layer_operations(config, lengths) - layer_operations(config, lengths, rows))
    assert 5510 * (step.operations(work) + left_out) / (32 * 128) / 1e9 == pytest.approx(151, rel=0.01)


@pytest.mark.parametrize("lengths", ["full", "phrases"])
def test_useful_operations_are_the_matrix_products_of_the_reference(lengths):
    work = Work("tiny", 24, 6, lengths)
    batch, ops = work.make_batch(SMALL), Counting()
    params = Parameters(SMALL, weights(SMALL))
    grads = params.zeros_like()
    _, saved = bert.pretraining_loss(ops, SMALL, params.tree, batch)
    bert.pretraining_loss_backward(ops, SMALL, saved, params.tree, grads.tree)
    vain = batch.lengths - batch.masked_counts - 1  # they ask in the reference's last layer; nobody listens
    in_vain = 2 * int(vain.sum()) * SMALL.H**2 + 2 * 2 * int((vain * batch.lengths).sum()) * SMALL.H
    assert ops.operations == step_operations(SMALL, batch.lengths, batch.masked_counts) + 3 * in_vain


def test_batches_are_valid_and_mask_15_percent():
    work = Work("tiny", 128, 16)
    config = work.config(0.1)
    assert (config.V, config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (30522, 0.1, 0.1)
    batch = work.make_batch(config)
    batch.validate(config)
    assert (batch.T, batch.S, batch.M) == (2048, 16, 16 * 19)
    assert (batch.input_ids > 0).all() and (batch.input_ids[batch.masked_rows] == 103).all()
    assert batch.next_sentence_labels.tolist() == [0, 1] * 8


def test_phrases_have_the_lengths_of_sst_2():
    lengths = Work("tiny", 64, 64, "phrases").sequence_lengths()
    assert sorted(lengths) == list(PHRASES)
    assert np.mean(PHRASES) == pytest.approx(13.3, abs=0.05)
    assert Work("tiny", 64, 256, "phrases").sequence_lengths().mean() == pytest.approx(13.3, abs=0.05)
    assert Work("tiny", 16, 64, "phrases").sequence_lengths().max() == 16


def test_padded_rectangle_holds_the_flat_batch():
    batch = Work("tiny", 24, 9, "phrases").make_batch(SMALL)
    padded = Rectangle.of(batch)
    assert padded.has_padding and padded.real.sum() == batch.T
    np.testing.assert_array_equal(padded.input_ids[padded.real], batch.input_ids)
    np.testing.assert_array_equal(padded.token_type_ids[padded.real], batch.token_type_ids)
    np.testing.assert_array_equal(padded.labels.ravel()[padded.masked], batch.masked_labels)
    assert (padded.labels != -100).sum() == batch.M
    assert not padded.input_ids[~padded.real].any()
    assert not Rectangle.of(Work("tiny", 24, 2).make_batch(SMALL)).has_padding


def test_wrong_losses_and_states_are_complained_of():
    steps = [(10.0, 2.0), (9.5, 1.9)]
    assert step.complaint(steps, steps, "float32") is None
    assert step.complaint([(10.01, 2.0), (9.5, 1.9)], steps, "bfloat16") is None
    for wrong, what in (
        ([(10.01, 2.0), (9.5, 1.9)], "loss"),
        ([(10.0, 2.1), (9.5, 1.9)], "gradient norm"),
        ([(10.0, 2.0), (9.6, 1.9)], "loss after an update"),
        ([(float("nan"), 2.0), (9.5, 1.9)], "loss"),
    ):
        assert step.complaint(wrong, steps, "float32").startswith(f"its {what} is ")
    states = np.ones((3, 4)), np.ones((1, 4))
    assert inference.complaint(states, states, "float32") is None
    assert "hidden states have another" in inference.complaint((states[1], states[1]), states, "float32")
    assert "pooled vectors are 0.5" in inference.complaint((states[0], states[1] / 2), states, "float32")
    near = states[0], states[1] * 0.7
    assert "pooled vectors are 0.3 (0.3) away" in inference.complaint(near, states, "int8")
    assert inference.errors(near, states) == pytest.approx({"hidden states": 0, "pooled vectors": 0.3})


def measured(engine, seconds, **changes):
    """A row as a run makes it: 1,000 tokens and 10 billion operations a run."""
    made = report.row(
        Work("tiny", 128, 64),
        engine,
        "float32",
        2,
        [(s, 2.0) for s in seconds],
        10_000_000_000,
        1000,
        100.0,
        peak_rss_mb=300.0,
        imported_rss_mb=50.0,
        kept_bytes=16,
        parameters=5_000_000,
        machine="a machine",
        quick=False,
        busy=None,
    )
    return made | changes


def test_rows_have_medians_and_the_promised_keys():
    row = measured("cpp", [0.2, 0.1, 0.9])
    for key, value in {
        "engine": "cpp",
        "dtype": "float32",
        "size": "tiny",
        "seq": 128,
        "batch": 64,
        "tokens_per_second": 5000.0,
        "useful_gflops": 50.0,
        "peak_share": 0.5,
        "peak_rss_mb": 300.0,
    }.items():
        assert row[key] == pytest.approx(value) if isinstance(value, float) else row[key] == value
    assert json.loads(json.dumps(row)) == row


def test_tables_show_speed_ratios_and_memory():
    rows = [
        measured("numpy", [1.0]),
        measured("cpp", [0.2]),
        measured("Hugging Face", [2.0]),
        measured("JAX", [0.5], peak_share=None),
        measured("PyTorch tuned", [0.8]),
        measured("cpp", [0.1], size="mini"),
        measured("cpp", [0.1], lengths="phrases", threads=1),
    ]
    text = report.tables(rows, "what it does not show")
    for line in (
        "a machine; medians of 1 rounds.",
        "|  | tiny, 64 × 128 | mini, 64 × 128 |",
        "| cpp, fp32 | 5,000 (50, 50%) | 10,000 (100, 100%) |",
        "| JAX, fp32 | 2,000 (20) |  |",
        "| **minibert / the fastest peer, fp32** | **2.5×** (JAX) |  |",
        "| **minibert / Hugging Face, fp32** | **10×** |  |",
        "| cpp, fp32 | 300 (170) | 300 (170) |",
        "|  | tiny, 64 × phrases |",
    ):
        assert line in text.splitlines(), line
    assert text.endswith("what it does not show")
    assert "2 threads, every sequence full" in text and "1 thread, real lengths" in text
    assert "no figure to quote" not in text.lower()
    assert "no figure to quote" in report.tables([measured("cpp", [1.0], quick=True)], "")
    assert "No figure to quote: busy" in report.tables([measured("cpp", [1.0], busy="busy")], "")


def options(*words):
    return bench.parser("").parse_args(words)


def test_cases_are_the_plan_s_unless_others_are_named():
    assert bench.chosen_cases(step.KIND, options()) == list(step.PLAN)
    assert bench.chosen_cases(step.KIND, options("--quick")) == list(step.QUICK)
    small = bench.chosen_cases(step.KIND, options("--size", "base"))
    assert [case.work for case in small] == [Work("base", 128, 8), Work("base", 128, 32)]
    named = bench.chosen_cases(step.KIND, options("--size", "mini", "tiny", "--seq", "64"))
    assert [case.work for case in named] == [Work("mini", 64, 32), Work("tiny", 64, 64)]
    with pytest.raises(InputError, match="nothing of the plan"):
        bench.chosen_cases(step.KIND, options("--size", "large"))


def test_every_engine_of_minibert_and_every_peer_has_a_way():
    for found in (ways.training(), ways.encoding()):
        names = {way.engine for way in found}
        assert set(engines.ENGINES) <= names and names & set(report.PEERS)
        assert names <= set(engines.ENGINES) | set(report.PEERS)
        assert len({way.title for way in found}) == len(found)


@pytest.mark.thorough
def test_child_measures_an_engine_and_reports_what_is_missing(tmp_path):
    work = Work("tiny", 8, 2)
    np.save(tmp_path / "w.npy", weights(work.config(0.0)))
    job = children.Job(work, str(tmp_path / "w.npy"), 0.0)
    child = children.Child("train_minibert:Minibert", job, 1, {"engine": "numpy"})
    try:
        (loss, norm), (after, _) = child.ask("result")
        assert after < loss and norm > 0
        found = children.take_turns({"numpy": child}, 2, 0.0, lambda: None, pytest.fail)
        assert [len(found["numpy"]), *(cores > 0 for _, cores in found["numpy"])] == [2, True, True]
        assert child.ask("memory") > child.imported
        assert child.imported > 1e7 or not os.path.isdir("/proc")
        assert 0 < child.ask("first_run") < 60 and child.ask("facts") == {}
    finally:
        child.close()
    for factory, why in (
        ("train_minibert:Minibert", "InputError: engine='none'"),
        ("none:No", "peers.none"),
    ):
        with pytest.raises(children.Unavailable, match=why):
            children.Child(factory, job, 1, {"engine": "none"})


@pytest.mark.thorough
def test_step_ends_with_a_sentence_for_wrong_options(capsys):
    for words, sentence in (
        (["--only", "tensorflow"], "--engine tensorflow is none of"),
        (["--threads", "0"], "--threads 0 is none of 1"),
        (["--size", "huge"], "nothing of the plan"),
        (["--attention-dropout", "1.5"], "--attention-dropout 1.5 is not a probability below 1"),
        (["--device", "gpu", "--engine", "cpp"], "--engine cpp is none of Hugging Face, Hugging Face tuned"),
    ):
        assert bench.main(step.KIND, step.options().parse_args(words)) == 2
        assert sentence in capsys.readouterr().err


def test_dropout_on_attention_may_differ_from_the_other():
    job = children.Job(Work("tiny", 8, 2), "", 0.1, 0.0)
    config = job.work.config(job.dropout, job.attention_dropout)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.0)
    for rates in ((0.1, None), (0.1, 0.1)):
        assert job.work.config(*rates) == job.work.config(0.1)


def test_jax_and_pytorch_alone_go_on_a_gpu():
    for way in ways.on("gpu", ways.training()):
        ours = way.engine in (ways.REFERENCE, "jax", "JAX")  # JAX's is chosen by the environment
        assert ours == ("device" not in way.options) and way.options.get("device", "cuda") == "cuda"
    on_gpu = {way.engine for way in ways.on("gpu", ways.training())}
    on_cpu = {way.engine for way in ways.on("cpu", ways.training())}
    assert on_gpu - on_cpu == {"Hugging Face tuned"} and on_cpu - on_gpu == {"cpp", "numba"}


@pytest.mark.thorough
def test_jax_tells_of_its_device(monkeypatch):
    pytest.importorskip("jax")
    from minibert.engines.jax import devices as jax_devices

    asked = []
    monkeypatch.setattr(jax_devices, "matmul_rate", lambda dtype, **_: asked.append(dtype) or 1000.0)
    monkeypatch.setattr(jax_devices, "memory", lambda *_: {"peak_bytes_in_use": 7_000_000})
    work = Work("tiny", 8, 2)
    config = work.config(0.1)
    made = {
        name: Minibert(config, work.make_batch(config), weights(config), 1, name) for name in ("jax", "numpy")
    }
    found = made["jax"].facts()
    assert found["device"].startswith("cpu 0, cpu") and asked == ["float32"] and made["numpy"].facts() == {}
    assert (found["device_peak_mb"], found["matmul_gflops"]) == (7.0, 1000.0)
    row = report.of_one([(0.5, 1.0), (0.25, 1.0), (0.75, 1.0)], 10.0, found, 100_000_000_000)
    assert (row["mfu"], row["compile_seconds"]) == (0.2, 9.5)
    assert report.of_one([(0.5, 1.0)], 10.0, {}, 1)["mfu"] is None


def test_tables_show_what_a_device_tells():
    known = {"mfu": 0.456, "matmul_gflops": 700_000.0, "compile_seconds": 31.4, "device_peak_mb": 5120.0}
    rows = [
        measured("jax", [0.2], attention_dropout=0.1, **known),
        measured("cpp", [0.2], attention_dropout=0.1, matmul_gflops=None),
        measured("jax", [0.1], attention_dropout=0.0, **known | {"device_peak_mb": None}),
    ]
    text = report.tables(rows, "")
    assert "| jax, fp32 | 46% of 700 TFLOP/s, 31 s, 5,120 MB |" in text and text.count("of 700 TFLOP/s") == 2
    assert "| jax, fp32 | 46% of 700 TFLOP/s, 31 s |" in text
    assert text.count("no padding on any side, dropout on attention 0:") == 3  # speed, memory, device
    assert "cpp, fp32" in text and "cpp, fp32 | 46%" not in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "can't be read (No such file or directory); check the name."),
        ("{", "is not JSON (Expecting property name"),
        ("{}", "holds no list of rows; name what --json has printed."),
        ("[]", "holds no list of rows; name what --json has printed."),
        ("[1]", "holds no list of rows; name what --json has printed."),
        (
            '[{"quick": false}]',
            "holds rows of something else ('busy' is not there, or of another kind); name",
        ),
    ],
)
def test_files_that_are_not_rows_are_refused(tmp_path, capsys, text, said):
    path = tmp_path / "rows.json"
    if text is not None:
        path.write_text(text)
    for main in (lambda words: bench.main(step.KIND, options(*words)), ops.main, finetune.main):
        assert main(["--rows", str(path)]) == 2
        assert capsys.readouterr().err.startswith(f"minibert: --rows {path} {said}")


def test_rows_of_an_earlier_run_become_tables_again(tmp_path, capsys, monkeypatch):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([measured("cpp", [0.2])]))
    page = tmp_path / "results.md"
    page.write_text(f"{step.MARK}\nold\n<!-- end of what is written -->\n")
    monkeypatch.setattr(bench, "RESULTS", page)
    assert bench.main(step.KIND, options("--rows", str(path), "--write-results")) == 0
    assert "| cpp, fp32 | 5,000 (50, 50%) |" in page.read_text() and "old" not in page.read_text()
    path.write_text(json.dumps([measured("cpp", [0.2], busy="others are at work.")]))
    assert bench.main(step.KIND, options("--rows", str(path), "--write-results")) == 2
    assert "quiet machine" in capsys.readouterr().err


def test_the_pages_have_a_place_for_each_table():
    for mark in (step.KIND.mark, inference.KIND.mark, finetune.MARK):
        assert mark in bench.RESULTS.read_text("utf-8").splitlines()
    assert ops.MARK in ops.RESULTS.read_text("utf-8").splitlines()
    assert bench.RESULTS == ROOT / "docs" / "results.md"
    assert ops.RESULTS == ROOT / "docs" / "results-operations.md"


def single(title, quick=True):
    """A case of the plan by its title."""
    [case] = [case for case in operations.plan(quick) if case.title == title]
    return case


def test_single_operations_are_counted_by_hand():
    assert single("x W, 2048 × 3072 × 768", False).operations == 2 * 2048 * 3072 * 768
    forward = single("attention, dropout 0.1, length 512", False)
    assert forward.operations == 8 * 4 * (2 * 2 * 512 * 512 * 64)  # sequences, heads, two products
    assert single("attention's gradient, dropout 0.1, length 512", False).operations == 2 * forward.operations
    norm = single("LayerNorm(x + dropout(out + b)), 4096 × 768", False)
    assert norm.moved(4) == 4096 * 768 * 4 * (2 + 2) == 2 * norm.moved(2)  # x and out; the sum and y
    assert single("rows of a table, 4096 × 256 × 30522", False).moved(4) == 4096 * 256 * 4 * 2
    assert single("AdamW, 11000000", False).moved(2) == 11_000_000 * 4 * (4 + 3)  # never in two bytes


def cpp_or_skip(dtype="float32"):
    pytest.importorskip("minibert.engines.cpp._kernels")
    return Cpp(2, dtype)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, id=f"{case.title}, {dtype}")
        for case in operations.plan(True)
        for dtype in ops.WIDE
        if case.comes_in(dtype)
    ],
)
def test_everyone_finds_what_the_reference_finds_in_float64(case, dtype):
    reference = Reference(1, dtype="float64")
    everyone = [way for way in ops.WAYS if way.dtype == dtype and way.own_dropout and way.does(case)]
    for way in everyone:
        made = cpp_or_skip(dtype) if way.engine == "cpp" else Reference(1, **way.options)
        for dropout in {False, case.dropout}:
            reference.choose(case._replace(dropout=dropout), dtype)
            made.choose(case._replace(dropout=dropout))
            complaint = ops.wrongness(made.result(), reference.result(), ops.TOLERANCES[dtype])
            assert complaint is None, (way, dropout, complaint)
            made.run()


def test_one_wrong_element_of_a_single_operation_is_found_out():
    reference, case = Reference(1, dtype="float64"), single("x W, 64 × 96 × 48")
    reference.choose(case)
    [right] = reference.result()
    wrong = right.copy()
    wrong[63, 95] += right.std()
    for found in (wrong, wrong * np.nan, right[:, :9]):
        assert ops.wrongness([found], [right], ops.TOLERANCES["float32"]) is not None
    assert "2 results, not 1" in ops.wrongness([right, right], [right], 1.0)
    assert ops.wrongness([right], [right], 0.0) is None


def test_dropout_of_single_operations_is_really_there():
    reference = Reference(1, dtype="float64")
    for title in ("attention, dropout 0.1, length 16", "LayerNorm(x + dropout(out + b)), 128 × 64"):
        found = []
        for dropout in (False, True):
            reference.choose(single(title)._replace(dropout=dropout))
            found.append(reference.result())
        assert ops.wrongness(found[1], found[0], ops.TOLERANCES["bfloat16"]) is not None


def test_arguments_in_bfloat16_are_rounded_once_and_the_same_for_all():
    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -3.3e-39, 1e30], np.float32)
    rounded = operations.rounded(x)
    assert rounded.tolist()[:3] == [1.0, 1.0, 1 + 4 * 2**-8]  # ties to even
    np.testing.assert_array_equal(operations.rounded(rounded), rounded)
    case = single("LayerNorm(x + dropout(out + b)), 128 × 64")
    wide, narrow = case.given("float32"), case.given("bfloat16")
    np.testing.assert_array_equal(narrow["x"], operations.rounded(wide["x"]))
    np.testing.assert_array_equal(narrow["gamma"], wide["gamma"])


def operation(engine, speed, **changes):
    """A row of `ops.py`."""
    made = ops.Bench(ops.parser().parse_args([])).row(
        single("x W, 64 × 96 × 48"),
        ops.Way(engine, "float32", "", {}),
        1,
        [(589824e-9 / speed, 1.0)],
        100.0,
        None,
    )
    return json.loads(json.dumps(made | changes))


def test_tables_of_single_operations_show_shares_and_ratios():
    row = operation("cpp", 90)
    assert row["useful_gflops"] == pytest.approx(90) and row["peak_share"] == pytest.approx(0.9)
    assert row["gigabytes_per_second"] is None
    moves = {"title": "AdamW", "useful_gflops": None, "gigabytes_per_second": 20.0, "copy_share": 0.5}
    rows = [row, operation("PyTorch", 45), operation("numba", 30), operation("cpp", 1, **moves)]
    text = ops_report.tables(rows)
    for line in (
        "**GFLOP/s (share of the peak)**, fp32, 1 thread:",
        "|  | cpp | numba | PyTorch | cpp / PyTorch |",
        "| x W, 64 × 96 × 48 | 90 (90%) | 30 (30%) | 45 (45%) | **2.0×** |",
        "**GB/s (share of a copy)**, fp32, 1 thread:",
        "| AdamW | 20 (50%) |",
    ):
        assert line in text.splitlines(), text


def test_single_operations_are_written_into_their_own_page(tmp_path, monkeypatch):
    path, page = tmp_path / "rows.json", tmp_path / "results-operations.md"
    path.write_text(json.dumps([operation("cpp", 90, quick=False)]))
    page.write_text(f"{ops.MARK}\nold\n<!-- end of what is written -->\n")
    monkeypatch.setattr(ops, "RESULTS", page)
    assert ops.main(["--rows", str(path), "--write-results"]) == 0
    assert "| x W, 64 × 96 × 48 | 90 (90%) |" in page.read_text() and "old" not in page.read_text()


def test_ops_ends_with_a_sentence_for_wrong_options(capsys, tmp_path):
    for words, sentence in (
        (["--only", "convolution"], "--only convolution is none of gemm, "),
        (["--engines", "jax"], "--engines jax is none of cpp, "),
        (["--threads", "0"], "--threads 0 is none of 1"),
    ):
        assert ops.main(words) == 2
        assert sentence in capsys.readouterr().err
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([operation("cpp", 90, busy="others are at work.")]))
    assert ops.main(["--rows", str(path), "--write-results"]) == 2
    assert "results-operations.md takes only full rows from a quiet machine" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        ops.main(["--help"])
    assert "share of what a copy of as many bytes reached" in " ".join(capsys.readouterr().out.split())


def rows_of_a_quick_run(script, *chosen):
    """What a benchmark prints with --quick --json, in float32 on one thread."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--quick", "--json", "--threads", "1"]
    done = subprocess.run(
        [*command, *chosen, "--dtype", "float32"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_quick_run_measures_single_operations(compiler):
    rows = rows_of_a_quick_run("ops.py", "--engines", "numpy", "cpp")
    assert {(row["engine"], row["title"]) for row in rows} >= {
        ("numpy", case.title) for case in operations.plan(True)
    }
    for row in rows:
        assert (row["useful_gflops"] or row["gigabytes_per_second"]) > 0 and row["quick"]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("isa", ["portable", ""])
def test_every_rung_of_the_ladders_computes_what_double_precision_does(isa, tmp_path):
    if not (shutil.which("make") and shutil.which("g++")):
        pytest.skip("no make or no g++")
    command = ["make", "--silent", "-C", str(ROOT / "benchmarks" / "ladder"), "check", f"BUILD={tmp_path}"]
    done = subprocess.run(
        [*command, *([f"ISA={isa}"] if isa else [])], capture_output=True, text=True, timeout=500
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_quick_run_measures_the_engines(compiler):
    rows = rows_of_a_quick_run("step.py", "--only", "numpy", "cpp")
    assert {(row["engine"], row["lengths"]) for row in rows} >= {("numpy", "full")}
    for row in rows:
        assert row["quick"] and row["tokens_per_second"] > 0 and row["peak_rss_mb"] > row["imported_rss_mb"]


@pytest.fixture
def compiler():
    try:
        return machine.units()
    except machine.RunError:
        pytest.skip("no C++ compiler")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_peak_measures_every_vector_unit_and_copies(compiler, capsys):
    assert "float32" in {dtype for dtype, _ in compiler}
    assert machine.peak("float32", 1, 10) > 0.1 and machine.peak("int4", 1) is None
    assert peak.main(["--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["unit"] for row in rows} == {"GFLOP/s", "GB/s"} and all(row["rate"] > 0 for row in rows)
    assert "| copying in memory |" in peak.text(rows)


VERSIONS = [sys.executable, str(ROOT / "benchmarks" / "versions.py")]
SMALL_STEP = ["--size", "tiny", "--seq", "16", "--batch", "2", "--vocab-size", "200", "--rounds", "3"]


@pytest.mark.thorough
def test_versions_take_turns_at_the_same_step():
    if not list(ROOT.glob("minibert/engines/cpp/_kernels.*")):
        pytest.skip("the kernels in C++ are not built")
    command = [*VERSIONS, *SMALL_STEP, "--threads", "1", "--dtype", "float32", str(ROOT), str(ROOT)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    one, other = json.loads(done.stdout)
    assert one["loss"] == other["loss"] and 4 < one["loss"] < 9  # log 200 and log 2 are 6
    assert one["gradient_norm"] == other["gradient_norm"] > 0
    assert [len(version["milliseconds"]) for version in (one, other)] == [3, 3]
    assert min(one["milliseconds"] + other["milliseconds"]) > 0


STAND_IN = """
from types import SimpleNamespace as one
BertConfig = one(from_size=lambda size, **more: None)
Work = lambda *shape: one(make_batch=lambda config: None)
weights = lambda config: None
Minibert = lambda *given: one(run=lambda: one(loss={loss}, gradient_norm=1))
"""


def test_a_version_brings_its_own_benchmarks(tmp_path):
    rooms = ("backends", "engines/cpp")  # where the kernels lay in 0.1, and lie now
    for loss, room in enumerate(rooms, 5):
        peers = tmp_path / room / "benchmarks/peers"
        peers.mkdir(parents=True)
        for name in ("work.py", "train_minibert.py"):
            (peers / name).write_text(STAND_IN.format(loss=loss))
        kernels = tmp_path / room / "minibert" / room / "_kernels.so"
        kernels.parent.mkdir(parents=True)
        kernels.touch()
    command = [*VERSIONS, *(str(tmp_path / room) for room in rooms), "--rounds", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [one["loss"] for one in json.loads(done.stdout)] == [5, 6]


def test_versions_compare_round_by_round():
    first = versions.Version("before", 6.0, 1.5, [10.0, 20.0, 10.0, 40.0])  # a machine of many moods
    other = versions.Version("after", 6.0, 1.5, [8.0, 17.0, 7.0, 36.0])
    assert versions.ratios(first, other) == [0.7, 0.8, 0.85, 0.9]
    before, after = versions.table([first, other]).splitlines()[1:]
    assert before.endswith("1.000 (1.000 to 1.000)  before")
    assert after.endswith("0.825 (0.800 to 0.850)  after")


def test_a_version_without_kernels_is_refused(tmp_path):
    done = subprocess.run([*VERSIONS, str(tmp_path), str(ROOT)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and done.stdout == ""
    assert f"{tmp_path} is not a checkout of minibert with kernels; build them there" in done.stderr


def test_a_step_is_read_after_the_next_one_has_begun():
    events = []

    class Step:
        def __init__(self, number):
            events.append(f"give {number}")
            self.number = number

        def read(self):
            events.append(f"read {self.number}")

    numbers = iter(range(9))
    made = SimpleNamespace(run=lambda: Step(next(numbers)))
    children.measure(made, 3)
    assert events == "give 0,read 0,give 1,give 2,read 1,give 3,read 2,read 3".split(",")
    held = []
    children.measure(SimpleNamespace(run=lambda: held.append(1)), 3)  # what can't be waited for is let go
    assert len(held) == 4


def test_all_are_asked_at_once_and_failures_reported():
    together = threading.Barrier(3, timeout=20)

    def asked(name):
        together.wait()
        if name == "b":
            raise children.Unavailable("no room")
        return name.upper()

    found = children.each(asked, {name: name for name in "abc"}, at_once=True)
    assert (found["a"], found["c"]) == ("A", "C") and str(found["b"]) == "no room"
    assert children.each(str.upper, {"a": "a"}, at_once=False) == {"a": "A"}


@pytest.mark.slow
def test_attention_alone_is_compared_and_timed(tmp_path, capsys):
    pytest.importorskip("jax")
    file = tmp_path / "lines.json"
    flags = "--device cpu --engine minibert --case 2x32x2x16 --dtype float32 --rounds 1 --json".split()
    assert attention.main(attention.parser().parse_args([*flags, str(file)])) == 0
    lines = json.loads(file.read_text())
    assert [(line["kernel"], line["case"][-3:]) for line in lines] == [
        (kernel, rate) for rate in ("0.1", "t 0") for kernel in ("plain", "pallas")
    ]
    assert all(1e-9 < line["error"] < 1e-5 and line["forward"] > 0 < line["backward"] for line in lines)
    assert "| pallas |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("parts", "late", "expected"),
    [
        ([5.0], [0.0, 0.0], 5.0),
        ([1.0] * 8, [0.0] * 4, 2.0),
        ([1.0] * 9, [0.0] * 4, 3.0),
        (
            [4.0, 4.0, 1.0, 1.0],
            [0.0, 0.0],
            6.0,
        ),  # the second helps the first after its own two
        ([1.0, 1.0, 9.0], [0.0, 0.0], 10.0),
        ([1.0] * 4, [0.0, 10.0], 4.0),  # the first has done all before the second knows
        ([2.0] * 4, [0.0, 3.0], 6.0),  # the first helps the second with its last
        ([1.0, 2.0, 3.0], [0.0], 6.0),
    ],
)
def test_simulated_threads_take_their_own_parts_then_those_of_the_next(parts, late, expected):
    assert cores.makespan(np.array(parts), late) == expected


@pytest.mark.parametrize("threads", [1, 2, 3, 16, 64])
def test_a_simulated_loop_is_within_the_bounds_of_any_schedule(threads):
    generator = np.random.default_rng(threads)
    for count in (1, 2, 5, 40, 333):
        parts = generator.exponential(1.0, count)
        span = cores.makespan(parts, [0.0] * threads)
        # Graham's bounds of list scheduling (1969).
        least = max(parts.max(), parts.sum() / threads)
        assert least * (1 - 1e-12) <= span <= parts.sum() / threads + parts.max()


def test_a_simulated_step_wakes_threads_only_after_long_gaps():
    even = np.full(8, 100.0)
    loops = [cores.Loop(10, even), cores.Loop(40_000, even), cores.Loop(20, np.array([70.0]))]
    step = cores.Step(loops, rest=30)
    assert step.wall == 10 + 800 + 40_000 + 800 + 20 + 70 + 30
    found = cores.simulate(step, 4, hand_over=0, wake=1e6)
    assert found == (10 + 200 + 40_000 + 800 + 20 + 70 + 30, 10 + 40_000 + 20 + 70 + 30, 400)
    # Those who were called and came too late are not there for the next loop either.
    again = cores.simulate(step._replace(loops=[*loops, cores.Loop(5, even)]), 4, hand_over=0, wake=1e6)
    assert again.wall == found.wall + 5 + 800
    # Three others, who are told of the loop one after another and waited for at its end.
    slow = cores.simulate(step._replace(loops=loops[:1]), 4, hand_over=10, wake=0)
    assert slow.wall == 10 + (30 + 200) + 30 + 30
    assert cores.simulate(step, 1, 0, 1e6).wall == step.wall
    assert cores.Step.median([step, step._replace(rest=90), step._replace(rest=40)]).rest == 40


def test_recorded_loops_are_taken_apart():
    numbers = (ctypes.c_int64 * 8)(7, 2, 30, 40, 9, 1, 50, 99)

    def mb_loops(size):
        size._obj.value = 7  # the last is beyond
        return ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int64))

    assert cores.recorded(SimpleNamespace(mb_loops=mb_loops)) == [(7, [30, 40]), (9, [50])]


@pytest.mark.slow
@pytest.mark.exhaustive  # compiles the kernels
def test_more_cores_than_there_are_are_simulated():
    command = [sys.executable, ROOT / "benchmarks" / "cores.py", "--quick", "--cores", "1", "4", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    (found,) = json.loads(done.stdout)
    one, four = found["rows"]
    assert four["parts"] > one["parts"] > one["loops"] > 20
    assert one["waiting"] == 0 and 0 < four["waiting"] < 1 and 0 < four["serial"] < 1
    assert one["seen"] == 1 and one["speedup"] > 0 and four["speedup"] > 0
