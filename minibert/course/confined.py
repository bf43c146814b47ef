"""A student's function, run where it can do no harm: in a process of its own, which gives back data alone.

Each call is made by a fork, which has the arguments already. It may use so much time and memory, has no file
that it could read or write but the pipe of its answer, and ends at once when it does what `FORBIDDEN` lists.
Whoever judges never runs a student's code, and so what that does to NumPy changes no judgement.
"""

import __future__

import ast
import inspect
import json
import linecache
import math
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple, NoReturn

from minibert.course.answers import Answer
from minibert.course.carried import leaves_of, made_again, packed, restore, unpacked
from minibert.course.running import Plain, Rejected, call

SECONDS = 10.0  # of processor time, for all the questions of one exercise
PATIENCE = 6.0  # times as long by the clock, for functions that sleep
MEMORY = 2**30  # bytes, beside those that the libraries take
MOST = 2**26  # bytes of an answer
FILE = "<answer {}>"  # as tracebacks name it
_PIPE = 3  # the one open file, beside three that lead nowhere
# Beginnings of what Python reports to audit hooks (PEP 578), and what it is in words.
FORBIDDEN = {
    "open": "it opens a file",
    "os.": "it asks the system to act",
    "subprocess.": "it starts a program",
    "socket.": "it uses the network",
    "shutil.": "it changes files",
    "tempfile.": "it makes a file",
    "glob.": "it looks for files",
    "pathlib.": "it looks for files",
    "ctypes.": "it calls native code",
    "mmap.": "it maps memory",
    "fcntl.": "it changes an open file",
    "resource.": "it changes its limits",
    "signal.": "it sends a signal",
    "sqlite3.": "it opens a database",
    "urllib.": "it uses the network",
    "gc.": "it looks through memory",
    "sys.set": "it watches the interpreter",
    "sys.addaudithook": "it watches the interpreter",
    "sys.unraisablehook": "it watches the interpreter",
    "cpython.": "it starts an interpreter",
    "code.": "it makes code",
    "function.__new__": "it makes code",
    "builtins.input": "it asks for input",
}
# The same, where the line that does it is the student's: libraries do so as well.
FORBIDDEN_DIRECTLY = {
    "import": "it imports",
    "exec": "it runs code made from text",
    "compile": "it makes code from text",
    "sys._getframe": "it looks at who called it",
    "sys._current_frames": "it looks at who called it",
    "object.__getattr__": "it looks inside a function",
    "object.__setattr__": "it changes the inside of a function",
    "object.__delattr__": "it changes the inside of a function",
    "marshal.": "it makes code",
    "pickle.": "it makes objects from bytes",
}


class Ended(Plain):
    """A function did not come to its end; `mark` is what a teacher reads."""

    def __init__(self, mark: str, text: str) -> None:
        super().__init__(text)
        self.mark = mark


class Call(NamedTuple):
    """A call that was made, to be repeated where what it returned could not leave its process."""

    run: Callable[..., Any]
    args: Any
    kwargs: Any


