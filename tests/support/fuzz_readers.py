"""Coverage-guided fuzzing of every reader by Atheris (`make fuzz-readers`): any bytes are read or refused.

    python tests/support/fuzz_readers.py [NAME ...] [--inputs 100000] [--seconds S] [--out build/fuzz-readers]
        [--keep] [--list] [--table]

A reader is one of `readers.READERS`, which read whole folders, or of `PARSERS`, the quick ones of binary
formats. It begins with its genuine file and what it found before (`OUT/NAME/corpus`); Atheris (libFuzzer)
mutates these bytes, and JSON and checksums are mutated knowingly as well. Something is found, and its first
input kept (`OUT/NAME/found-N`), when a reader

- raises anything but an InputError or a RunError, or one of several lines;
- takes more than 2 seconds of processor time, or memory beyond a GiB more than it had;
- unpickles, runs a program, connects, or opens a file elsewhere than in its folder;
- returns other tensors than the library `safetensors` reads from the same file.

Each reader runs in a process of its own. `--keep` chooses a few small inputs that run lines which the genuine
file does not, some four KB for a reader, and puts them into tests/fixtures/fuzzed, which tests/test_fuzzed.py
reads again. `--table` adds the runs in `OUT` to benchmarks/recorded/fuzz_readers.jsonl, and writes the table
of all runs into docs/reliability.md.
"""

import argparse
import collections
import copy
import json
import os
import random
import resource
import shutil
import sys
import sysconfig
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/misuse")]
# What reads files. Engines and core are left out: Numba compiles their bytecode, and they see no file.
ROOMS = "api ask base cli data experiments finetuning hub pretraining reports tasks tokenizer training"
INSTRUMENTED = [f"minibert.{room}" for room in (*ROOMS.split(), "verification")]
IS_PROGRAM = __name__ == "__main__"
if IS_PROGRAM and not {"--keep", "--list", "--table"} & {*sys.argv}:
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED), redirect_stderr(StringIO()):
        import parsers  # noqa: F401
        import readers  # noqa: F401

from mutations import one_spoiled  # noqa: E402
from parsers import META, PARSERS, SHARDS, write_small  # noqa: E402
from paths import FIXTURES  # noqa: E402
from readers import READERS, Reader, numbered, write_genuine  # noqa: E402
from small_tasks import small_options, write_model, write_sst2  # noqa: E402

from minibert import cli  # noqa: E402
from minibert.base.errors import InputError, RunError  # noqa: E402

KEPT = FIXTURES / "fuzzed"
RUNS = "runs.jsonl"  # in `--out`: a line for each reader that was fuzzed
KEPT_BYTES = 4096  # of a reader's archive, about
MOST_SECONDS = 2.0  # of the processor, for one input
MORE_MEMORY = 1 << 30  # bytes of address space, beyond what the process has
RECORD = ROOT / "benchmarks" / "recorded" / "fuzz_readers.jsonl"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- fuzz: begin -->", "<!-- fuzz: end -->"
TITLES = {  # of the quick readers, on the page
    "safetensors": "safetensors",
    "pickle": "`pytorch_model.bin`, zip archive",
    "older-pickle": "`pytorch_model.bin`, older layout",
    "table": "TensorFlow's index and data",
    "checkpoint": "checkpoint",
    **{f"shards-{name}": f"token shards, `{name}`" for name in (META, *SHARDS)},
    "npy": "stored activations (`.npy`)",
    **{f"packed.{suffix}": f"text in `.{suffix}`" for suffix in ("gz", "xz", "bz2", "zst")},
}
MARK = b"@FOLDER@"  # stands in what is kept for the folder of the genuine files
FORBIDDEN = {
    *("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork"),
    *("subprocess.Popen", "socket.connect", "socket.bind", "ctypes.dlopen"),
    *("os.chmod", "os.symlink", "os.link"),
}
# Where Python, libraries and the package have files of their own.
OWN = (
    *(str(ROOT / "minibert"), "/proc/", "/sys/", "/dev/null", "/etc/localtime", "/usr/"),
    *(sys.prefix, sys.base_prefix, sysconfig.get_path("purelib")),
    *(path for path in sys.path if "site-packages" in path),
)
# Options of a run name data and models anywhere, and a link names the shards: what they name is opened.
NAMING = ("finetune.json", "training.json", "elsewhere.json", "checkpoint", "rte.toml", "report.json")


