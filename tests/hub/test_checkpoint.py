"""Checkpoints come back bit for bit, and a bad file is named for what it is."""

import errno
import json
import os
import re
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from minibert.base import files
from minibert.base.errors import InputError, RunError
from minibert.core.config import BertConfig
from minibert.hub import stored_config
from minibert.hub.checkpoint import (
    PLAN,
    checkpoint_config,
    checkpoint_path,
    checkpoints,
    latest,
    load_checkpoint,
    prune,
    save_checkpoint,
)
from minibert.model import bilstm
from minibert.model.params import initialise
from minibert.reports.contents import HeldOutBefore

CONFIG = BertConfig.from_size(
    "tiny", vocab_size=99, hidden_size=24, num_attention_heads=3, intermediate_size=37
)
STATE = {"step": 12, "position": [16, 0, 3, 41], "seconds": 1.25, "plan": {"total_steps": 40}}


def saved(folder, step=12, dtype=np.float32, config=CONFIG):
    """A checkpoint on the disk, and what went into it."""
    params = initialise(config, step, dtype)
    rng = np.random.default_rng(step)
    moments = [rng.standard_normal(params.flat.shape).astype(dtype) for _ in range(2)]
    optimizer = SimpleNamespace(m=moments[0], v=moments[1], updates=step)
    path = checkpoint_path(folder, step)
    save_checkpoint(path, params, optimizer, STATE | {"step": step})
    return path, params, optimizer


def cut(path, size):
    with open(path, "r+b") as file:
        file.truncate(size)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_everything_comes_back_bit_for_bit(tmp_path, dtype):
    path, params, optimizer = saved(tmp_path, dtype=dtype)
    found = load_checkpoint(path, CONFIG)
    for ours, theirs in ((params.flat, found.params.flat), (optimizer.m, found.m), (optimizer.v, found.v)):
        assert theirs.dtype == dtype and ours.tobytes() == theirs.tobytes()
    assert (found.updates, found.state, found.params.config) == (12, STATE, CONFIG)
    found.params.flat[0] = 1  # ours to write into


def test_the_same_state_makes_the_same_bytes(tmp_path):
    first, second = saved(tmp_path / "a")[0], saved(tmp_path / "b")[0]
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("size", [0, 5, 200, 20_000])
def test_a_truncated_file_is_refused_by_name(tmp_path, size):
    path, *_ = saved(tmp_path)
    cut(path, size)
    with pytest.raises(InputError, match=f"{path.name} cannot be read as a checkpoint"):
        load_checkpoint(path)


def test_one_flipped_bit_is_found(tmp_path):
    path, *_ = saved(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="is damaged: the checksum of v differs"):
        load_checkpoint(path)


def rewritten(path, header=None, signed=True, **tensors):
    """The checkpoint with entries of its header taken out (None) or changed, and with other tensors; not
    `signed`, without a checksum of the header."""
    with safe_open(path, framework="numpy") as file:
        stored = json.loads(file.metadata()["minibert"])
        tensors = {name: file.get_tensor(name) for name in ("params", "m", "v")} | tensors
    stored["crc32"] = {name: zlib.crc32(tensor) for name, tensor in tensors.items()}
    changed = {name: value for name, value in (stored | (header or {})).items() if value is not None}
    if signed and "crc32" in changed:
        changed["crc32"]["header"] = zlib.crc32(json.dumps(changed, sort_keys=True).encode())
    save_file(tensors, path, metadata={"minibert": json.dumps(changed)})
    return path


TAGGER = bilstm.BilstmConfig(3, 2, width=2, depth=1)


def saved_tagger(folder):
    """The smallest checkpoint that there is."""
    params, path = bilstm.initialise(TAGGER, 0), checkpoint_path(folder, 12)
    optimizer = SimpleNamespace(m=params.flat + 1, v=params.flat + 2, updates=12)
    save_checkpoint(path, params, optimizer, STATE)
    return path


def everything(found):
    """All that a checkpoint says."""
    buffers = [tensor.tobytes() for tensor in (found.params.flat, found.m, found.v)]
    return found.params.config, found.updates, found.state, found.params.flat.dtype, buffers


