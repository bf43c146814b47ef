"""Run a student's function where it can do no harm: in a child process, which returns nothing but data.

Each call is made in a fork, which has the arguments already. Its time and memory are limited, its only open
file is the pipe to the judge, and it ends at once when it does something that `FORBIDDEN` lists. The judge's
own process never runs a student's code, so nothing that this code does to NumPy can change a judgement.
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
from minibert.course.carried import (
    first_part,
    has_contents,
    leaves_of,
    made_again,
    packed,
    restore,
    unpacked,
    with_length,
)
from minibert.course.running import SOURCE, Plain, Rejected, call

SECONDS = 10.0  # limit of processor time for all the questions of one exercise
PATIENCE = 6.0  # limit of elapsed time, as a multiple of the processor time: a function may sleep
MEMORY = 2**30  # bytes that a child may allocate in addition to what the judge has allocated already
MOST = 2**26  # bytes of the longest message that the judge reads from a child
FILE_PREFIX = "<answer "
FILE = FILE_PREFIX + "{}>"  # the file name of an answer in tracebacks
_PIPE = 3  # file descriptor of the pipe; 0, 1 and 2 lead to /dev/null

# A child writes one message into its pipe: a byte for its kind, then the body. What the judge does with it:
#
# | kind             | body                               | the judge                                      |
# |------------------|------------------------------------|------------------------------------------------|
# | `=` result       | what the work in the child returns | returns the body, if the child exited with 0   |
# | `-` wrong        | a sentence                         | raises `Rejected`: the answer is wrong         |
# | `!` forbidden    | a sentence                         | raises `Ended`, marked "refused"               |
# | `m` memory       | empty                              | raises `Ended`, marked "crashed"               |
# | no message       |                                    | raises `Ended`, marked "crashed": the child    |
# |                  |                                    | was killed, or ended itself                    |
#
# Before it looks at the message, the judge kills a child that is too slow (marked "timed out") and one that
# writes more than MOST bytes (marked "crashed").
_RESULT_MESSAGE = b"="
_WRONG_MESSAGE = b"-"
_FORBIDDEN_MESSAGE = b"!"
_MEMORY_MESSAGE = b"m"
_TOO_SLOW, _TOO_LONG = "time", "size"  # why the judge stopped reading

# Prefixes of the events that Python reports to audit hooks (PEP 578), each with what it means in words.
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
# Events that are forbidden only where the student's own line causes them: libraries cause them as well.
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
    """Tell that a call did not finish; `mark` is the mark that the teacher reads, such as "timed out"."""

    def __init__(self, mark: str, text: str) -> None:
        super().__init__(text)
        self.mark = mark


class Call(NamedTuple):
    """A call that was made in a child; a later child repeats it to get what could not leave the first one."""

    run: Callable[..., Any]
    args: Any
    kwargs: Any


class Budget:
    """Time that the functions of one exercise share, and the call that ended badly, if any.

    Parameters
    ----------
    seconds : float
        Limit of processor time.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.spent = 0.0  # seconds of processor time
        self.waited = 0.0  # seconds of elapsed time
        self.ended: Ended | None = None


class _ThisProcess:
    """Flags of the current process; each child has its own copy."""

    is_child = False  # in a child, a stand-in calls the student's function directly
    is_audited = False  # whether the student's code is running, so that the audit hook has to look