class Budget:
    """How much processor time is left, and how it ended where it ended badly.

    Parameters
    ----------
    seconds : float
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.spent = 0.0
        self.waited = 0.0  # seconds by the clock
        self.ended: Ended | None = None


class _Inside:
    """Whether this is the process of an answer; there, functions are called as they are."""

    here = False
    armed = False  # whether the student's own lines are running


class Confined:
    """A student's function.

    Parameters
    ----------
    answer : Answer
        Whose text was found to be allowed.
    budget : Budget
        What it may take.
    """

    def __init__(self, answer: Answer, budget: Budget) -> None:
        self.answer = answer
        self.budget = budget
        self._function: FunctionType | None = None  # in the process of an answer

    def stand_in(self, namespace: dict[str, Any]) -> FunctionType:
        """Make a function that looks like the student's and calls it in another process.

        Parameters
        ----------
        namespace : dict
            Its global names, which are those of the judge.

        Returns
        -------
        function
        """
        run = self._call

        def template(*args: Any, **kwargs: Any) -> Any:
            return run(args, kwargs)

        node = self.answer.node
        assert node is not None
        function = FunctionType(template.__code__, namespace, self.answer.name, None, template.__closure__)
        function.__doc__ = ast.get_docstring(node)
        function.__module__ = "__main__"
        function.__signature__ = signature_of(node)  # type: ignore[attr-defined]
        return function

    def ask(self, question: Callable[[FunctionType], Any]) -> Any:
        """Ask something of the function itself, in a process of its own.

        Parameters
        ----------
        question : function
            Of the student's function; returns what JSON can hold.

        Returns
        -------
        object
        """
        return json.loads(self._forked(lambda: json.dumps(question(self._own())).encode()))

    def _call(self, args: Any, kwargs: Any) -> Any:
        """Call the function in a process of its own; what it changes in its arguments is changed here."""
        if _Inside.here:
            return self._own()(*args, **kwargs)
        # Arrays that come back as they went are the same arrays here.
        given = list(leaves_of((args, kwargs)))
        others = [None if hasattr(one, "dtype") else one for one in given]
        this = Call(self._call, args, kwargs)

        def work() -> bytes:
            before = packed((args, kwargs), others)
            again, more = made_again((args, kwargs), lambda one: one.run(one.args, one.kwargs))
            result = call(_Armed(self._own()), *again, **more)  # type: ignore[arg-type]
            here = list(leaves_of((again, more)))
            are_the_same = len(here) == len(given)
            answer = packed(result, here if are_the_same else given)
            after = packed((args, kwargs), others)
            changed = b"" if after == before else after
            message = b""
            for part in (answer, changed):
                size = len(part).to_bytes(8, "little")
                message += size + part
            return message

        data = self._forked(work)
        try:
            at = 8 + int.from_bytes(data[:8], "little")
            result = unpacked(data[8:at], given, this)
            if data[at + 8 :]:
                restore((args, kwargs), unpacked(data[at + 8 :], others, this))
        except ValueError as error:
            raise self._over("crashed", f"its answer is not data: {error}.") from None
        return result

    def _own(self) -> FunctionType:
        """Return the student's function itself, made from its text; in the process of an answer only."""
        assert _Inside.here
        if self._function is None:
            self._function = defined_alone(self.answer)
        return self._function

    def _over(self, mark: str, text: str) -> Ended:
        """Remember that the function has ended badly."""
        self.budget.ended = Ended(mark, text)
        return self.budget.ended

    def _forked(self, work: Callable[[], bytes]) -> bytes:
        """Do work in a process of its own, and return what it gives back."""
        budget = self.budget
        left = budget.seconds - budget.spent
        patience = PATIENCE * budget.seconds - budget.waited
        if left <= 0 or patience <= 0:
            raise self._over("timed out", _endless(budget))
        reading, writing = os.pipe()
        began = time.monotonic()
        # Ctrl-C goes to both; the child is not to take it for its own, nor the judge to forget the child.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a progress bar's thread, which sleeps
            child = os.fork()
        if not child:
            _in_child(work, writing, left)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            os.close(writing)
            data, why = _received(reading, began + patience)
        except BaseException:  # Ctrl-C
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        finally:
            os.close(reading)
        if why:
            os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
        budget.spent += usage.ru_utime + usage.ru_stime
        budget.waited += time.monotonic() - began
        return self._understood(data, why, status)

    def _understood(self, data: bytes, why: str, status: int) -> bytes:
        """Return what a process gave back; raise what it says, or what its end says."""
        kind, rest = data[:1], data[1:]
        if not why and kind == b"=" and status == 0:
            return rest
        text = rest.decode("utf-8", "replace")
        if why == "time" or _signal_of(status) in (signal.SIGPROF, signal.SIGXCPU):
            raise self._over("timed out", _endless(self.budget))
        if why == "size":
            raise self._over("crashed", f"its answer has more than {MOST >> 20} MiB.")
        if kind == b"-":
            raise Rejected(text)
        if kind == b"!":
            raise self._over("refused", text)
        if kind == b"m":
            raise self._over("crashed", f"it takes more than {MEMORY >> 20} MiB of memory.")
        number = _signal_of(status)
        how = signal.Signals(number).name if number else f"exit status {os.waitstatus_to_exitcode(status)}"
        raise self._over("crashed", f"its process ended before it had an answer ({how}).")


def _endless(budget: Budget) -> str:
    """Return what is said of a function that was stopped."""
    return f"it has no end after {budget.seconds:g} seconds; is there an endless loop?"


