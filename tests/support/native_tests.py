"""Build the native tests of a tree piece by piece, and run them: what a fault in C or C++ meets.

An object is named by what it is made of, so that of a tree with a fault only what contains that line is
compiled anew. The kernels are a program for each instruction set; the C core is compiled with the sanitizers
of `make sanitize`, and the kernels, whose tests would take minutes with them, are not.
"""

import hashlib
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from paths import ROOT

SECONDS = 100  # of processor time, at most, for the tests of a program
WORDPIECE, KERNELS = "csrc/wordpiece", "csrc/kernels"
# What the Makefile says of both, without debugging information, which knows columns, and without warnings.
PLAIN_C = (
    "-std=c11 -O1 -ffp-contract=off -w -include tests/native/allocator.h -Icsrc/wordpiece -I{build}".split()
)
SANITIZERS = "-fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all".split()
CPP = "-std=c++17 -O1 -ffp-contract=fast -fno-math-errno -w -pthread -iquote csrc/kernels".split()
ONLY_IN_PYTHON = ("bindings.cpp", "dispatch.cpp", "table.cpp", "probe.cpp")
NEAREST = {  # the test of the program that a file's faults meet first
    **dict.fromkeys(("attention", "attention_backward", "attention_blocks", "tiles"), "attention"),
    **dict.fromkeys(("gemm", "pack", "bytes", "blocks", "turn"), "matrix products"),
    **dict.fromkeys(("rowwise", "cross_entropy", "loops"), "rows and losses"),
    **{
        "memory": "memory",
        "threads": "threads",
        "peak": "peak",
        "layer_norm": "LayerNorm",
        "updates": "updates",
        "random": "dropout",
        "elementary": "elementary functions",
    },
}


@cache
def instruction_sets() -> dict[str, list[str]]:
    """Return the flags of each instruction set that this machine runs."""
    sets: dict[str, list[str]] = {}
    for line in (ROOT / KERNELS / "instruction_sets.mk").read_text("utf-8").splitlines():
        if found := re.fullmatch(r"FLAGS_(\w+) :=(.*)", line):
            flags = re.sub(r"\$\(FLAGS_(\w+)\)", lambda other: " ".join(sets[other[1]]), found[2])
            sets[found[1]] = flags.split()
    return {isa: flags for isa, flags in sets.items() if _runs(isa, tuple(flags))}


@cache
def _runs(isa: str, flags: tuple[str, ...]) -> bool:
    program = build_folder() / f"probe-{isa}"
    words = ["g++", *flags, f"-DMB_ISA={isa}", str(ROOT / KERNELS / "probe.cpp"), "-o", str(program)]
    compiled = subprocess.run(words, capture_output=True, check=False).returncode == 0
    return compiled and subprocess.run([program], check=False).returncode == 0


def build_folder() -> Path:
    """Return where objects and programs are kept."""
    folder = ROOT / "build" / "native-mutants"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Program:
    """The native tests of one part, for one instruction set."""

    def __init__(self, part: str, isa: str = "") -> None:
        self.part, self.isa = part, isa
        self.flags = PLAIN_C if part == WORDPIECE else [*CPP, f"-DMB_ISA={isa}", *instruction_sets()[isa]]
        self.flags = [one.format(build=build_folder()) for one in self.flags]
        self.checked = SANITIZERS if part == WORDPIECE else []
        self.compiler = "gcc" if part == WORDPIECE else "g++"
        ending = "c" if part == WORDPIECE else "cpp"
        own = [one for one in sorted((ROOT / part).glob(f"*.{ending}")) if one.name not in ONLY_IN_PYTHON]
        tests = sorted((ROOT / "tests" / "native").glob(f"test_*.{ending}"))
        allocator = [ROOT / "tests" / "native" / "allocator.c"] if part == WORDPIECE else []
        self.sources = [str(one.relative_to(ROOT)) for one in (*own, *tests, *allocator)]
        if part == WORDPIECE:
            table = ROOT / "minibert" / "tokenizer" / "unicode-15.0.0.txt"
            script = ROOT / WORDPIECE / "unicode_tables.py"
            subprocess.run([sys.executable, script, table, build_folder() / "unicode_tables.h"], check=True)
        self.made_of = {source: self._made_of(source) for source in self.sources}

    def _made_of(self, source: str) -> list[str]:
        """Return the files that a source includes, with itself."""
        words = [self.compiler, *self.flags, "-MM", source]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.replace("\\\n", " ").split()[1:]

    @property
    def files(self) -> set[str]:
        """The files that it is made of."""
        return {file for files in self.made_of.values() for file in files}

    def object_of(self, tree: Path, source: str, flags: Sequence[str]) -> Path | None:
        """Return a compiled source; None where it does not compile."""
        contents = [(tree / one).read_bytes() for one in self.made_of[source]]
        named = b"\0".join([" ".join([*self.flags, *flags, source]).encode(), *contents])
        place = build_folder() / f"{hashlib.sha256(named).hexdigest()[:24]}.o"
        if not place.exists():
            unready = place.with_suffix(".unready.o")
            words = [self.compiler, *self.flags, *flags, "-c", source, "-o", unready]
            if subprocess.run(words, cwd=tree, capture_output=True, check=False).returncode:
                return None
            unready.rename(place)
        return place

    def same_code(self, tree: Path, file: str) -> bool | None:
        """Tell whether the machine code is as without the change of a file; None where there is none."""
        for source in self.sources:
            if file in self.made_of[source]:
                now, before = (self.object_of(one, source, ()) for one in (tree, ROOT))
                if now is None or before is None:
                    return None
                if now.read_bytes() != before.read_bytes():
                    return False
        return True

    def link(self, tree: Path, program: Path) -> bool:
        """Make the program of a tree; tell whether it could be made."""
        objects = [self.object_of(tree, source, self.checked) for source in self.sources]
        if None in objects:
            return False
        words = [self.compiler, *self.checked, "-pthread", *objects, "-o", program, "-lm"]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    def run(self, tree: Path, names: Sequence[str]) -> tuple[str, str]:
        """Run tests of a tree; return what became of them, and what was not so."""
        program = tree.parent / "native"
        if not self.link(tree, program):
            return "not compiled", ""

        words = ["prlimit", f"--cpu={SECONDS}", "--core=0", program, *names]
        try:
            done = subprocess.run(words, capture_output=True, timeout=20 * SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return "timed out", ""
        if done.returncode == 0:
            return "survived", ""
        if -done.returncode in (signal.SIGXCPU, signal.SIGKILL):
            return "timed out", ""
        said = done.stderr.decode(errors="replace")
        found = re.search(
            r"tests/native/.*|ERROR: \w+Sanitizer: [\w-]+|[\w/.]+:\d+:\d+: runtime error: .*", said
        )
        by = found[0] if found else f"signal {-done.returncode}"
        return "killed", by[:160]


@cache
def program(part: str, isa: str) -> Program:
    """Return the program of a part, made once."""
    return Program(part, isa)