class Confined:
    """A student's function, each call of which runs in a child process with limits.

    The grader makes one for each answer whose text is allowed, and gives its stand-in to the check of the
    exercise, in place of the student's function. Every call of the stand-in goes through these steps:

    1. The judge forks. The child has the arguments already: it is a copy of the judge.
    2. The child gives up all files except its pipe, limits its time and memory, and installs an audit hook.
    3. The child makes the function from the text of the answer, calls it, writes one message into the pipe,
       and ends. The message holds the result, and the arguments if the call has changed them.
    4. The judge reads the message, waits for the child, and charges the time to the budget.
    5. The judge unpacks the result, and copies changed contents into its own arrays, lists and dictionaries.
       A value that is not data arrives as an `Opaque`, and the next child that needs it repeats the call.

    `ask` runs a question about the function, instead of a call of it, through steps 1 to 4.

    Parameters
    ----------
    answer : Answer
        Its text has been found to be allowed.
    budget : Budget
        Time that its calls may take. The grader reads from it how the calls ended.
    """

    def __init__(self, answer: Answer, budget: Budget) -> None:
        self.answer = answer
        self.budget = budget
        self._function: FunctionType | None = None  # the student's own; only ever set in a child

    def stand_in(self, namespace: dict[str, Any]) -> FunctionType:
        """Make a function that looks like the student's, and calls it in a child.

        Parameters
        ----------
        namespace : dict
            Global names of the stand-in: the judge's own.

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
        """Ask a question about the student's function itself, in a child.

        Parameters
        ----------
        question : function
            Takes the student's function, and returns a value that JSON can hold.

        Returns
        -------
        object
            The answer to the question.
        """

        def work() -> bytes:
            return json.dumps(question(self._student_function())).encode()

        return json.loads(self._run_in_child(work))

    def _call(self, args: Any, kwargs: Any) -> Any:
        """Call the function in a child, and copy what it changes in its arguments into these here."""
        if _ThisProcess.is_child:
            return self._student_function()(*args, **kwargs)
        leaves = list(leaves_of((args, kwargs)))
        # When the arguments are packed, arrays count as unknown to the judge, so their contents are sent.
        leaves_but_arrays = [None if has_contents(leaf) else leaf for leaf in leaves]
        this_call = Call(self._call, args, kwargs)

        def work() -> bytes:
            arguments_before = packed((args, kwargs), leaves_but_arrays)
            complete_args, complete_kwargs = made_again((args, kwargs), _repeat)
            function = _Audited(self._student_function())
            result = call(function, *complete_args, **complete_kwargs)  # type: ignore[arg-type]
            # A result that is one of the arguments is sent as a reference, so the judge gets its own object.
            # The index of a leaf means the same to both, unless a value that was made again has other leaves.
            complete_leaves = list(leaves_of((complete_args, complete_kwargs)))
            correspond = len(complete_leaves) == len(leaves)
            packed_result = packed(result, complete_leaves if correspond else leaves)
            arguments_after = packed((args, kwargs), leaves_but_arrays)
            has_changed = arguments_after != arguments_before
            return with_length(packed_result) + with_length(arguments_after if has_changed else b"")

        body = self._run_in_child(work)
        packed_result, rest = first_part(body)
        changed_arguments, _ = first_part(rest)
        try:
            result = unpacked(packed_result, leaves, this_call)
            if changed_arguments:
                restore((args, kwargs), unpacked(changed_arguments, leaves_but_arrays, this_call))
        except ValueError as error:
            raise self._end("crashed", f"its answer is not data: {error}.") from None
        return result

    def _student_function(self) -> FunctionType:
        """Return the student's function itself, made from its text; only in a child."""
        assert _ThisProcess.is_child
        if self._function is None:
            self._function = defined_alone(self.answer)
        return self._function

    def _end(self, mark: str, text: str) -> Ended:
        """Record in the budget that a call did not finish, and return the error to raise."""
        self.budget.ended = Ended(mark, text)
        return self.budget.ended

    def _run_in_child(self, work: Callable[[], bytes]) -> bytes:
        """Fork, do some work in the child, and return the bytes that the work returned there."""
        budget = self.budget
        seconds_left = budget.seconds - budget.spent
        patience_left = PATIENCE * budget.seconds - budget.waited
        if seconds_left <= 0 or patience_left <= 0:
            raise self._end("timed out", _timeout_sentence(budget))
        reading, writing = os.pipe()
        began = time.monotonic()
        # Ctrl-C reaches both processes. It is held back until the child ignores it and the judge can end it:
        # only the judge is to act on it, and no child may be left running.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of other threads: a progress bar's, which sleeps
            child = os.fork()
        if not child:
            _run_child(work, writing, seconds_left)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            os.close(writing)
            message, stopped = _read_message(reading, began + patience_left)
        except BaseException:  # Ctrl-C
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        finally:
            os.close(reading)
        if stopped:
            os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
        budget.spent += usage.ru_utime + usage.ru_stime
        budget.waited += time.monotonic() - began
        return self._interpret(message, stopped, status)

    def _interpret(self, message: bytes, stopped: str, status: int) -> bytes:
        """Return the body of a result; for every other message, or none, raise what the table above says."""
        kind, body = message[:1], message[1:]
        if not stopped and kind == _RESULT_MESSAGE and status == 0:
            return body
        ended_by = _signal_of(status)
        if stopped == _TOO_SLOW or ended_by in (signal.SIGPROF, signal.SIGXCPU):
            raise self._end("timed out", _timeout_sentence(self.budget))
        if stopped == _TOO_LONG:
            raise self._end("crashed", f"its answer has more than {MOST >> 20} MiB.")
        sentence = body.decode("utf-8", "replace")
        if kind == _WRONG_MESSAGE:
            raise Rejected(sentence)
        if kind == _FORBIDDEN_MESSAGE:
            raise self._end("refused", sentence)
        if kind == _MEMORY_MESSAGE:
            raise self._end("crashed", f"it takes more than {MEMORY >> 20} MiB of memory.")
        how = f"exit status {os.waitstatus_to_exitcode(status)}"
        if ended_by:
            how = signal.Signals(ended_by).name
        raise self._end("crashed", f"its process ended before it had an answer ({how}).")


