"""Kills and faults on demand: a process that runs commands, each in a fork, and lets something happen to one.

    python tests/support/faults.py ENGINE   reads what to run from standard input, a line of JSON each

A process forks for every command, so that nothing is imported twice; `Server` of `disturbed` talks to it.
"""

import builtins
import errno
import fcntl
import gc
import importlib
import io
import json
import math
import os
import pkgutil
import pty
import resource
import signal
import sys
import tempfile
import termios
import time
import traceback
from contextlib import suppress
from pathlib import Path

from disturbed import HUNG, KILLED

import minibert
from minibert import engines
from minibert.reports import markup
from minibert.training.runlog import EventFile

CALLS = ("fsync", "link", "mkdir", "remove", "rename", "replace", "rmdir", "unlink")  # of os; and "write"
TAKING_SPACE = ("fsync", "link", "mkdir", "write")
PATIENCE = 300  # seconds of processor time that a command may take
LONGEST = 20 * PATIENCE  # by the clock: on a busy machine a command waits for most of the time
POLL = 0.002  # seconds between two looks at a command that runs
REAL = {name: getattr(os, name) for name in CALLS}
REAL_OPEN = os.open
PAGE = resource.getpagesize()


class Disk:
    """Counts what a process does to the files under `root`; the call of number `at` meets with a fault.

    "once": that call fails as on a full disk; of a write half is done. "full": so do all later ones that
    take space. "read-only": that call and all later ones fail as on a drive that is mounted to be read only.
    "kill": the process ends there, and what was written but not flushed to the disk is lost, as when the
    power goes. "clock": the time of day jumps by `jump` seconds. "stop": the process waits for SIGCONT.
    """

    def __init__(self, root, kind="once", at=None, jump=0):
        self.root, self.kind, self.at, self.jump = root, kind, at, jump
        self.calls, self.unsafe = [], {}  # unsafe: inode -> a handle, and how many bytes are on the disk

    def meet(self, call, half=lambda: None):
        """Count a call; fail if it is the one."""
        number = len(self.calls)
        self.calls.append(call)
        if self.at is None or number < self.at:
            return
        if number == self.at or (self.kind == "full" and call in TAKING_SPACE) or self.kind == "read-only":
            getattr(self, f"_{self.kind.replace('-', '_')}")(call, half)

    def _once(self, call, half):
        half()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    _full = _once

    def _read_only(self, call, half):
        if call not in ("fsync", "write"):  # which take an open file, and no new one can be opened
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def _kill(self, call, half):
        half()
        for handle, size in self.unsafe.values():
            os.ftruncate(handle, min(size, os.fstat(handle).st_size))
        os._exit(KILLED)

    def _clock(self, call, half):
        real = time.time
        time.time = lambda: real() + self.jump

    def _stop(self, call, half):
        os.kill(os.getpid(), signal.SIGSTOP)

    def concerns(self, path):
        """Whether a path is under the root."""
        return os.path.abspath(path).startswith(self.root)

    def patch(self):
        """Stand between this process and its files from now on."""
        for name in CALLS:
            setattr(os, name, lambda path, *rest, _name=name, **more: self.call(_name, path, *rest, **more))
        self.open, builtins.open, io.open = io.open, self.opened, self.opened
        os.open = self.low_opened

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

    def low_opened(self, path, flags, *rest, **more):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self.refuse_opening(path)
        return REAL_OPEN(path, flags, *rest, **more)

    def opened(self, file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, **more):
        if not set(mode) & set("wax+") or isinstance(file, int) or not self.concerns(file):
            return self.open(file, mode, buffering, encoding, errors, newline, **more)
        self.refuse_opening(file)
        raw = File(file, mode.replace("b", "").replace("t", ""), **more)
        raw.disk, found = self, os.fstat(raw.fileno())
        self.unsafe.setdefault(found.st_ino, (os.dup(raw.fileno()), found.st_size))
        whole = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
        return whole if "b" in mode else io.TextIOWrapper(whole, encoding, errors, newline)

    def refuse_opening(self, path):
        """Refuse to open a file for writing where the drive can only be read by now."""
        if (
            self.kind == "read-only"
            and self.at is not None
            and len(self.calls) >= self.at
            and self.concerns(path)
        ):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))