class Found(NamedTuple):
    """What a reader did that it must not."""

    what: str
    where: str  # the innermost line of the package


class Watch:
    """What Python's audit events say of an input: opened files, calls of other programs, unpickled names."""

    def __init__(self, *also: Path) -> None:
        self.also = tuple(map(os.path.realpath, also))  # what may be read as well
        self.folder: str | None = None  # None: nothing is watched
        self.may_open_others = False
        self.seen: list[str] = []
        self._resolved = cache(os.path.realpath)  # which a reader can't change: os.symlink is forbidden
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple) -> None:
        if self.folder is None:
            return
        if event in FORBIDDEN:
            self.seen.append(f"{event} {arguments!r:.200}")
        if event == "open" and isinstance(arguments[0], str | bytes) and not self.may_open_others:
            path = self._resolved(os.fsdecode(arguments[0]))
            if not path.startswith((self.folder, *self.also, *OWN)):
                self.seen.append(f"open {path!r:.200}")

    @contextmanager
    def over(self, folder: Path, may_open_others: bool = False) -> Iterator[list[str]]:
        """Watch what the block does; yield the list of what it must not."""
        self.seen, self.may_open_others = [], may_open_others
        self.folder = self._resolved(folder)
        try:
            yield self.seen
        finally:
            self.folder = None


class Target:
    """A reader with its folder, in which one file is written anew for each input."""

    def __init__(self, reader: Reader, folder: Path, watch: Watch):
        self.reader, self.folder, self.watch = reader, folder, watch
        self.file = folder / reader.file
        self.seed = self.file.read_bytes()

    def judge(self, data: bytes) -> Found | None:
        """Read a file of these bytes; say what was wrong with the reader, if anything was."""
        write_anew(self.file, data)
        began = time.process_time()
        raised: BaseException | None = None
        with self.watch.over(self.folder, self.file.name in NAMING) as seen:
            try:
                self.reader.read(self.folder)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raised = error
        found = None
        if isinstance(raised, InputError | RunError):
            if not str(raised) or "\n" in str(raised):
                found = Found("a sentence of several lines", repr(str(raised))[:200])
        elif raised is not None:
            found = Found(f"{type(raised).__name__}: {str(raised)[:200]}", place_of(raised))
        if seen:
            found = Found(seen[0], "an audit event")
        seconds = time.process_time() - began
        if found is None and seconds > MOST_SECONDS:
            found = Found("more than 2 seconds", f"{seconds:.1f}")
        return found


def write_anew(path: Path, data: bytes) -> None:
    """Write a file, and not over another, which may be mapped; with fewer calls than pathlib makes."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)


def place_of(error: BaseException) -> str:
    """The innermost line of the package in a traceback."""
    lines = traceback.extract_tb(error.__traceback__)
    own = [line for line in lines if "/minibert/" in line.filename] or lines
    return f"{own[-1].filename.rpartition('/minibert/')[2]}:{own[-1].lineno}"


def mutated(
    data: bytes, size: int, seed: int, reader: Reader, mutate: Callable[[bytes, int], bytes]
) -> bytes:
    """The bytes with something changed: by libFuzzer, or knowing their format, with checksums made good."""
    rng = random.Random(seed)
    changed = None
    if rng.random() < 0.4:
        with suppress(Exception):  # of bytes that are not JSON any more
            changed = one_spoiled(data, Path(reader.file).name, rng)
    if changed is None:
        changed = mutate(data, size)
    seal = getattr(reader, "seal", None)
    if seal and rng.random() < 0.8:
        with suppress(Exception):  # of bytes whose checksums are nowhere to be found
            changed = seal(changed)
    return changed[:size]


def remembered(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Parse the words of a command once: a reader's are the same for each input, and take several ms."""
    parsed: dict[tuple[str, ...], Any] = {}

    def parse_once(words: Any) -> Any:
        key = tuple(words)
        if key not in parsed:
            parsed[key] = parse(words)
        return copy.copy(parsed[key])

    return parse_once