def _repeat(earlier: Call) -> Any:
    """Repeat a call that an earlier child made."""
    return earlier.run(earlier.args, earlier.kwargs)


def _timeout_sentence(budget: Budget) -> str:
    """Write what to say of a function that ran out of time."""
    return f"it does not end within {budget.seconds:g} seconds; is there an endless loop?"


def _signal_of(status: int) -> int:
    """Return the number of the signal that ended a process, or 0."""
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def signature_of(node: ast.FunctionDef) -> inspect.Signature:
    """Read the parameters of a function from its syntax tree; every default becomes three dots.

    Parameters
    ----------
    node : FunctionDef

    Returns
    -------
    Signature
    """
    kinds = inspect.Parameter
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    parameters = []
    for index, argument in enumerate(positional):
        is_positional_only = index < len(arguments.posonlyargs)
        kind = kinds.POSITIONAL_ONLY if is_positional_only else kinds.POSITIONAL_OR_KEYWORD
        default = kinds.empty if index < required else ...
        parameters.append(kinds(argument.arg, kind, default=default))
    if arguments.vararg:
        parameters.append(kinds(arguments.vararg.arg, kinds.VAR_POSITIONAL))
    for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        default = kinds.empty if value is None else ...
        parameters.append(kinds(argument.arg, kinds.KEYWORD_ONLY, default=default))
    if arguments.kwarg:
        parameters.append(kinds(arguments.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(parameters)


def defined_alone(answer: Answer) -> FunctionType:
    """Run the text of an answer, and return the function that it defines.

    Parameters
    ----------
    answer : Answer

    Returns
    -------
    function
        Its global names come from its text alone.

    Raises
    ------
    Rejected
        When the text raises, or defines no such function.
    """
    file = FILE.format(answer.name)
    text = answer.text
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    try:
        code = compile(text, file, "exec", __future__.annotations.compiler_flag)
        _Audited(exec)(code, namespace)
    except Exception as error:
        raise Rejected(f"it can't be defined: {type(error).__name__}: {error}.") from None
    function = namespace.get(answer.name)
    if not isinstance(function, FunctionType):
        raise Rejected(f"{answer.name} is not a function but {type(function).__name__}.")
    for node in ast.parse(text).body:
        defined = namespace.get(getattr(node, "name", ""))
        if isinstance(node, ast.FunctionDef) and isinstance(defined, FunctionType):
            setattr(defined, SOURCE, ast.get_source_segment(text, node))
    return function


class _Audited:
    """Wrap a function, so that the audit hook looks for forbidden events while it runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__code__ = getattr(function, "__code__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, audited; afterwards the process is audited if it was before."""
        was_audited = _ThisProcess.is_audited
        _ThisProcess.is_audited = True
        try:
            return self._function(*args, **kwargs)
        finally:
            _ThisProcess.is_audited = was_audited


def _run_child(work: Callable[[], bytes], writing: int, seconds: float) -> NoReturn:
    """Be the child: give up everything but the pipe, do the work, write one message, and end."""
    try:
        _ThisProcess.is_child = True
        _confine(writing, seconds)
        unsent = memoryview(_message_of(work))
        while unsent:
            unsent = unsent[os.write(_PIPE, unsent) :]
    finally:
        os._exit(0)  # without the judge's cleanup, which is the judge's to do


def _message_of(work: Callable[[], bytes]) -> bytes:
    """Do the work, and return the message that tells how it went."""
    try:
        return _RESULT_MESSAGE + work()
    except MemoryError:
        return _MEMORY_MESSAGE
    except Rejected as wrong:
        if isinstance(wrong.__context__, MemoryError):
            return _MEMORY_MESSAGE
        return _WRONG_MESSAGE + _encoded(str(wrong))
    except BaseException as error:
        return _WRONG_MESSAGE + _encoded(f"it raises {error!r}.")


def _encoded(sentence: str) -> bytes:
    """Encode a sentence, which may hold anything that a student has written."""
    return sentence.encode("utf-8", "replace")


def _confine(writing: int, seconds: float) -> None:
    """Give up what a student's function does not need: files, time, memory and other processes."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the judge handles Ctrl-C, and then kills this process
    for name in ("SIGTERM", "SIGHUP", "SIGPROF", "SIGXCPU", "SIGVTALRM"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    allocated = _allocated_bytes()
    os.dup2(writing, _PIPE)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(_PIPE):
        os.dup2(null, descriptor)
    highest = max(null, writing, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    os.closerange(_PIPE + 1, highest + 1)
    whole_seconds = math.ceil(seconds) + 1  # the timer below is exact; this limit is for when it fails
    memory = allocated + MEMORY
    limits = {
        "RLIMIT_CPU": (whole_seconds, whole_seconds + 1),
        "RLIMIT_AS": (memory, memory) if allocated else None,
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
    sys.addaudithook(_audit)


def _allocated_bytes() -> int:
    """Return the size of this process's address space in bytes; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """End this process if a student's function causes a forbidden event; the child's audit hook."""
    if not _ThisProcess.is_audited:
        return
    _ThisProcess.is_audited = False  # events that this function causes are not the student's
    reason = _forbidden_reason(event, arguments, sys._getframe(1).f_code.co_filename)
    if reason:
        about = next((f" ({argument!s})" for argument in arguments if isinstance(argument, str)), "")
        sentence = f"{reason}: {event}{about}."
        os.write(_PIPE, _FORBIDDEN_MESSAGE + _encoded(sentence))
        os._exit(0)
    _ThisProcess.is_audited = True


def _forbidden_reason(event: str, arguments: tuple[Any, ...], file: str) -> str:
    """Return why code in a file may not cause an event, or "" where it may."""
    if file.startswith(FILE_PREFIX):  # a line of the student's
        reason = _by_prefix(FORBIDDEN_DIRECTLY, event)
        if reason:
            return reason
    if file.startswith("<frozen importlib") or (event == "open" and _reads_a_library(arguments)):
        return ""  # Python's own attempt, which fails by itself: there are no files to open
    return _by_prefix(FORBIDDEN, event)


def _by_prefix(reasons: dict[str, str], event: str) -> str:
    """Return the first reason with a key that an event begins with, or ""."""
    return next((reason for prefix, reason in reasons.items() if event.startswith(prefix)), "")


def _reads_a_library(arguments: tuple[Any, ...]) -> bool:
    """Tell whether an "open" event only reads a library's file, as a traceback does."""
    path, mode, *_ = arguments
    if not isinstance(path, str) or not set(mode or "r") <= set("rbt"):
        return False
    return path.endswith((".py", ".pyc", ".so")) and "minibert" not in path


def _read_message(reading: int, deadline: float) -> tuple[bytes, str]:
    """Read until the child closes the pipe; return the message, and why reading stopped early, or ""."""
    parts: list[bytes] = []
    size = 0
    while True:
        seconds_left = max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([reading], [], [], seconds_left)
        if not ready:
            return b"".join(parts), _TOO_SLOW
        part = os.read(reading, 2**20)
        if not part:
            return b"".join(parts), ""
        parts.append(part)
        size += len(part)
        if size > MOST:
            return b"", _TOO_LONG