def _signal_of(status: int) -> int:
    """Return the number of the signal that ended a process, or 0."""
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def signature_of(node: ast.FunctionDef) -> inspect.Signature:
    """Return the parameters of a function that was parsed; each default is three dots.

    Parameters
    ----------
    node : FunctionDef

    Returns
    -------
    Signature
    """
    kinds = inspect.Parameter
    of = node.args
    positional = [*of.posonlyargs, *of.args]
    required = len(positional) - len(of.defaults)
    found = []
    for place, one in enumerate(positional):
        kind = kinds.POSITIONAL_ONLY if place < len(of.posonlyargs) else kinds.POSITIONAL_OR_KEYWORD
        found.append(kinds(one.arg, kind, default=kinds.empty if place < required else ...))
    if of.vararg:
        found.append(kinds(of.vararg.arg, kinds.VAR_POSITIONAL))
    for one, default in zip(of.kwonlyargs, of.kw_defaults, strict=True):
        found.append(kinds(one.arg, kinds.KEYWORD_ONLY, default=kinds.empty if default is None else ...))
    if of.kwarg:
        found.append(kinds(of.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(found)


def defined_alone(answer: Answer) -> FunctionType:
    """Run the text of an answer, and return its function.

    Parameters
    ----------
    answer : Answer

    Returns
    -------
    function
        Its global names are those of its text alone.

    Raises
    ------
    Rejected
        When it can't be defined.
    """
    file = FILE.format(answer.name)
    text = answer.text
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    try:
        code = compile(text, file, "exec", __future__.annotations.compiler_flag)
        _Armed(exec)(code, namespace)
    except Exception as error:
        raise Rejected(f"it can't be defined: {type(error).__name__}: {error}.") from None
    function = namespace.get(answer.name)
    if not isinstance(function, FunctionType):
        raise Rejected(f"{answer.name} is not a function but {type(function).__name__}.")
    for node in ast.parse(text).body:
        own = namespace.get(getattr(node, "name", ""))
        if isinstance(node, ast.FunctionDef) and isinstance(own, FunctionType):
            own.__course_source__ = ast.get_source_segment(text, node)  # type: ignore[attr-defined]
    return function


class _Armed:
    """A function at which the audit hook looks while it runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__code__ = getattr(function, "__code__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        before = _Inside.armed
        _Inside.armed = True
        try:
            return self._function(*args, **kwargs)
        finally:
            _Inside.armed = before


def _in_child(work: Callable[[], bytes], writing: int, seconds: float) -> NoReturn:
    """Do work in a forked process, write what it gives, and end."""
    told = b"-it could not be called."
    try:
        _Inside.here = True
        _shut_in(writing, seconds)
        told = _told(work)
        view = memoryview(told)
        while view:
            view = view[os.write(_PIPE, view) :]
    finally:
        os._exit(0)  # nothing of the process that was forked is cleaned up here


def _told(work: Callable[[], bytes]) -> bytes:
    """Do work; return what it gives behind "=", or behind another sign what went wrong."""
    try:
        return b"=" + work()
    except MemoryError:
        return b"m"
    except Rejected as wrong:
        if isinstance(wrong.__context__, MemoryError):
            return b"m"
        return b"-" + str(wrong).encode("utf-8", "replace")
    except BaseException as error:
        return f"-it raises {error!r}.".encode("utf-8", "replace")


def _shut_in(writing: int, seconds: float) -> None:
    """Give up what a student's function does not need: files, time, memory, other processes."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the judge, who then ends this process
    for name in ("SIGTERM", "SIGHUP", "SIGPROF", "SIGXCPU", "SIGVTALRM"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    taken = _memory_taken()
    os.dup2(writing, _PIPE)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(_PIPE):
        os.dup2(nowhere, number)
    os.closerange(_PIPE + 1, max(nowhere, writing, resource.getrlimit(resource.RLIMIT_NOFILE)[0]) + 1)
    whole = math.ceil(seconds) + 1
    limits = {
        "RLIMIT_CPU": (whole, whole + 1),
        "RLIMIT_AS": (taken + MEMORY, taken + MEMORY) if taken else None,
        "RLIMIT_FSIZE": (0, 0),
        "RLIMIT_NOFILE": (_PIPE + 1, _PIPE + 1),
        "RLIMIT_NPROC": (0, 0),
        "RLIMIT_CORE": (0, 0),
    }
    for name, limit in limits.items():
        if limit and hasattr(resource, name):
            resource.setrlimit(getattr(resource, name), limit)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    warnings.simplefilter("ignore")
    sys.addaudithook(_look)


def _memory_taken() -> int:
    """Return how many bytes of addresses this process has; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    """End this process when a student's function does what it may not."""
    if not _Inside.armed:
        return
    _Inside.armed = False  # what is done here is not the student's
    caller = sys._getframe(1).f_code.co_filename
    words = next((text for start, text in FORBIDDEN.items() if event.startswith(start)), "")
    if caller.startswith("<frozen importlib") or (event == "open" and _is_of_a_library(arguments)):
        words = ""  # it will find that it can't
    if caller.startswith(FILE[:7]):
        direct = (text for start, text in FORBIDDEN_DIRECTLY.items() if event.startswith(start))
        words = next(direct, words)
    if words:
        about = next((f" ({one!s})" for one in arguments if isinstance(one, str)), "")
        with_event = f"!{words}: {event}{about}."
        os.write(_PIPE, with_event.encode("utf-8", "replace"))
        os._exit(0)
    _Inside.armed = True


def _is_of_a_library(arguments: tuple[Any, ...]) -> bool:
    """Tell whether a library reads a file of its own, as a traceback does."""
    path, mode, *_ = arguments
    if not isinstance(path, str) or not set(mode or "r") <= set("rbt"):
        return False
    return path.endswith((".py", ".pyc", ".so")) and "minibert" not in path


def _received(reading: int, until: float) -> tuple[bytes, str]:
    """Read all that a process writes; return it, and "time" or "size" where that was too much."""
    parts: list[bytes] = []
    size = 0
    while True:
        left = until - time.monotonic()
        ready, _, _ = select.select([reading], [], [], max(0.0, left))
        if not ready:
            return b"".join(parts), "time"
        part = os.read(reading, 2**20)
        if not part:
            return b"".join(parts), ""
        parts.append(part)
        size += len(part)
        if size > MOST:
            return b"", "size"