def fuzz(target: Target, out: Path, inputs: int, seconds: float) -> None:
    """Fuzz one reader until so many inputs or seconds; the process ends here."""
    corpus = out / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "genuine").write_bytes(target.seed)
    name = Path(target.reader.file).name
    state: dict[str, Any] = {"inputs": 0, "found": {}}
    began = time.monotonic()

    def one_input(data: bytes) -> None:
        state["inputs"] += 1
        found = target.judge(data)
        if found and str(found) not in state["found"]:
            key = f"{found.what.partition(':')[0]} {found.where}"
            if key not in state["found"]:
                (out / f"found-{len(state['found'])}").write_bytes(data)
                state["found"][key] = f"{found.what} at {found.where}"
        passed = time.monotonic() - began
        if state["inputs"] >= inputs or passed > seconds:
            processor = time.process_time()
            record = state | {"seconds": round(passed, 1), "processor_seconds": round(processor, 1)}
            (out / "result.json").write_text(json.dumps(record, indent=1))
            os._exit(0)

    def change(data: bytes, size: int, seed: int) -> bytes:
        return mutated(data, size, seed, target.reader, atheris.Mutate)

    largest = max(1024, 2 * len(target.seed))
    arguments = [name, str(corpus), f"-max_len={largest}", "-timeout=120", "-rss_limit_mb=0", "-verbosity=0"]
    has_format = name.endswith((".json", ".jsonl", ".safetensors")) or hasattr(target.reader, "seal")
    more = {"custom_mutator": change} if has_format else {}
    atheris.Setup([*arguments, "-detect_leaks=0"], one_input, **more)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_MEMORY, used + MORE_MEMORY))
    atheris.Fuzz()


def everything(folder: Path) -> Path:
    """Make the genuine files, once; return their folder."""
    at = folder / "all"
    if not at.exists():
        data, model = write_sst2(folder / "SST-2"), write_model(folder / "small")
        from minibert.finetuning.run import finetune

        finetune(small_options(model, data), folder / "run", show=False)
        write_genuine(at, folder / "run")
        write_small(at / "small")
    return at


def named() -> dict[str, Reader]:
    """All readers by name; the quick ones first."""
    return {one.name: one for one in PARSERS} | {numbered(one): one for one in READERS}


# What is kept of a corpus


def lines_of(target: Target, data: bytes) -> frozenset[tuple[str, int]]:
    """The lines of the package that reading these bytes runs."""
    ran: set[tuple[str, int]] = set()

    def note(frame: Any, event: str, _: Any) -> Any:
        if "/minibert/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            ran.add((frame.f_code.co_filename, frame.f_lineno))
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        target.judge(data)
    finally:
        sys.settrace(before)
    return frozenset(ran)


def chosen(target: Target, corpus: Path) -> list[bytes]:
    """Small inputs that together run every line that an input of the corpus runs, beyond the genuine one."""
    inputs = sorted((path.read_bytes() for path in corpus.iterdir()), key=lambda data: (len(data), data))
    ran = set(lines_of(target, target.seed))
    kept = []
    for data in inputs:
        if new := lines_of(target, data) - ran:
            ran |= new
            kept.append(data)
    return kept


def keep(target: Target, name: str, corpus: Path) -> int:
    """Put what is chosen into an archive, as far as it is small; return how many inputs that are."""
    KEPT.mkdir(exist_ok=True)
    path, inside, count = KEPT / f"{name.replace('/', '--')}.zip", os.fsencode(target.folder), 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for data in chosen(target, corpus):
            info = zipfile.ZipInfo(f"{count}")  # of 1980, so that the same inputs are the same bytes
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data.replace(inside, MARK))
            count += 1
            if path.stat().st_size > KEPT_BYTES:
                break
    if not count:
        path.unlink()
    return count


def kept_inputs(name: str, folder: Path) -> list[bytes]:
    """What was kept of a reader's corpus."""
    path = KEPT / f"{name.replace('/', '--')}.zip"
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as archive:
        return [archive.read(one).replace(MARK, os.fsencode(folder)) for one in archive.namelist()]


# The record


