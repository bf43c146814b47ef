"""The measurements of the tokenizer's benchmark as Markdown, for the terminal and docs/results.md alike."""

import statistics
from collections.abc import Iterator
from typing import Any

from minibert.base.errors import InputError

BEGIN = "<!-- written by `python benchmarks/tokenizer.py --write-results` -->"
END = "<!-- end of what is written -->"

BATCHES = "encode|threads|ids|`encode_batch_fast`|ratio|with offsets|`encode_batch`|ratio"
STRINGS = "one string|minibert|`tokenizers`|ratio"
LEARNING = "learn|threads|minibert|`tokenizers`|ratio"
SHARDS = "token shards, all cores|speed|peak memory"

LIMITS = """\
Not covered: other machines, languages and lengths of text, and more than two threads. Hugging Face returns
objects from which the ids must still be read one by one, which is not timed; minibert returns arrays. The
corpora for learning repeat one text (54 MB of Wikipedia); real text of that size has more different words,
and memory depends on these. Hugging Face has no likelihood objective, and its trainer breaks ties
differently in every run, so the two vocabularies share most pieces but not all."""


class Tables:
    """Everything that was measured, as text.

    Parameters
    ----------
    found : what `benchmarks/tokenizer.py --json` prints.
    """

    def __init__(self, found: dict[str, Any]):
        self.found = found

    def text(self) -> str:
        """All tables, one after the other, with what they do not show."""
        parts = [f"{self.found['machine']}; medians."]
        if self.found["quick"]:
            parts.append("Measured with --quick: small texts, few rounds; no figure to quote.")
        if "batches" in self.found:
            parts.append(table(BATCHES, self.encoding()))
            parts.append(self.agreement())
            parts.append(table(STRINGS, self.short()))
        if "learning" in self.found:
            parts.append(table(LEARNING, self.learning()))
            parts.append(self.vocabularies())
        if "shards" in self.found:
            parts.append(table(SHARDS, self.shards()))
        return "\n\n".join([*parts, LIMITS])

    def encoding(self) -> Iterator[list[str]]:
        """Megabytes a second of batches. Only `encode_batch` finds offsets on the other side."""
        for batch in self.found["batches"]:
            speed = {way: batch["bytes"] / 1e6 / statistics.median(s) for way, s in batch["seconds"].items()}
            yield [
                batch["title"],
                str(batch["threads"]),
                f"{speed['minibert ids']:.0f} MB/s",
                f"{speed['hf ids']:.1f} MB/s",
                times(speed["minibert ids"] / speed["hf ids"]),
                f"{speed['minibert offsets']:.0f} MB/s",
                f"{speed['hf offsets']:.1f} MB/s",
                times(speed["minibert offsets"] / speed["hf offsets"])
                + f" ({times(speed['minibert offsets'] / speed['hf ids'])} of `fast`)",
            ]

    def short(self) -> Iterator[list[str]]:
        """Microseconds for one string from Python."""
        for string in self.found["short"]:
            own, other = (statistics.median(string["micros"][peer]) for peer in ("minibert", "hf"))
            yield [string["title"], f"{own:.2f} µs", f"{other:.1f} µs", times(other / own)]

    def agreement(self) -> str:
        """What was compared before it was timed."""
        said = {}
        for batch in self.found["batches"]:
            n, others = batch["texts"], batch["texts_left_out"]
            left_out = f" ({others:,} others, whose ids differ, were left out)" if others else ""
            said[batch["title"]] = (
                f"{batch['title']}, {batch['bytes'] / 1e6:.1f} MB in {n:,} texts{left_out}, {batch['ids']:,} "
                f"equal ids, {batch['offsets_that_differ']:,} different offsets"
            )
        return "Compared before the timing: " + "; ".join(said.values()) + "."

    def learning(self) -> Iterator[list[str]]:
        """Seconds and peak memory of a whole run, reading included."""
        for run in self.found["learning"]:
            pieces, threads = f"{run['pieces']:,} pieces, {run['megabytes']} MB", str(run["threads"])
            own, other = spent(run["frequency"]), spent(run["hf"])
            yield [f"{pieces}, frequency", threads, shown(own), shown(other), times(other[0] / own[0])]
            slower = spent(run["likelihood"])
            ratio = f"{slower[0] / own[0]:.1f}× the time of frequency"
            yield [f"{pieces}, likelihood", threads, shown(slower), "has none", ratio]
        for run in self.found["large"]:
            what = "new words in every repetition" if run["new_words"] else "repeated"
            title = f"{run['megabytes']} MB, {what} ({run['words'] / 1e6:.1f} million different), likelihood"
            yield [title, "2", shown((run["seconds"], run["peak"])), "", ""]

    def vocabularies(self) -> str:
        """How alike the frequency vocabularies are."""
        run = self.found["learning"][-1]
        return (
            f"Of {run['pieces']:,} pieces of Hugging Face's trainer, {run['pieces_in_common']:,} are in the "
            "frequency vocabulary as well."
        )

    def shards(self) -> Iterator[list[str]]:
        for run in self.found["shards"]:
            speed = run["bytes"] / 1e6 / run["seconds"]
            yield [f"{run['bytes'] / 1e6:.0f} MB", f"{speed:.0f} MB/s", f"{run['peak'] / 1e6:.0f} MB"]


def spent(runs: list[dict[str, Any]]) -> tuple[float, float]:
    """Median seconds and peak of memory."""
    return statistics.median(run["seconds"] for run in runs), statistics.median(run["peak"] for run in runs)


def shown(seconds_and_peak: tuple[float, float]) -> str:
    return f"{seconds_and_peak[0]:.1f} s, {seconds_and_peak[1] / 1e6:.0f} MB"


def times(ratio: float) -> str:
    return f"{ratio:.1f}×" if ratio < 10 else f"{ratio:.0f}×"


def table(head: str, rows: Iterator[list[str]]) -> str:
    names = head.split("|")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def replace_between_marks(page: str, text: str, mark: str = BEGIN, name: str = "results.md") -> str:
    """The text of a page with other tables after a mark; `name` is for the complaint.

    Raises
    ------
    InputError
        When it has not got the two marks, one after the other.
    """
    head, begin, rest = page.partition(mark)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise InputError(
            f"{name} lacks the line {mark!r} or, after it, {END!r}; put both where the tables go."
        )
    return f"{head}{mark}\n\n{text}\n\n{END}{tail}"
