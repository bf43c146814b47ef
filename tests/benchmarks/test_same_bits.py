"""What the comparison of two versions counts as different."""

import json

import numpy as np
import pytest
import same_bits
from safetensors.numpy import save_file


def write_run(folder, seconds, tensor=(1.0, 2.0), loss=0.5):
    """Write a run folder as both versions of a comparison leave it."""
    (folder / "shards").mkdir(parents=True)
    (folder / "shards" / "tokens.bin").write_bytes(bytes(range(100)))
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    (folder / "report.html").write_text(f"{seconds} seconds")
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "loss": loss, "seconds": seconds}) + "\n")
    state = {"crc32": {"header": int(seconds), "m": 7}, "state": {"step": 1, "seconds": seconds}}
    weights = {"m": np.array(tensor, np.float32)}
    save_file(weights, folder / "step-000000001.safetensors", {"minibert": json.dumps(state)})


def flip_last_bit(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_runs_that_differ_in_times_alone_are_the_same(tmp_path):
    write_run(tmp_path / "old", 1.0)
    write_run(tmp_path / "new", 22.5)
    assert same_bits.differences(tmp_path / "old", tmp_path / "new") == (4, [])


def test_one_bit_is_a_difference_in_any_file(tmp_path):
    write_run(tmp_path / "old", 1.0)
    for name in ("shards/tokens.bin", "vocab.txt", "step-000000001.safetensors"):
        new = tmp_path / name.replace("/", "-")
        write_run(new, 2.0)
        flip_last_bit(new / name)
        assert same_bits.differences(tmp_path / "old", new) == (4, [name])


def test_another_loss_and_a_missing_file_are_differences(tmp_path):
    write_run(tmp_path / "old", 1.0)
    write_run(tmp_path / "new", 1.0, loss=0.25)
    (tmp_path / "new" / "vocab.txt").unlink()
    (tmp_path / "new" / "config.json").write_text("{}")
    expected = ["config.json", "metrics.jsonl", "vocab.txt"]
    assert same_bits.differences(tmp_path / "old", tmp_path / "new") == (5, expected)
    row = same_bits.Row("pretrain", "cpp", "float32", 5, expected)
    assert "| pretrain | cpp | float32 | 5 | 3 |" in same_bits.table([row])
    assert same_bits.table([row]).splitlines()[-1] == "differs: pretrain, cpp, float32: vocab.txt"


def test_a_checkpoint_of_another_step_differs(tmp_path):
    write_run(tmp_path / "old", 1.0)
    write_run(tmp_path / "new", 1.0)
    path = tmp_path / "new" / "step-000000001.safetensors"
    state = {"crc32": {"header": 1, "m": 7}, "state": {"step": 2, "seconds": 1.0}}
    save_file({"m": np.array([1.0, 2.0], np.float32)}, path, {"minibert": json.dumps(state)})
    assert same_bits.differences(tmp_path / "old", tmp_path / "new") == (4, [path.name])


def test_versions_that_cannot_be_compared_are_skipped(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(same_bits, "DATA", tmp_path / "nowhere")
    with pytest.raises(SystemExit) as ended:
        same_bits.main(["HEAD"])
    assert ended.value.code == 125  # as `git bisect run` reads it; 1 would mean that bits differ
    assert "MINIBERT_DATA" in capsys.readouterr().err
