"""What may happen to a run: the table of disturbances, and how each is drawn."""

import random
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from disturbed import KILLED

SHARE = (0.05, 0.95)  # of the time that a run takes, between which a signal reaches it
DAY = 86400
JUMPS = (-3650 * DAY, -DAY, -3600, 3600, DAY, 3650 * DAY)  # of the clock, in seconds


class Undisturbed(NamedTuple):
    """What is known of a job from a run that nothing happened to."""

    calls: Sequence[str]  # of writing, flushing, renaming, removing, in their order
    seconds: float  # that it took
    memory: int  # bytes of address space that it took


Draw = Callable[[random.Random, Undisturbed], dict[str, Any] | None]  # what `faults` is asked for


class Disturbance(NamedTuple):
    """One row of the table."""

    draw: Draw
    statuses: tuple[int, ...] = (0, 1, 2)  # with which a command may end; a failure has a sentence
    meanwhile: str = ""  # what happens while the run waits: "second", "changed" or "moved"
    about: str = ""  # how it is done, for the page


def sent(name: str) -> Callable[..., dict[str, Any]]:
    """Return what draws a moment at which a signal reaches the run."""

    def draw(rng: random.Random, job: Undisturbed) -> dict[str, Any]:
        return {"after": job.seconds * rng.uniform(*SHARE), "send": int(getattr(signal, name))}

    return draw


def closed(rng: random.Random, job: Undisturbed) -> dict[str, Any]:
    return {"after": job.seconds * rng.uniform(*SHARE), "terminal": True}


def at_any(kind: str, **more: Any) -> Callable[..., dict[str, Any]]:
    """Return what draws one of all calls."""

    def draw(rng: random.Random, job: Undisturbed) -> dict[str, Any]:
        drawn = {name: rng.choice(values) for name, values in more.items()}
        return {"kind": kind, "at": rng.randrange(len(job.calls)), **drawn}

    return draw


def at_one_of(*names: str) -> Callable[..., dict[str, Any] | None]:
    """Return what draws one of the calls with some names, which fails."""

    def draw(rng: random.Random, job: Undisturbed) -> dict[str, Any] | None:
        numbers = [number for number, call in enumerate(job.calls) if call in names]
        return {"kind": "once", "at": rng.choice(numbers)} if numbers else None

    return draw


def limited(rng: random.Random, job: Undisturbed) -> dict[str, Any]:
    return {"memory": int(job.memory * 0.9 * rng.random() ** 2)}


def ends(name: str, status: int) -> tuple[int, ...]:
    """Return how a signal may end a command: as documented or, while it is leaving, by the signal itself."""
    return (0, 1, 2, status, -int(getattr(signal, name)))


ABORTED = tuple(-int(number) for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS))
DISTURBANCES = {
    "SIGKILL": Disturbance(sent("SIGKILL"), (-int(signal.SIGKILL),), about="at a random moment"),
    "SIGTERM": Disturbance(sent("SIGTERM"), ends("SIGTERM", 143), about="at a random moment"),
    "Ctrl-C": Disturbance(sent("SIGINT"), ends("SIGINT", 130), about="SIGINT at a random moment"),
    "closed terminal": Disturbance(
        closed, ends("SIGHUP", 129), about="a pseudo-terminal whose other side is closed at a random moment"
    ),
    "full disk": Disturbance(
        at_any("full"),
        about="from a random call on, every write, flush, link and new folder fails with ENOSPC",
    ),
    "read-only folder": Disturbance(
        at_any("read-only"),
        about="from a random call on, everything that opens for writing, renames or removes fails with EROFS",
    ),
    "failing write": Disturbance(at_one_of("write"), about="one write is half done, then fails with ENOSPC"),
    "failing fsync": Disturbance(at_one_of("fsync"), about="one flush to the disk fails with ENOSPC"),
    "failing rename": Disturbance(at_one_of("rename", "replace"), about="one rename fails with ENOSPC"),
    "failing unlink": Disturbance(
        at_one_of("unlink", "remove", "rmdir"), about="one removal fails with ENOSPC"
    ),
    "power loss": Disturbance(
        at_any("kill"),
        (KILLED,),
        about="the process ends at a random call, a write is half done, and what was not flushed is lost",
    ),
    "memory limit": Disturbance(
        limited, (0, 1, 2, *ABORTED), about="RLIMIT_AS at a random share of what the run needs"
    ),
    "clock jump": Disturbance(
        at_any("clock", jump=JUMPS), about="the time of day jumps by an hour, a day or ten years, either way"
    ),
    "two processes": Disturbance(
        at_any("stop"),
        meanwhile="second",
        about="at a random call, the same command is run a second time",
    ),
    "changed input": Disturbance(
        at_any("stop"),
        (0, 1, 2, -int(signal.SIGKILL)),
        "changed",
        "at a random call, what the run reads is changed; half of the runs are then killed",
    ),
    "moved input": Disturbance(
        at_any("stop"),
        (0, 1, 2, -int(signal.SIGKILL)),
        "moved",
        "at a random call, what the run reads is moved away; half of the runs are then killed",
    ),
}


def change(source: Path) -> None:
    """Change a file that a job reads, in place."""
    data = bytearray(source.read_bytes())
    if source.suffix == ".safetensors":
        data[-1] ^= 1
    else:
        lines = bytes(data).splitlines(keepends=True)
        data = bytearray(b"".join([*lines, *lines[1:4]]))
    source.write_bytes(data)


class Source:
    """What a job reads, and how it was."""

    def __init__(self, path: Path) -> None:
        self.path, self.away, self.kept = path, path.with_name("away"), path.with_name("kept")
        shutil.copy2(path, self.kept)

    def change(self) -> None:
        change(self.path)

    def move(self) -> None:
        self.path.rename(self.away)

    def restore(self) -> None:
        self.away.unlink(missing_ok=True)
        shutil.copy2(self.kept, self.path)
