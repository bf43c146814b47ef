"""The plan for many devices: against what others report, a ring that is played, and what is really kept."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import scale_plan  # noqa: E402
from peers import hardware, scale_report, scaling  # noqa: E402
from peers.scaling import Plan  # noqa: E402
from peers.work import Work, weights  # noqa: E402

from minibert import bert  # noqa: E402
from minibert.config import BertConfig  # noqa: E402
from minibert.errors import InputError  # noqa: E402
from minibert.ops import Ops  # noqa: E402
from minibert.params import Parameters  # noqa: E402

BASE, LARGE = BertConfig.from_size("base"), BertConfig.from_size("large")
COUNTS = [2**n for n in range(11)]


def plan(config=BASE, device="h200", link=50e9, mfu=0.4, **changes):
    return Plan(config, hardware.DEVICES[device], link, {128: mfu, 512: mfu}, **changes)


def test_memory_of_the_state_counts_every_parameter():
    for config, encoder in ((BASE, 109_482_240), (LARGE, 335_141_888)):
        H, V = config.H, config.V
        n = encoder + (H * H + H) + 2 * H + V + (2 * H + 2)  # dense, LayerNorm, output bias; next sentence
        assert scaling.parameters(config) == n
        assert scaling.layer_parameters(config) == 12 * H * H + 13 * H
        assert scaling.state_bytes(plan(config), 8) == (4 + 4 + 4 + 4 + 2) * n
        whole = n - (config.L - 1) * (12 * H * H + 13 * H)  # one layer and what is none
        assert scaling.state_bytes(plan(config, fsdp=True), 8) == 16 * n / 8 + (4 + 4 + 2) * whole
        assert scaling.state_bytes(plan(config, fsdp=True), 1) == 18 * n


def numbers(saved, forget):
    """How many numbers there are in a tree of arrays, those that share memory once, whole ones left out."""
    found = {}

    def walk(one):
        if isinstance(one, np.ndarray):
            while one.base is not None and isinstance(one.base, np.ndarray):
                one = one.base
            if one.dtype.kind == "f" and id(one) not in forget:
                found[id(one)] = one.size
        elif isinstance(one, tuple | list):
            for part in one:
                walk(part)

    walk(saved)
    return sum(found.values())


def test_kept_numbers_are_those_that_the_hand_written_backward_asks_for():
    config = BertConfig.from_size("tiny", vocab_size=211, num_hidden_layers=3, num_attention_heads=4)
    seq, S = 24, 3
    batch = Work("tiny", seq, S).make_batch(config)
    params, ops = Parameters(config, weights(config)), Ops()
    drop = ops.dropout(batch, 0.1, 0.1, 1, 2)
    result, saved = bert.pretraining_loss(ops, config, params.tree, batch, drop)
    mine = {id(params.flat), id(batch.masked_weights), id(batch.next_sentence_weights)}
    weightless = saved[:-2]  # the last two are the weights of the loss
    layer, ends = scaling.kept_by_layer(config, seq, fused=False), scaling.kept_by_ends(config, seq)
    # Beside that the reference keeps Phi in every GELU and dropout on the maps, and no keys to draw it from.
    layers, masked = sum(layer) + config.F + config.A * seq - 2, scaling.masked_positions(seq)
    assert batch.M == S * masked
    every_row = config.L * seq * layers + sum(ends) + masked * config.H
    # Of the last layer only rows that heads read are kept behind attention (dropout, LayerNorm, feed-forward
    # with Phi) and behind the encoder; and once more, side by side, of what attention gives.
    behind, rows = 6 * config.H + 3 * config.F + 2, masked + 1
    assert numbers(weightless, mine) == S * (every_row - (seq - rows) * behind + rows * config.H)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kept_bytes_are_those_of_the_jax_engine(dtype):
    jax = pytest.importorskip("jax")
    from minibert.backends.jax_ops import JaxOps

    config = BertConfig.from_size("tiny", vocab_size=211, num_attention_heads=4)
    seq, S = 24, 4
    ops, params = JaxOps(dtype), Parameters(config)
    rows = ops.prepare(Work("tiny", seq, S).make_batch(config))
    assert (rows.columns, len(rows.lengths)) == (seq, S)

    def layer(flat, rows, step):
        drop = ops.dropout(rows, 0.1, 0.1, 1, step)
        tree = params.like(flat).tree["layers"][0]
        x = jax.numpy.zeros((S * seq, config.H), dtype)
        x, attention = ops.attention_block(x, tree["attention"], rows.cu_seqlens, config, drop, 0)
        return attention, ops.feed_forward_block(x, tree["feed_forward"], config, drop, 0)[1]

    attention, feed_forward = jax.eval_shape(layer, jax.numpy.zeros_like(params.flat), rows, 3)
    qkv, (_, maps), *rest = attention  # the queries stand there twice, as rows and as tokens
    leaves = jax.tree.leaves((qkv, maps, *rest, feed_forward))
    found = sum(one.size * one.dtype.itemsize for one in leaves)
    tree = params.tree["layers"][0]
    weights_too = sum(
        tree[block][name].nbytes
        for block, names in (("attention", "qkv output"), ("feed_forward", "in out"))
        for name in [*(f"{name}_weight" for name in names.split()), "gamma"]
    )
    kept = scaling.kept_by_layer(config, seq, fused=False).bytes(2 if dtype == "bfloat16" else 4)
    assert found - weights_too == S * seq * kept


def test_recomputation_keeps_the_inputs_of_layers_and_what_one_of_them_keeps():
    config = LARGE
    all_kept, less = plan(config), plan(config, recompute=True)
    layer = 512 * scaling.kept_by_layer(config, 512, True).bytes(2)
    saved = scaling.sequence_bytes(all_kept, 512) - scaling.sequence_bytes(less, 512)
    assert saved == (config.L - 1) * layer - config.L * 512 * 2 * config.H
    assert scaling.sequence_bytes(less, 512) < 0.3 * scaling.sequence_bytes(all_kept, 512)
    slower = scaling.computing_seconds(less, 8, 512) / scaling.computing_seconds(all_kept, 8, 512)
    assert 1.3 < slower < 4 / 3  # a third more, the heads excepted


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_a_ring_that_is_played_sends_as_much_as_the_formula_says(devices):
    arrays = np.random.default_rng(devices).standard_normal((devices, devices * 5))
    pieces, sent = arrays.reshape(devices, devices, 5).copy(), np.zeros(devices)
    everyone = np.arange(devices)
    for reducing in (True, False):
        for turn in range(devices - 1):
            which = (everyone - turn + (not reducing)) % devices  # the piece that each passes on
            moving = pieces[everyone, which].copy()
            sent += moving[0].nbytes
            right = (everyone + 1) % devices
            pieces[right, which] = moving + (pieces[right, which] if reducing else 0)
    np.testing.assert_allclose(pieces.reshape(devices, -1), np.tile(arrays.sum(0), (devices, 1)), atol=1e-12)
    n_bytes, link = arrays[0].nbytes, 7.0
    assert sent.tolist() == pytest.approx(
        [2 * link * scaling.round_seconds(n_bytes, devices, link)] * devices
    )


def test_traffic_is_an_all_reduce_or_with_fsdp_two_gathers_and_a_scatter_of_every_micro_batch():
    n, layers = scaling.parameters(BASE), 12 * scaling.layer_parameters(BASE)
    assert scaling.traffic_seconds(plan(), 4, 1) == scaling.traffic_seconds(plan(), 4, 7)
    assert scaling.traffic_seconds(plan(), 4, 1) == pytest.approx(2 * 3 / 4 * 4 * n / 50e9)
    sent = 3 / 4 * 4 * (3 * (2 * layers + n) + (n - layers))
    assert scaling.traffic_seconds(plan(fsdp=True), 4, 3) == pytest.approx(sent / 50e9)
    assert scaling.traffic_seconds(plan(fsdp=True), 1, 3) == scaling.traffic_seconds(plan(), 1, 1) == 0


def test_traffic_hides_behind_backward_only():
    assert scaling.waiting_seconds(3.0, 9.0, 0.0) == 3
    assert scaling.waiting_seconds(3.0, 9.0, 0.5) == 1.5
    assert scaling.waiting_seconds(3.0, 9.0, 1.0) == 0
    assert scaling.waiting_seconds(9.0, 3.0, 1.0) == 7


def test_with_an_infinite_link_time_is_inversely_proportional_to_the_devices():
    for config in (BASE, LARGE):
        free = plan(config, link=math.inf)
        one, divided = (
            scale_report.planned(one, 1, 1024) for one in (free, plan(config, link=math.inf, fsdp=True))
        )
        for devices in COUNTS:
            many = scale_report.planned(plan(config, link=math.inf, fsdp=True), devices, 1024)
            assert many.seconds == pytest.approx(divided.seconds / devices, rel=1e-12)
            assert many.share("waiting") == 0 and many.batch == 1024
            whole = scale_report.planned(free, devices, 1024)  # where everyone updates everything
            assert whole.share("computing") * whole.seconds == pytest.approx(
                one.share("computing") * one.seconds / devices
            )
            assert whole.share("updating") * whole.seconds == pytest.approx(
                one.share("updating") * one.seconds
            )


@pytest.mark.parametrize("changes", [{}, {"fsdp": True}, {"recompute": True}, {"overlap": 0.7}])
def test_more_of_anything_does_not_slow_a_training_down(changes):
    before = None
    for devices in COUNTS:
        row = scale_report.planned(plan(LARGE, **changes), devices, 1024)
        assert before is None or row.seconds <= before.seconds
        for now, then in zip(row.stages, before.stages if before else [], strict=before is not None):
            assert now.memory <= then.memory or then.micro_batches > 1
        faster = scale_report.planned(plan(LARGE, link=51e9, **changes), devices, 1024)
        better = scale_report.planned(plan(LARGE, mfu=0.41, **changes), devices, 1024)
        assert faster.seconds <= row.seconds and better.seconds < row.seconds
        assert sum(row.share(what) for what in ("computing", "updating", "waiting")) == pytest.approx(1)
        assert all(one.memory <= 0.9 * 141e9 for one in row.stages)
        before = row


def test_a_share_that_does_not_fit_is_computed_in_micro_batches():
    device = hardware.DEVICES["a100"]._replace(memory=12e9)
    small = plan(LARGE)
    small = Plan(**{**vars(small), "device": device})
    row = scale_report.planned(small, 8, 256)
    assert row.fits and all(one.micro_batches > 1 and one.memory <= 0.9 * 12e9 for one in row.stages)
    for one in row.stages:
        assert one.micro_batches * one.at_once >= one.sequences
        fixed = scaling.state_bytes(small, 8)
        assert one.memory == fixed + one.at_once * scaling.sequence_bytes(small, one.seq)
    tiny = Plan(**{**vars(small), "device": device._replace(memory=6e9)})
    assert not scale_report.planned(tiny, 8, 256).fits
    assert scale_report.planned(Plan(**{**vars(tiny), "fsdp": True}), 8, 256).fits


def test_the_schedule_has_the_paper_s_tokens_whatever_the_batch():
    for batch in (256, 1024, 65_536):
        stages = scale_report.schedule(batch)
        assert sum(one.steps * one.sequences * one.seq for one in stages) == pytest.approx(131.072e9)
        assert [one.seq * one.sequences for one in stages] == [512 * batch] * 2
    assert [(one.seq, one.sequences, one.steps) for one in scale_report.schedule(256)] == [
        (128, 1024, 900_000),
        (512, 256, 100_000),
    ]


def test_four_days_of_the_paper_are_a_plausible_share_of_its_chips():
    """Devlin et al. 2019, A.2: BASE on 16 chips of TPU and LARGE on 64 took four days each."""
    base, large = (one for one in hardware.PUBLISHED if "as many tokens" in one.who)
    assert (base.devices, large.devices, base.hours, large.hours) == (16, 64, 96, 96)
    # By hand: 6 operations a token for each weight of the layers, 131 billion tokens, 45 TFLOP/s a chip.
    rough = 6 * 12 * 12 * 768**2 * 131.072e9 / (16 * 45e12 * 96 * 3600)
    assert rough == pytest.approx(0.268, abs=0.001) and rough < base.mfu < 1.15 * rough
    assert 0.2 < large.mfu < base.mfu < 0.35
    for config, devices in ((BASE, 16), (LARGE, 64)):
        row = scale_report.planned(plan(config, "tpu-v2", mfu=0.3), devices, 256)
        assert row.fits and 96 / 1.5 < row.seconds / 3600 < 96 * 1.5


def test_a_pod_s_published_speed_up_is_the_plan_s():
    """You et al. 2020, table 1: LARGE in 81.4 hours by 16 chips of TPU v3, in 101.2 minutes by 1,024."""
    few, many = (one for one in hardware.PUBLISHED if one.who.startswith("You"))

    def hours(one, mfu):
        model = plan(LARGE, "tpu-v3", link=70e9, mfu=mfu)  # one of four links of 70 GB/s (Jouppi et al. 2023)
        parts = [
            (stage.steps, scaling.step(model, one.devices, stage.sequences, stage.seq))
            for stage in one.stages
        ]
        return sum(steps * part.seconds for steps, part in parts) / 3600

    besides = hours(few, few.mfu) - few.hours  # updating and waiting, which the 81.4 hours had in them
    assert 0 < besides < 0.2 * few.hours
    mfu = few.mfu * few.hours / (few.hours - besides)
    assert hours(few, mfu) == pytest.approx(few.hours)
    assert many.hours / 1.5 < hours(many, mfu) < many.hours


def test_published_weak_scaling_of_gpus_is_the_plan_s():
    """NVIDIA's DeepLearningExamples: LARGE, 64 sequences of 128 on each of 1,024 V100, 16 to a node that has
    eight adapters of 100 Gb/s: 188,088 sequences/s, where one node did 3,379."""
    device = scaling.Device("V100", 125e12, 32e9, 0.9e12, "NVIDIA's data sheet")
    mfu = 3379.2 / 16 * scaling.sequence_operations(LARGE, 128) / device.flops
    assert 0.3 < mfu < 0.5
    step = scaling.step(Plan(LARGE, device, 100e9, {128: mfu}), 1024, 1024 * 64, 128)
    assert step.micro_batches == 1  # as they did
    assert 1024 * 64 / step.seconds == pytest.approx(188_088, rel=0.1)


def rows_file(tmp_path, **changes):
    row = {
        "engine": "jax", "dtype": "bfloat16", "size": "base", "seq": 128, "batch": 32, "lengths": "full",
        "useful_gflops": 200_000.0, "peak_gflops": 600_000.0, "seconds": [0.02, 0.01, 0.012],
    }  # fmt: skip
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([row | {"useful_gflops": 1.0}, row | changes, row | {"lengths": "phrases"}]))
    return str(path)


def test_a_measured_mfu_is_that_of_the_step_without_its_updating(tmp_path):
    found = scale_plan.measured(rows_file(tmp_path), "base", 4.8e12)
    updating = 32 * scaling.parameters(BASE) / 4.8e12
    assert found.peak == 600e12 and found.mfu.keys() == {128, 512}
    assert found.mfu[128] == found.mfu[512] == pytest.approx(0.012 / (0.012 - updating) / 3)
    assert found.how.endswith("512 by jax, bfloat16, base, 32 × 128")
    with pytest.raises(InputError, match="updating alone takes"):
        scale_plan.measured(rows_file(tmp_path), "base", 20e9)


def test_the_fastest_row_of_the_nearest_work_is_taken(tmp_path):
    found = scale_plan.measured(rows_file(tmp_path, seq=512, useful_gflops=300_000.0), "base", 4.8e12)
    assert found.mfu[512] > 0.5 and found.mfu[128] < 1e-5  # the only row of 128 is the slow one
    other = scale_plan.measured(rows_file(tmp_path, seq=512), "large", 4.8e12)
    assert "base, 32 × 512" in other.how  # there is none of large


def output(capsys, *words):
    assert scale_plan.main(list(words)) == 0
    return capsys.readouterr().out


def test_the_table_shows_1_to_1024_devices_and_says_what_it_assumes(capsys):
    text = output(capsys)
    for line in (
        "| devices | memory, GB | sequences at a time | ms a step | computing | waiting | the training |",
        "| 1 | 51.5 · 51.6 | 1,024 · 256 | 181 · 196 | 100% | 0% | 2.1 days |",
        "| Devlin et al., as many tokens a step, BASE | 16 × TPU v2 chip | 4.0 days | 29% |",
        "| You et al., 512 sequences a step, LARGE | 16 × TPU v3 chip | 3.4 days | 28% |",
    ):
        assert line in text.splitlines(), text
    assert text.count("\n| 1,024\\* |") == 2 and "the next multiple of the devices" in text
    assert "BASE: Clipping and AdamW read and write 110,106,428 parameters" in text
    assert "what the hand-written backward asks for" in text and "What this does not show" in text
    changed = output(capsys, "--size", "base", "--fsdp", "--recompute", "--overlap", "0.5", "--devices", "8")
    assert (
        "divided among the devices" in changed and "50% of it goes on" in changed and "BASE:" not in changed
    )


def test_what_does_not_fit_is_said_with_what_would_help(capsys):
    text = output(capsys, "--size", "large", "--memory", "6", "--devices", "1", "8")
    assert "| not one fits |" in text
    assert "at most 5.4 GB can be filled; try --recompute or --fsdp." in text


def test_json_has_the_figures_of_the_table(capsys):
    [found] = json.loads(output(capsys, "--json", "--size", "base", "--devices", "4", "--link", "12.5"))
    assert (
        found["parameters"] == 110_106_428 and found["link"] == 12.5e9 and found["device"]["memory"] == 141e9
    )
    [row] = found["rows"]
    assert row["devices"] == 4 and row["fits"] and [one["seq"] for one in row["stages"]] == [128, 512]
    for one in row["stages"]:
        assert one["seconds"] == pytest.approx(one["computing"] + one["updating"] + one["waiting"])
    assert row["seconds"] == pytest.approx(
        sum(n * s["seconds"] for n, s in zip((9e5, 1e5), row["stages"], strict=True))
    )


def test_figures_that_are_given_take_the_place_of_the_data_sheet_s(capsys):
    words = [
        "--json",
        "--size",
        "base",
        "--tflops",
        "100",
        "--memory",
        "16",
        "--bandwidth",
        "900",
        "--mfu",
        "1",
    ]
    [found] = json.loads(output(capsys, *words, "--devices", "1"))
    device, [row] = found["device"], found["rows"]
    assert (device["flops"], device["memory"], device["bandwidth"]) == (1e14, 16e9, 900e9)
    assert row["stages"][1]["computing"] == pytest.approx(256 * scaling.sequence_operations(BASE, 512) / 1e14)
    assert "and as given" in device["source"]


def test_this_machine_is_measured():
    device = hardware.this_machine()
    assert device.flops > 1e8 and device.bandwidth > 1e7 and device.memory > 1e8 and device.width in (2, 4)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--device", "abacus"], "--device abacus is none of h200"),
        (["--link", "fast"], "--link fast is none of nvlink"),
        (["--link", "-1"], "--link -1 is none of"),
        (["--size", "huge"], "--size huge is none of"),
        (["--mfu", "1.5"], "--mfu 1.5 is not a share"),
        (["--mfu", "0"], "--mfu 0 is not a share"),
        (["--overlap", "nan"], "--overlap nan is not a share"),
        (["--memory", "inf"], "--memory inf is not a positive number"),
        (["--devices", "1", "0"], "give whole numbers of at least 1"),
        (["--mfu", "0.3", "--measured", "x"], "give one of them"),
        (["--measured", "no/such.json"], "FileNotFoundError"),
    ],
)
def test_bad_options_end_with_a_sentence(words, sentence, capsys):
    assert scale_plan.main(words) == 2
    found = capsys.readouterr()
    assert sentence in found.err and found.err.count("\n") == 1 and not found.out


def test_a_file_without_rows_ends_with_a_sentence(tmp_path, capsys):
    for content in ("{}", "[]", "[1]", "not json", '[{"size": "base"}]'):
        (tmp_path / "rows.json").write_text(content)
        assert scale_plan.main(["--measured", str(tmp_path / "rows.json")]) == 2
        assert "has no rows of benchmarks/step.py" in capsys.readouterr().err
