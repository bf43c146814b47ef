"""Disk faults on demand: each write, flush, rename and removal of a command counted, and one made to fail.

    python tests/support/faults.py   reads what to run from standard input, a line of JSON for each command

A process forks for every command, so that nothing is imported twice. `FaultyRuns` is the other end.
"""

import builtins
import errno
import io
import json
import math
import os
import sys
import traceback
from pathlib import Path

CALLS = ("fsync", "link", "mkdir", "remove", "rename", "replace", "rmdir", "unlink")  # of os; and "write"
TAKING_SPACE = ("fsync", "link", "mkdir", "write")
KILLED = 137
REAL = {name: getattr(os, name) for name in CALLS}


class Disk:
    """Counts what a process does to the files under `root`; the call of number `at` meets with a fault.

    "once": that call fails as on a full disk; of a write half is done. "full": so do all later ones that
    take space. "kill": the process ends there, and what was written but not flushed to the disk is lost, as
    when the power goes.
    """

    def __init__(self, root, kind="once", at=None):
        self.root, self.kind, self.at = root, kind, at
        self.calls, self.unsafe = [], {}  # unsafe: inode -> a handle, and how many bytes are on the disk

    def meet(self, call, half=lambda: None):
        """Count a call; fail if it is the one."""
        number = len(self.calls)
        self.calls.append(call)
        later = self.kind == "full" and call in TAKING_SPACE
        if self.at is None or number < self.at or (number > self.at and not later):
            return
        half()
        if self.kind != "kill":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for handle, size in self.unsafe.values():
            os.ftruncate(handle, min(size, os.fstat(handle).st_size))
        os._exit(KILLED)

    def concerns(self, path):
        """Whether a path is under the root."""
        return os.path.abspath(path).startswith(self.root)

    def patch(self):
        """Stand between this process and its files from now on."""
        for name in CALLS:
            setattr(os, name, lambda path, *rest, _name=name, **more: self.call(_name, path, *rest, **more))
        self.open, builtins.open, io.open = io.open, self.opened, self.opened

    def call(self, name, path, *rest, **more):
        if name == "fsync":
            self.meet(name)  # which is all: the disk is a simulated one
            found = os.fstat(path)
            if found.st_ino in self.unsafe:
                self.unsafe[found.st_ino] = self.unsafe[found.st_ino][0], found.st_size
            return None
        if more.get("dir_fd") is not None or self.concerns(path):  # the first in `rmtree`
            self.meet(name)
        return REAL[name](path, *rest, **more)

    def opened(self, file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *rest):
        if not set(mode) & set("wax+") or isinstance(file, int) or not self.concerns(file):
            return self.open(file, mode, buffering, encoding, errors, newline, *rest)
        raw = File(file, mode.replace("b", "").replace("t", ""))
        raw.disk, found = self, os.fstat(raw.fileno())
        self.unsafe.setdefault(found.st_ino, (os.dup(raw.fileno()), found.st_size))
        whole = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
        return whole if "b" in mode else io.TextIOWrapper(whole, encoding, errors, newline)


class File(io.FileIO):
    """One that is written into."""

    def write(self, data):
        data = memoryview(data).cast("B")
        self.disk.meet("write", half=lambda: super(File, self).write(data[: len(data) // 2]))
        return super().write(data)


def serve():
    """Run commands, each in a fork, and tell their exit status."""
    import tensorboardX.proto.event_pb2  # noqa: F401

    from minibert import engines
    from minibert.pretraining import page

    page.REFRESH = math.inf  # by the clock it would be written more or less often
    engines.peak = lambda *_, **__: None  # which only the speeds are compared with

    for line in sys.stdin:
        asked = json.loads(line)
        if not (process := os.fork()):
            run(**asked)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def run(words, root, errors, calls, kind="once", at=None):
    """Run one command and end the process. What it did to the disk goes to the file `calls`."""
    from minibert import cli

    status = 70  # of no command
    sys.stdout = sys.stderr = open(errors, "w", encoding="utf-8", buffering=1)
    try:
        disk = Disk(root, kind, at)
        disk.patch()
        status = cli.main(words)
        Path(calls).write_text(json.dumps(disk.calls))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
