"""Pre-training runs of a second, and ways to change what they leave in their folders."""

import json
from pathlib import Path

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
