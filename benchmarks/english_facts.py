"""Print what docs/models/english.md says about the run of the BERT in the package, and what packing cost.

    python benchmarks/english_facts.py RUN [--packed minibert/pretrained/english] [--book FILE] [--threads N]

Prints Markdown: the size, how long the run took, a digest of its first steps, its losses on held-out text by
step and at the end, by how much rounding changed the weights, and, where a book is named, what that costs in
nats per byte. What an unfinished run does not say yet is left out.
"""

import argparse
import hashlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from english_pack import sizes_of, untrained_in
from peers.bench import ended

from minibert import hub
from minibert.base.bundled_models import DEFAULT, FOLDER
from minibert.base.errors import InputError
from minibert.base.json_files import parse_json, read_json
from minibert.pretraining.predict import evaluate_words
from minibert.reports.held_out import error_text

FIRST = 200  # steps; as every step depends on those before it, their losses tell that two runs are the same
Facts = dict[str, Any]


def facts(run: Path, packed: Path, book: Path | None, threads: int | None) -> Iterator[str]:
    """Yield the lines.

    Parameters
    ----------
    run : Path
        Folder of the run.
    packed : Path
        The folder that was packed from it.
    book : Path or None
        A text on which neither was trained.
    threads : int or None
        Number of threads.

    Yields
    ------
    str
    """
    records = list(records_of(run))
    rows = (*size(run, packed), *length(records), *beginning(records), *at_the_end(run))
    yield from table(("", ""), rows)
    yield ""
    yield from table(("step", "tokens in a text", "held-out loss", "accuracy"), losses(records))
    yield ""
    largest, name, share = rounding(run, packed)
    together = f"all weights together by {share:.1e} of their length"
    yield f"A weight changes by at most {largest:.1e} in float16, {together}."
    yield f"The largest change is in {name}."
    if book:
        exact, rounded = (
            evaluate_words(model, (str(book),), threads=threads).nats_per_byte for model in (run, packed)
        )
        yield f"The loss on {book.name} is {exact:.5f} nats per byte in float32 and {rounded:.5f} packed."


def records_of(run: Path) -> Iterator[Facts]:
    """Yield the lines of the run's `metrics.jsonl`."""
    with (run / "metrics.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            yield parse_json(line)


def size(run: Path, packed: Path) -> Iterator[tuple[str, str]]:
    """Yield how large the packed model is."""
    parameters = sum(value.size for _, value in trained(run, packed))
    yield "parameters", f"{parameters:,}"
    yield "stored", f"{sum(sizes_of(packed).values()) / 1e6:.2f} MB"


def length(records: list[Facts]) -> Iterator[tuple[str, str]]:
    """Yield how far the run came, and how long that took."""
    last = [record for record in records if "seconds" in record][-1]
    hours, seconds = divmod(last["seconds"], 3600)
    yield "steps, tokens", f"{last['step']:,}, {last['tokens']:,}"
    yield "time", f"{hours:.0f} h {seconds / 60:.0f} min, {last['tokens'] / last['seconds']:,.0f} tokens/s"


def beginning(records: list[Facts]) -> Iterator[tuple[str, str]]:
    """Yield a digest of the losses and gradients' norms of the first steps, which are stored exactly."""
    steps = [record for record in records if "loss" in record and record["step"] <= FIRST]
    told = "".join(f"{one['step']} {one['loss']!r} {one['gradient_norm']!r}\n" for one in steps)
    digest = hashlib.sha256(told.encode()).hexdigest()
    yield f"SHA-256 of the losses and norms of the first {len(steps)} steps", f"`{digest[:16]}`"


def at_the_end(run: Path) -> Iterator[tuple[str, str]]:
    """Yield the measurements of held-out text of a finished run."""
    report = run / "report.json"
    if not report.exists():
        return
    held_out = read_json(report)["held_out"]
    targets = f"{held_out['targets']:,} targets{error_text(held_out)}"
    yield "held-out loss", f"{held_out['loss']:.3f} nats ({targets})"
    yield "unigram entropy of these targets", f"{held_out['unigram']:.3f} nats"
    yield "with its context shuffled", f"{held_out['shuffled_loss']:.3f} nats"
    yield "accuracy", f"{held_out['accuracy']:.1%}"


def losses(records: list[Facts]) -> Iterator[tuple[str, ...]]:
    """Yield the held-out losses by step."""
    for record in records:
        if "held_out_loss" in record:
            loss, accuracy = record["held_out_loss"], record["held_out_accuracy"]
            yield f"{record['step']:,}", str(record["seq_length"]), f"{loss:.3f}", f"{accuracy:.1%}"


def rounding(run: Path, packed: Path) -> tuple[float, str, float]:
    """Return the largest change of a weight, its tensor, and the norm of all changes over the weights'."""
    rounded = dict(trained(run, packed))
    exact = dict(trained(run, run))
    changes = {name: value - rounded[name] for name, value in exact.items()}
    largest, name = max((float(np.abs(change).max()), name) for name, change in changes.items())
    return largest, name, norm_of(list(changes.values())) / norm_of(list(exact.values()))


def norm_of(tensors: list[np.ndarray]) -> float:
    """Return the norm of all numbers of some tensors together."""
    return math.sqrt(sum(float(np.square(tensor).sum()) for tensor in tensors))


def trained(run: Path, model: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the tensors of a model that the run trained."""
    _, params, _ = hub.load(model)
    untrained = untrained_in(run)
    for name, value in hub.to_hf(params).items():
        if not name.startswith(untrained):
            yield name, value.astype(np.float64)


def table(head: tuple[str, ...], rows: Any) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    for row in (head, ("---",) + ("---:",) * (len(head) - 1), *rows):
        yield f"| {' | '.join(row)} |"


def main(arguments: list[str] | None = None) -> int:
    """Print; return the exit status."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    found.add_argument("run", type=Path)
    found.add_argument("--packed", type=Path, default=FOLDER / DEFAULT)
    found.add_argument("--book", type=Path)
    found.add_argument("--threads", type=int)
    given = found.parse_args(arguments)
    return ended(lambda: shown(given))


def shown(given: argparse.Namespace) -> int:
    """Print the lines, after a check that there is what they are about."""
    for path in (given.run / "metrics.jsonl", given.packed):
        if not path.exists():
            raise InputError(f"{path} is not there; name a run, and the folder that it was packed into.")
    for line in facts(given.run, given.packed, given.book, given.threads):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