def put(path, place, byte):
    with open(path, "r+b", buffering=0) as file:
        file.seek(place)
        file.write(bytes([byte]))


@pytest.mark.slow
def test_whatever_bit_of_the_file_is_flipped_it_is_refused(tmp_path):
    path = saved_tagger(tmp_path)
    whole = path.read_bytes()
    assert 1_500 < len(whole) < 2_500  # most of it is header
    for place in range(len(whole)):
        for bit in range(8):
            put(path, place, whole[place] ^ 1 << bit)
            with pytest.raises(InputError, match=path.name):
                load_checkpoint(path)
        put(path, place, whole[place])
    assert path.read_bytes() == whole and load_checkpoint(path).updates == 12


def stated(changes):
    """A header with another state."""
    return {"state": STATE | changes}


@pytest.mark.parametrize(
    "lie, sentence",
    [
        (stated({"step": -1}), "step=-1 in its state is not what a run stores"),
        (stated({"step": 12.0}), "step=12.0 in its state"),
        (stated({"position": [16, "0"]}), r"position=\[16, '0'\] in its state"),
        (stated({"seconds": float("nan")}), "seconds=nan in its state"),
        (stated({"tokens": True}), "tokens=True in its state"),
        (stated({"plan": []}), r"plan=\[\] in its state"),
        (stated({"plan": {"timetable": []}}), r"plan={'timetable': \[\]} in its state"),
        (stated({"plan": {"timetable": [[0, "1"]]}}), "plan={'timetable': .* in its state"),
        (stated({"plan": {"replanned": [1]}}), "plan={'replanned': .* in its state"),
        (stated({"plan": {"total_steps": 4.5}}), "plan={'total_steps': 4.5} in its state"),
        (stated({"save": 1}), "save=1 in its state"),
        ({"updates": 13}, "its state is that of step 12, after 13 updates"),
        (stated({"step": 13}) | {"updates": 13}, "its state is that of step 13, after 13 updates"),
        ({"config": {"vocab_size": 0}}, "vocab_size=0 is not a positive whole number"),
        ({"config": CONFIG.to_dict() | {"hidden_size": 48}}, "params has shape"),
        ({"head": ["guess", 1]}, "head kind 'guess' does not exist"),
        ({"head": 5}, "head=5 is not a head"),
        ({"head": ["classify", 2.0]}, r"head=\['classify', 2.0\] is not a head"),
    ],
)
def test_what_no_run_stores_is_damage_and_the_checkpoint_before_it_is_taken(tmp_path, lie, sentence):
    saved(tmp_path, 3)
    path, *_ = saved(tmp_path, 12)
    rewritten(path, lie)
    said = []
    assert latest(tmp_path, CONFIG, said.append).state["step"] == 3
    assert len(said) == 1 and re.search(f"{path.name} is damaged: .*{sentence}.*; remove it or use", said[0])


@pytest.mark.parametrize("place", [[16, 0, 3], [], 7])
def test_a_position_of_fewer_numbers_than_the_run_has_is_damage(tmp_path, place):
    saved(tmp_path, 3)
    rewritten(saved(tmp_path, 12)[0], stated({"position": place}))
    said = []
    assert latest(tmp_path, CONFIG, said.append, numbers=4).state["step"] == 3
    assert f"position={place} in its state is not one of 4 numbers" in said[0]


def test_a_checkpoint_under_the_name_of_another_step_is_damage(tmp_path):
    saved(tmp_path, 3)
    saved(tmp_path, 12)[0].rename(checkpoint_path(tmp_path, 1000))
    assert latest(tmp_path, CONFIG, lambda text: None).state["step"] == 3
    checkpoint_path(tmp_path, 1000).rename(tmp_path / "mine.safetensors")
    assert load_checkpoint(tmp_path / "mine.safetensors").state["step"] == 12


