"""Pre-training runs of a second, and ways to change what they leave in their folders."""

import json
from pathlib import Path

from safetensors import safe_open

from minibert.base.files import atomic_tensors
from minibert.hub.checkpoint import BUFFERS
from minibert.pretraining.options import PretrainOptions


def run_options(corpus: Path | None, **more) -> PretrainOptions:
    """Six steps of two lengths, of which every second leaves a checkpoint that is kept."""
    given = dict(
        corpus=(str(corpus),) if corpus else (), vocab_size=90, seq_length="8:0.5,16:0.5", batch_size=8,
        max_positions=16, steps=6, evaluations=1, held_out=0.2, engine="numpy", threads=1, checkpoint_steps=2,
        keep=0, size="1-16-2",
    )  # fmt: skip
    return PretrainOptions(**given | more)


def change_json(path: Path, **fields) -> None:
    """Set fields of a JSON file; None removes one."""
    stored = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in stored.items() if value is not None}))


def change_lines(path: Path, change) -> None:
    """Write the lines of a file anew, as `change` returns them."""
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def change_record(folder: Path, number: int, **values) -> None:
    """Set values in a line of the log, counted from 1."""

    def changed(lines):
        record = json.loads(lines[number - 1]) | values
        return [*lines[: number - 1], json.dumps(record) + "\n", *lines[number:]]

    change_lines(folder / "metrics.jsonl", changed)


def make_old(folder: Path) -> None:
    """Leave a run as version 0.1 did, without checksums of reports, headers and shards."""
    change_json(folder / "report.json", crc32=None)
    change_json(folder / "shards" / "meta.json", crc32=None)
    options = json.loads((folder / "training.json").read_text())
    change_json(folder / "training.json", engine=None, backend=options["engine"], model=None, init_from=None)
    for path in (folder / "checkpoints").iterdir():
        with safe_open(path, framework="numpy") as file:
            header = json.loads(file.metadata()["minibert"])
            tensors = {name: file.get_tensor(name) for name in BUFFERS}
        del header["crc32"]["header"], header["head"]
        atomic_tensors(path, tensors, {"minibert": json.dumps(header)})
