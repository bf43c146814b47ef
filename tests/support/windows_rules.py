"""Hold this process to the rules of Windows, as far as a machine without it can.

`hold()` takes away what Python lacks there, and refuses what Windows refuses: to open a folder, to put
something in the place of a folder, and to remove, replace or move a file that this process has open or
mapped. It can't be undone (an audit hook can't be removed), so it is for processes of their own.
"""

import os
import shutil
import signal
import subprocess  # noqa: F401 (modules that read the names below as they are imported)
import sys
import tempfile  # noqa: F401
from multiprocessing import connection  # noqa: F401
from pathlib import Path

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
OF_OS = (
    *("fork", "geteuid", "getuid", "killpg", "posix_fallocate", "register_at_fork"),
    *("sched_getaffinity", "setsid", "sysconf", "wait4"),
)
SIGNALS = ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPROF", "SIGUSR1", "SIGVTALRM", "SIGXCPU")
OF_SIGNAL = (*SIGNALS, "alarm", "pthread_sigmask", "setitimer", "sigwait")


def hold() -> None:
    """Begin."""
    for name in MODULES:
        sys.modules[name] = None
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
        for name in names:
            delattr(module, name)
    shutil._use_fd_functions = False  # `shutil.rmtree` would open folders
    sys.addaudithook(refuse)


def refuse(event: str, arguments: tuple) -> None:
    """Raise the PermissionError that Windows would; called before Python does something."""
    if event == "open" and arguments[1] is None and os.path.isdir(arguments[0]):  # os.open
        raise PermissionError(13, "is a folder", str(arguments[0]))
    if event == "os.remove":
        require_closed(arguments[0])
    if event == "os.rename":
        source, target = arguments[:2]
        require_closed(source)
        require_closed(target)
        if os.path.isdir(target):
            raise PermissionError(13, "a folder is in its place", str(target))


def require_closed(path) -> None:
    """Raise PermissionError if this process has a file, or one in a folder, open or mapped."""
    path = os.path.realpath(path)
    for used in used_files():
        if used == path or used.startswith(path + os.sep):
            raise PermissionError(13, "is in use", used)


def used_files() -> set[str]:
    """List the files that this process has open or mapped."""
    used = set()
    for link in os.listdir("/proc/self/fd"):
        try:
            used.add(os.readlink(f"/proc/self/fd/{link}"))
        except OSError:  # that of the listing
            continue
    mapped = Path("/proc/self/maps").read_text().splitlines()
    return used | {line.split(maxsplit=5)[5] for line in mapped if line.count("/")}