def test_the_configuration_is_read_without_the_buffers(tmp_path, monkeypatch):
    run = tmp_path / "run"
    path, *_ = saved(run / "checkpoints")
    monkeypatch.setattr("minibert.hub.load_checkpoint", None)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1  # in a buffer, whose checksum is not compared
    path.write_bytes(damaged)
    assert checkpoint_config(path) == stored_config(f"{run}@12") == CONFIG
    path.write_bytes(damaged.replace(b"num_hidden_layers", b"num_hidden_liars_"))
    with pytest.raises(InputError, match="is damaged: the checksum of its header differs"):
        checkpoint_config(path)
    assert stored_config(f"{run}@12") is None


def test_lstms_have_no_configuration_of_a_bert(tmp_path):
    path = saved_tagger(tmp_path)
    assert checkpoint_config(path) is None


def test_a_plan_remembers_the_metrics_that_a_report_has_of_the_weights_before_training():
    assert PLAN["held_out_before"] == HeldOutBefore.__annotations__


def test_a_header_without_its_checksum_is_refused(tmp_path):
    path, _, _ = saved(tmp_path)
    with pytest.raises(InputError, match="is damaged: the checksum of its header differs"):
        load_checkpoint(rewritten(path, signed=False))


def test_numbers_of_another_kind_are_no_parameters(tmp_path):
    path, params, _ = saved(tmp_path)
    whole = params.flat.view(np.int32)
    with pytest.raises(InputError, match="its buffers are not alike, or not floating-point numbers"):
        load_checkpoint(rewritten(path, params=whole, m=whole, v=whole))


def test_a_folder_in_the_place_of_a_checkpoint_is_called_one(tmp_path):
    saved(tmp_path, 3)
    checkpoint_path(tmp_path, 12).mkdir()
    said = []
    assert latest(tmp_path, CONFIG, said.append).state["step"] == 3
    assert "step-000000012.safetensors is a folder and can't be a checkpoint; move it away" in said[0]
    with pytest.raises(RunError, match="could not be written: a folder has this name; move it away"):
        saved(tmp_path, 12)
    prune(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["step-000000003.safetensors"]


@pytest.mark.parametrize("name", ["config", "updates", "crc32", "state"])
def test_a_header_without_an_entry_is_refused(tmp_path, name):
    path = rewritten(saved(tmp_path)[0], {name: None})
    with pytest.raises(InputError, match=f"is damaged: its header lacks {name}"):
        load_checkpoint(path)


def test_buffers_of_other_lengths_than_the_configuration_asks_for_are_refused(tmp_path):
    path, params, _ = saved(tmp_path)
    with pytest.raises(InputError, match="is damaged: its buffers are not alike"):
        load_checkpoint(rewritten(path, m=np.zeros(5, np.float32)))
    short = params.flat[:-1].copy()
    with pytest.raises(InputError, match="is damaged: params has shape"):
        load_checkpoint(rewritten(path, params=short, m=short, v=short))


def test_more_layers_than_there_are_parameters_for_are_not_counted_one_by_one(tmp_path):
    path, *_ = saved(tmp_path)
    lie = {"config": CONFIG.to_dict() | {"num_hidden_layers": 10**12}}
    with pytest.raises(InputError, match="params has shape .* has 4,333,000,000,016,157 parameters"):
        load_checkpoint(rewritten(path, lie))
    tagger = {"config": bilstm.BilstmConfig(3, 2, depth=10**12).to_dict()}
    with pytest.raises(InputError, match="is damaged: params has shape"):
        load_checkpoint(rewritten(path, tagger))


@pytest.mark.parametrize("header", ["[" * 200_000, "1" * 5_000, "{", '"'])
def test_a_header_that_is_no_json_is_refused(tmp_path, header):
    path, params, _ = saved(tmp_path)
    save_file(dict.fromkeys(("params", "m", "v"), params.flat), path, metadata={"minibert": header})
    with pytest.raises(InputError, match="cannot be read as a checkpoint"):
        load_checkpoint(path)


def test_foreign_safetensors_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"bert.pooler.dense.bias": np.zeros(3, np.float32)}, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match="not a checkpoint of minibert"):
        load_checkpoint(path)