class File(io.FileIO):
    """One that is written into."""

    def write(self, data):
        data = memoryview(data).cast("B")
        self.disk.meet("write", half=lambda: super(File, self).write(data[: len(data) // 2]))
        return super().write(data)


def serve(engine="numpy"):
    """Run commands, each in a fork, and answer with their exit status."""
    from minibert.pretraining import page

    page.REFRESH = math.inf  # by the clock it would be written more or less often
    engines.peak = lambda *_, **__: None  # which only the speeds are compared with
    import_all(engine)

    for line in sys.stdin:
        answer(json.loads(line))


def import_all(engine):
    """Import, before the forks, what commands import later: the package, and an engine's library."""
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # which compiles sooner
    if engine == "jax":
        importlib.import_module("jax")  # without asking for its devices, which only one process can use
    others = tuple(f"minibert.{name}" for name in ("course", "core.__main__", "__main__", "engines"))
    for module in pkgutil.walk_packages(minibert.__path__, "minibert."):
        if not module.name.startswith(others) or module.name.startswith(f"minibert.engines.{engine}"):
            importlib.import_module(module.name)
    importlib.import_module("scipy.stats")
    with tempfile.TemporaryDirectory() as folder:
        EventFile(Path(folder), 0).close()  # which imports tensorboardX without torch
    for template in markup.TEMPLATES.glob("*.j2"):
        markup._environment(markup.TEMPLATES).get_template(template.name)  # is compiled
    gc.freeze()  # so that no fork touches, and copies, all objects


def reply(**found):
    print(json.dumps(found), flush=True)


def answer(asked):
    """Run one command; between the answer "stopped" and a signal to it, run others."""
    watch = Watch(**{name: asked.pop(name) for name in ("after", "send", "terminal") if name in asked})
    process = watch.fork(asked)
    while (status := watch.wait(process, asked["errors"])) is None:
        reply(stopped=True)
        for line in sys.stdin:
            more = json.loads(line)
            if "signal" in more:
                os.kill(process, more["signal"])
                break
            answer(more)
    reply(status=status)


class Watch:
    """What happens to a command after some seconds: it gets the signal `send`, or its terminal is closed."""

    def __init__(self, after=None, send=None, terminal=False):
        self.after, self.send = after, send
        self.master, self.slave = pty.openpty() if terminal else (None, None)

    def fork(self, asked):
        """Begin to run a command: the process."""
        process = os.fork()
        if not process:
            if self.slave is not None:
                os.close(self.master)  # of which the other process alone is to have one
                os.setsid()
                fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            run(**asked, terminal=self.slave)
        if self.slave is not None:
            os.close(self.slave)
            os.set_blocking(self.master, False)
        self.began = time.monotonic()
        return process

    def wait(self, process, errors):
        """Wait until it has ended, and return its exit status, or until it stops itself: None."""
        while True:
            self._read(errors)
            ended, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED)
            if ended:
                self._close(errors)
                return None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
            passed = time.monotonic() - self.began
            if self.after is not None and passed >= self.after:
                self.after = None
                if self.master is None:
                    os.kill(process, self.send)
                else:
                    self._close(errors)
            if passed > PATIENCE and (spent(process) > PATIENCE or passed > LONGEST):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                return HUNG
            time.sleep(POLL)

    def _read(self, errors):
        """Add to a file what the command has printed to its terminal."""
        if self.master is None:
            return
        try:
            while text := os.read(self.master, 1 << 16):
                with open(errors, "ab") as file:
                    file.write(text)
        except OSError:  # nothing more for now, or for ever
            pass

    def _close(self, errors):
        self._read(errors)
        if self.master is not None:
            os.close(self.master)
            self.master = None


def run(words, root, errors, calls, engine="auto", memory=None, terminal=None, **fault):
    """Run one command and end the process. What it did to the disk goes to the file `calls`."""
    from minibert import cli

    status = 70  # of no command
    with open(errors, "w") as file:
        for number in (1, 2):  # native libraries write there, too
            os.dup2(terminal or file.fileno(), number)
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", buffering=1) for number in (1, 2))
    try:
        if words[0] == "reproduce":
            import small_experiment

            small_experiment.install(engine)
        disk = Disk(root, **fault)
        disk.patch()
        before = mapped()
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (before + memory, resource.RLIM_INFINITY))
        status = cli.main(words)
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # by now they come too late
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        Path(calls).write_text(json.dumps({"calls": disk.calls, "memory": mapped("VmPeak") - before}))
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):  # of a terminal that is closed
            sys.stdout.flush()
        os._exit(status)


def spent(process):
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]  # of man 5 proc, which counts the two before this part, and from 1
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def mapped(name="VmSize"):
    """Return the bytes of address space that this process has, or had at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    serve(*sys.argv[1:])