def table(runs: list[dict[str, Any]], others: list[str]) -> str:
    """Make the Markdown of the page."""
    inputs: collections.Counter[str] = collections.Counter()
    found: collections.Counter[str] = collections.Counter()
    for run in runs:
        inputs[run["reader"]] += run["inputs"]
        found[run["reader"]] += len(run["found"])
    lines = ["| reader | inputs | found |", "|---|---:|---:|"]
    lines += [f"| {title} | {inputs[name]:,} | {found[name]} |" for name, title in TITLES.items()]
    read = sorted(inputs[name] for name in others if inputs[name])
    middle = f"{read[0]:,} to {read[-1]:,} each, half of them {read[len(read) // 2]:,} or more"
    what = f"{len(read)} of the {len(others)} others, {middle}"
    lines.append(f"| {what} | {sum(read):,} | {sum(found[name] for name in others)} |")
    lines.append(f"| together | {inputs.total():,} | {found.total()} |")
    return "\n".join(lines)


def write_table(out: Path) -> None:
    """Add the runs of a folder to the record; write the table between the two marks of the page."""
    runs = {}
    for path in filter(Path.exists, (RECORD, out / RUNS)):
        for line in path.read_text("utf-8").splitlines():
            run = json.loads(line)
            runs[run["reader"], run["ended"]] = run
    RECORD.write_text("".join(f"{json.dumps(run)}\n" for run in runs.values()), "utf-8")
    page = PAGE.read_text("utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    made = table(list(runs.values()), [numbered(one) for one in READERS])
    PAGE.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{after}", "utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="readers; all by default")
    parser.add_argument("--inputs", type=int, default=100_000, help="of each reader")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each reader, at most")
    parser.add_argument("--out", type=Path, default=ROOT / "build/fuzz-readers")
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"), help="where files are written anew")
    parser.add_argument("--keep", action="store_true", help="choose what is kept in tests/fixtures/fuzzed")
    parser.add_argument("--list", action="store_true", help="print the names of the readers")
    parser.add_argument("--table", action="store_true", help="add to the record, renew docs/reliability.md")
    options = parser.parse_args(arguments)
    if options.table:
        write_table(options.out)
        return 0
    known = named()
    if options.list:
        print("\n".join(known))
        return 0
    scratch = options.scratch / f"fuzz-readers-{os.getpid()}"
    scratch.mkdir()
    try:
        return _all_of(known, options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _alone(target: Target, name: str, out: Path, options: argparse.Namespace) -> None:
    """Do what is asked with one reader; the process ends here."""
    os.chdir(target.folder)
    target.reader.read(target.folder)  # imports what it imports, and shows that it works
    if options.keep:
        print(f"{name}: {keep(target, name, out / 'corpus')} inputs kept", flush=True)
        os._exit(0)
    cli.parse_arguments = remembered(cli.parse_arguments)
    quiet = os.open(out / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    fuzz(target, out, options.inputs, options.seconds)


def _all_of(known: dict[str, Reader], options: argparse.Namespace, scratch: Path) -> int:
    warnings.simplefilter("ignore", UserWarning)
    warnings.simplefilter("error", RuntimeWarning)  # NumPy's, of what should have been refused
    genuine, worst = everything(scratch), 0
    watch = Watch(scratch / "SST-2", scratch / "small")  # of the options of the genuine fine-tuning
    for name in options.names or known:
        out = options.out / name.replace("/", "--")
        out.mkdir(parents=True, exist_ok=True)
        place = scratch / "place"
        shutil.copytree(genuine, place)
        for file in [*place.rglob("*.json"), *place.rglob("*.jsonl")]:  # what names the folder of the files
            file.write_bytes(file.read_bytes().replace(os.fsencode(genuine), os.fsencode(place)))
        child = os.fork()
        if not child:
            try:
                _alone(Target(known[name], place, watch), name, out, options)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        shutil.rmtree(place)
        if options.keep:
            continue
        result = out / "result.json"
        if status or not result.exists():
            print(f"{name}: ended with {status}; see {out}", flush=True)
            worst = 1
            continue
        record = json.loads(result.read_text())
        with open(options.out / RUNS, "a", encoding="utf-8") as runs:
            when = time.strftime("%Y-%m-%dT%H:%M:%S")
            runs.write(json.dumps({"reader": name, "ended": when, **record}) + "\n")
        rate = record["inputs"] / max(record["seconds"], 1e-9)
        print(f"{name}: {record['inputs']:,} inputs in {record['seconds']} s ({rate:,.0f}/s)", flush=True)
        for what in record["found"].values():
            print(f"  {what}", flush=True)
            worst = 1
    return worst


if IS_PROGRAM:
    sys.exit(main())