def test_a_missing_file_is_bad_input(tmp_path):
    with pytest.raises(InputError, match=r"can't be read \(No such file or directory\); check the file"):
        load_checkpoint(tmp_path / "nothing.safetensors")


def test_another_configuration_is_refused_and_the_difference_named(tmp_path):
    path, *_ = saved(tmp_path)
    other = BertConfig.from_dict(CONFIG.to_dict() | {"vocab_size": 98, "hidden_dropout_prob": 0.2})
    with pytest.raises(
        InputError, match=r"vocab_size=99 there, 98 here; hidden_dropout_prob=0.1 there, 0.2 here"
    ):
        load_checkpoint(path, other)
    with pytest.raises(InputError, match="another configuration"):  # not passed over as if it were damaged
        latest(tmp_path, other)


def test_latest_passes_over_a_damaged_file_and_names_it(tmp_path):
    saved(tmp_path, 3)
    path, *_ = saved(tmp_path, 20)
    cut(path, 999)
    said = []
    assert latest(tmp_path, CONFIG, said.append).state["step"] == 3
    assert len(said) == 1 and path.name in said[0]


def test_latest_goes_by_the_step_and_not_by_the_date(tmp_path):
    for step in (100, 9, 20):
        saved(tmp_path, step)
    assert latest(tmp_path).state["step"] == 100
    assert [int(path.stem[5:]) for path in checkpoints(tmp_path)] == [9, 20, 100]


def test_no_checkpoint_is_none_and_only_damaged_ones_are_an_error(tmp_path):
    assert latest(tmp_path) is None
    path, *_ = saved(tmp_path)
    cut(path, 10)
    with pytest.raises(RunError, match="None of the 1 checkpoints"):
        latest(tmp_path, warn=lambda text: None)


def test_prune_keeps_the_newest(tmp_path):
    for step in range(1, 6):
        saved(tmp_path, step)
    (tmp_path / "step-notes.safetensors").touch()  # not ours
    prune(tmp_path, 0)
    assert len(checkpoints(tmp_path)) == 5
    prune(tmp_path, 2)
    assert [path.name for path in checkpoints(tmp_path)] == [
        "step-000000004.safetensors",
        "step-000000005.safetensors",
    ]
    assert (tmp_path / "step-notes.safetensors").exists()


def test_prune_keeps_the_checkpoint_just_written_though_a_damaged_one_is_later(tmp_path):
    for step in (10, 15, 20):
        saved(tmp_path, step)
    cut(checkpoint_path(tmp_path, 20), 99)
    prune(tmp_path, 1, step=15)
    assert latest(tmp_path, warn=lambda text: None).state["step"] == 15


def test_files_are_written_where_folders_cannot_be_opened_and_flushing_needs_write_access(
    tmp_path, monkeypatch
):
    real, writable = os.open, set()

    def windows_opens(path, flags, *rest, **more):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        handle = real(path, flags, *rest, **more)
        (writable.add if flags & (os.O_RDWR | os.O_WRONLY) else writable.discard)(handle)
        return handle

    def windows_flushes(handle):
        if handle not in writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(files.os, "open", windows_opens)
    monkeypatch.setattr(files.os, "fsync", windows_flushes)
    files.atomic_text(tmp_path / "text", "whole")
    files.write_folder_atomically(tmp_path / "folder", lambda place: (place / "a").write_text("b"))
    assert (tmp_path / "text").read_text() == "whole" and (tmp_path / "folder" / "a").read_text() == "b"


def full_disk(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("where", ["fsync", "replace", "write"])
def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch, where):
    saved(tmp_path, 1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    if where == "write":
        monkeypatch.setattr(files, "open", full_disk, raising=False)
    else:
        monkeypatch.setattr(files.os, where, full_disk)
    with pytest.raises(
        RunError, match=r"step-000000002.safetensors could not be written: No space left on device"
    ):
        saved(tmp_path, 2)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.skipif(os.name != "posix", reason="file size limits are POSIX")
def test_the_writers_own_error_is_a_run_error_too(tmp_path):
    import resource
    import signal

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(RunError, match="could not be written"):
            saved(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []
