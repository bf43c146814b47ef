"""Plans of `scale_plan.py` as tables and sentences."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tokenizer_jobs.tables import table

from peers.hardware import BATCH, DEVICES, GB, LENGTHS, PUBLISHED, STEPS
from peers.scaling import (
    STATE_BYTES,
    USABLE,
    Plan,
    Stage,
    Step,
    masked_positions,
    parameters,
    schedule_operations,
    sequence_bytes,
    state_bytes,
    step,
)

LONGEST = max(seq for seq, _ in LENGTHS)
HEAD = "devices|memory, GB|sequences at a time|ms a step|computing|waiting|the training"
LIMITS = """\
What this does not show: how the MFU falls when a device has few tokens at a time; the latency of links, which
counts where devices are many and messages short; that links within a node and between nodes differ; what
compilers keep beyond what backward asks for (where it was looked at, XLA on a CPU took 1.3 to 2 times that);
reading data, saving, evaluating, devices that break. And whether a larger batch learns as much from as many
sequences: it does up to a point, which LAMB moves to some tens of thousands."""


class Row(NamedTuple):
    """A plan for one number of devices."""

    devices: int
    batch: int  # sequences of the longest length
    steps: float
    stages: list[Step]
    seconds: float  # of the whole training

    @property
    def fits(self) -> bool:
        """Whether every stage can be done."""
        return all(one.fits for one in self.stages)

    def share(self, what: str) -> float:
        """What part of the training is `computing`, `updating` or `waiting`."""
        parts = (share * getattr(one, what) for (_, share), one in zip(LENGTHS, self.stages, strict=True))
        return self.steps * sum(parts) / self.seconds


def schedule(batch: int) -> list[Stage]:
    """The paper's: as many sequences in all, whatever the batch; as many tokens a step at each length."""
    return [Stage(seq, batch * LONGEST // seq, share * STEPS * BATCH / batch) for seq, share in LENGTHS]


def planned(plan: Plan, devices: int, batch: int) -> Row:
    """What to expect of so many devices; the batch is raised to a multiple of them."""
    batch = -(-batch // devices) * devices
    stages = schedule(batch)
    found = [step(plan, devices, one.sequences, one.seq) for one in stages]
    seconds = sum(stage.steps * one.seconds for stage, one in zip(stages, found, strict=True))
    return Row(devices, batch, sum(stage.steps for stage in stages), found, seconds)


class Case:
    """One size on all numbers of devices.

    Parameters
    ----------
    size, plan : the model and what is assumed.
    how : where the MFU comes from.
    batch : sequences of the longest length a step, as asked for.
    devices : how many, one row each.
    """

    def __init__(self, size: str, plan: Plan, how: str, batch: int, devices: Iterable[int]) -> None:
        self.size, self.plan, self.how, self.batch = size, plan, how, batch
        self.rows = [planned(plan, count, batch) for count in devices]

    def record(self) -> dict[str, Any]:
        """For --json; seconds, bytes, bytes a second."""
        rows = [
            row._asdict()
            | {"stages": [one._asdict() | {"seconds": one.seconds} for one in row.stages], "fits": row.fits}
            for row in self.rows
        ]
        return {
            "size": self.size,
            "parameters": parameters(self.plan.config),
            "device": self.plan.device._asdict(),
            "link": self.plan.link,
            "assumed": self.assumptions(),
            "rows": rows,
        }

    def text(self) -> str:
        """The table, and what it needs to be understood."""
        plan, device = self.plan, self.plan.device
        title = (
            f"**BERT-{self.size.upper()}** on {device.title} ({device.flops / 1e12:.4g} TFLOP/s, "
            f"{device.memory / GB:.0f} GB, {device.bandwidth / GB:,.0f} GB/s: {device.source}), a link of "
            f"{plan.link / GB:g} GB/s. Of two figures the first is for sequences of 128, the second of 512."
        )
        return "\n\n".join([title, table(HEAD, (self.cells(row) for row in self.rows)), *self.remarks()])

    def cells(self, row: Row) -> list[str]:
        """A line of the table."""
        count = f"{row.devices:,}" + ("\\*" if row.batch != self.batch else "")
        memory = " · ".join(f"{one.memory / GB:.1f}" for one in row.stages)
        if not row.fits:
            return [count, memory, "not one fits", "", "", "", ""]
        return [
            count,
            memory,
            " · ".join(f"{one.at_once:,}" for one in row.stages),
            " · ".join(f"{1000 * one.seconds:,.0f}" for one in row.stages),
            f"{row.share('computing'):.0%}",
            f"{row.share('waiting'):.0%}",
            duration(row.seconds),
        ]

    def remarks(self) -> list[str]:
        """On batches that were raised and on what does not fit."""
        found, plan = [], self.plan
        if any(row.batch != self.batch for row in self.rows):
            found.append(
                f"\\* {self.batch:,} sequences cannot be shared out equally: the batch is the next multiple "
                "of the devices, with fewer steps for as many sequences in all."
            )
        if missing := [row.devices for row in self.rows if not row.fits]:
            need = state_bytes(plan, missing[-1]) + sequence_bytes(plan, LONGEST)
            ways = [f"--{name}" for name in ("recompute", "fsdp") if not (getattr(plan, name) or plan.fsdp)]
            found.append(
                f"A single sequence of {LONGEST} would take {need / GB:.1f} GB on each of {missing[-1]:,} "
                f"devices, and at most {USABLE * plan.device.memory / GB:.1f} GB can be filled; "
                + (f"try {' or '.join(ways)}." if ways else "this takes devices with more memory.")
            )
        return found

    def assumptions(self) -> list[str]:
        """Sentences."""
        plan, width, n = self.plan, self.plan.device.width, parameters(self.plan.config)
        lengths = ", ".join(f"{share:.0%} of the steps at {seq}" for seq, share in LENGTHS)
        masked = " and ".join(f"{masked_positions(seq)} of {seq}" for seq, _ in LENGTHS)
        steps = STEPS * BATCH / self.batch
        mfu = " and ".join(f"{plan.mfu[seq]:.0%} at {seq}" for seq, _ in LENGTHS)
        total = schedule_operations(plan.config, schedule(BATCH))
        return [
            f"The paper's schedule: {steps:,.0f} steps, {lengths}, with {self.batch:,} sequences of "
            f"{LONGEST} or as many tokens of shorter ones, all of them full.",
            f"{total:.2g} useful operations in all: matrix products over tokens, vocabulary scores of the "
            f"masked positions only ({masked}).",
            f"An MFU of {mfu}, {self.how}, of forward and backward"
            + (", without recomputation, which takes a third longer." if plan.repeats else "."),
            f"Clipping and AdamW read and write {n:,} parameters with their gradients and moments once"
            + (", each device its share." if plan.fsdp else ", on every device."),
            f"Memory: {STATE_BYTES} bytes a parameter in float32"
            + (", divided among the devices" if plan.fsdp else "")
            + (f", its {width}-byte copy to multiply with" if width < 4 else "")
            + "; for backward, of each token and layer, "
            + (
                "the layer's input alone, and everything of one layer at a time; "
                if plan.repeats
                else f"what the hand-written backward asks for, 10 H + 2 F numbers of {width} bytes"
                + ("; " if plan.device.fused else " and its row of attention's maps in float32; ")
            )
            + f"vocabulary scores of masked positions twice. At most {USABLE:.0%} is filled: a share that "
            "does not fit is computed in micro-batches.",
            (
                "Traffic in a ring: in every micro-batch a layer's weights are gathered for forward and for "
                "backward, and gradients reduced and scattered, each (d-1)/d of their bytes in float32"
                if plan.fsdp
                else "Traffic in a ring: once a step 2 (d-1)/d of the gradients' bytes"
            )
            + f". {plan.overlap:.0%} of it goes on while backward computes (--overlap).",
        ]


def text(cases: list[Case]) -> str:
    """Everything."""
    return "\n\n".join([*(case.text() for case in cases), assumed(cases), others(), LIMITS])


def assumed(cases: list[Case]) -> str:
    """The assumptions of all of them; what is true of every size is said once."""
    lines = []
    for sentences in zip(*(case.assumptions() for case in cases), strict=True):
        if len(set(sentences)) == 1:
            lines.append(f"- {sentences[0]}")
        else:
            lines += [f"- {case.size.upper()}: {one}" for case, one in zip(cases, sentences, strict=True)]
    return "\n".join(["Assumed:", *lines])


def others() -> str:
    """What others report, as a measure for the MFU."""
    lines = [
        [
            f"{one.who}, {one.size.upper()}",
            f"{one.devices:,} × {DEVICES[one.device].title}",
            duration(3600 * one.hours),
            f"{one.mfu:.0%}",
        ]
        for one in PUBLISHED
    ]
    return table("others|devices|the training|an MFU of", iter(lines))


def duration(seconds: float) -> str:
    """In a unit that suits it."""
    for unit, name in ((86400 * 365.25, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:.0f} seconds"
