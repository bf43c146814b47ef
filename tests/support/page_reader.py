"""Somebody who follows a page: runs its commands and its Python, in order, after `make pretrain`.

Everything runs as it is written, in this process, but for sizes and budgets: those of the pages take minutes
to days (`SMALLER`). What a page says the reader has, such as `glue`, is there as a few lines in the official
layout.
"""

import contextlib
import csv
import glob
import gzip
import io
import json
import lzma
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import small_tasks
import tuning_files
from paths import ROOT
from small_corpus import write_corpus

from minibert import Bert, BertConfig, cli
from minibert.data.corpus import embedded_corpus
from minibert.model.params import initialise

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# What is not run, and why.
LEFT_OUT = {
    r"^make\b": "`make pretrain` is what has been done; the others are the makefile's",
    r"^(pip|python3 -m venv|hf) ": "installs or fetches from a network",
    r"^srun |--coordinator|--devices 4": "several machines or devices; tests/engines/jax has them",
    r"^minibert reproduce .*(--scale (laptop|day)|all|table1)": "hours; tests/experiments has them small",
    r"^(mkdir|fpath|autoload|source) ?": "of a shell",
}
SMALLER = [
    (r"--(steps|minutes) [\d.]+", "--steps 2"),
    (r"--size (tiny|mini|small|base|large)\b", "--size 1-32-2"),
    (r"--restarts \d", "--restarts 1"),
    (r"--save-every 1000", "--save-every 1"),
    (r"@1000", "@1"),
    (r"--replay \d+", "--replay 2"),
    (r"@4000", "@2"),
    (r"\bminutes=[\d.]+", "steps=2"),
    (r"\bsteps=200\b", "steps=2"),
    (r"\[4000:8000\]", "[20:40]"),
    (r"\[:4000\]", "[:20]"),
]


NEWER = ("engines.md", "fine-tuning.md", "python.md", "asking.md")  # whose words are not all in the books


class Step(NamedTuple):
    """A command or a sample of Python that a page has."""

    language: str  # "sh" or "python"
    text: str


def steps(page: str) -> list[Step]:
    """The commands and samples of a page, in order; what commands print is left out.

    Where a fence shows a prompt, `$`, the lines without it are output. Lines that end in a backslash go on.
    """
    found = []
    for language, text in FENCE.findall(page):
        if language == "python":
            found.append(Step("python", text))
        elif language in ("", "sh"):
            lines = text.replace("\\\n", " ").splitlines()
            if any(line.startswith("$ ") for line in lines):
                lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
            commands = [command.strip() for line in lines for command in without_comment(line).split("&&")]
            found += [Step("sh", command) for command in commands if is_command(command)]
    return found


def without_comment(line: str) -> str:
    """A line of a shell without its comment."""
    return re.sub(r"(^|\s)#.*$", "", line)


def is_command(line: str) -> bool:
    """Whether it is one of ours, or one that brings something for it; output and formulas are not."""
    return bool(re.match(r"(minibert|echo|make|pip|hf|srun|python3 -m venv|mkdir) ", line))


def reason_to_leave_out(command: str) -> str:
    """Why a command is not run; "" for one that is."""
    return next((reason for pattern, reason in LEFT_OUT.items() if re.search(pattern, command)), "")


def smaller(text: str) -> str:
    """The same in seconds."""
    for pattern, instead in SMALLER:
        text = re.sub(pattern, instead, text)
    if re.match(r"minibert pretrain\b(?!.*--resume)", text):
        text += " --evaluations 0 --batch-size 8"
        text += "" if "--steps" in text else " --steps 2"
        text += "" if "--seq-length" in text else " --seq-length 16"
        text += "" if re.search("--(model|config)", text) else " --vocab runs/books"
    if re.match(r"minibert finetune\b(?!.*--(resume|epochs|max-steps))", text):
        text += " --epochs 1"
    return text


class Reader:
    """A working folder with the data that the pages speak of, in which their steps are run."""

    def __init__(self, folder: Path, trained: Path) -> None:
        self.folder, self.names = folder, {"__name__": "__main__"}
        for name in ("docs", "LICENSE"):
            (folder / name).symlink_to(ROOT / name)
        shutil.copytree(trained, folder / "runs" / "books")
        write_data(folder)
        self.given = {path.name for path in folder.iterdir()}

    def follow(self, step: Step) -> None:
        """Run a step; raise AssertionError, or what the Python raises, where it fails."""
        text = smaller(step.text)
        if step.language == "python":
            exec(compile(text, "<sample>", "exec"), self.names)
        elif not reason_to_leave_out(step.text):
            self.run(text)

    def run(self, command: str) -> None:
        """Run a command; a pipe from `echo`, and an output that goes to a file, are understood."""
        before, pipe, last = command.rpartition(" | ")
        words, output = shlex.split(last or command), io.StringIO()
        if ">" in words:
            *words, _, target = words
        else:
            target = ""
        typed = " ".join(shlex.split(before)[1:]) + "\n" if pipe else ""
        words = [one for word in words for one in (sorted(glob.glob(word)) if "*" in word else [word])]
        errors = io.StringIO()
        stdin = SimpleNamespace(buffer=io.BytesIO(typed.encode()), isatty=lambda: False)
        before_stdin, sys.stdin = sys.stdin, stdin
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                status = cli.main(words[1:]) if words[0] == "minibert" else 0
        except SystemExit as stop:
            status = stop.code or 0
        finally:
            sys.stdin = before_stdin
        assert status == 0, f"{command}: {errors.getvalue()[-2000:]}"
        if target:
            path = Path(os.path.expanduser(target))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(output.getvalue(), "utf-8")

    def left_behind(self) -> set[str]:
        """What was not there before, and Git would list."""
        ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()}
        return {path.name for path in self.folder.iterdir()} - self.given - ignored


def write_books(path: Path, characters: int = 200_000) -> Path:
    """The beginning of the books in the package."""
    with lzma.open(embedded_corpus(), "rt", encoding="utf-8") as books:
        path.write_text(books.read(characters), "utf-8")
    return path


def write_data(folder: Path) -> None:
    """Whatever the pages take for granted, each a few lines in its layout."""
    for name in ("books", "articles", "letters"):
        (folder / name).mkdir()
        write_corpus(folder / name / "one.txt")
    for name in ("more.txt", "moby-dick.txt"):
        write_corpus(folder / name)
    for name in ("whale.txt", "sentences.txt"):  # a sentence a line, without documents
        write_corpus(folder / name, documents=1)
        (folder / name).write_text((folder / name).read_text("utf-8").strip() + "\n", "utf-8")
    for name, page in zip(("papers/one.txt", "new/one.txt", "train.txt", "test.txt"), NEWER, strict=True):
        tuning_files.write(folder / name, (ROOT / "docs" / page).read_text("utf-8"))
    text = (folder / "more.txt").read_bytes()
    (folder / "letters.txt.gz").write_bytes(gzip.compress(text[:2000]))
    (folder / "news.txt").write_text("The team won the cup.\nThe minister resigned.\n")
    shutil.copy(ROOT / "tests/golden/hf_tiny.bin", folder / "pytorch_model.bin")
    (folder / "gaps.txt").write_text("The [MASK] sleeps.\nThe whale is in the [MASK].\n")
    (folder / "terms.txt").write_text("helicopter\nspacecraft\n")
    (folder / "rte.toml").write_text('task = "rte"\ndata = "glue"\nepochs = 1\nlearning_rates = [3e-5]\n')

    tuning_files.write_data(folder)
    shutil.move(folder / "ner", folder / "conll2003")
    small_tasks.write_rte(folder / "glue" / "RTE")
    shutil.copytree(ROOT / "tests/fixtures/tasks/MNLI", folder / "glue" / "MNLI")
    shutil.copytree(ROOT / "tests/fixtures/tasks/triviaqa", folder / "trivia")
    scored = [(n, n % 6, f"the {n} cat sleeps", f"a {n % 5} cat runs") for n in range(24)]
    for split in ("train", "dev"):
        header = ("index", "score", "sentence1", "sentence2")
        small_tasks.write_table(folder / f"glue/STS-B/{split}.tsv", header, scored)
    rows = [(f"the {n} cat sleeps", f"a {n} cat runs", ("entailment", "neutral")[n % 2]) for n in range(24)]
    for file in ("test.txt", "dev.txt"):  # SNLI as minibert has it, which learns from the test file
        lines = [f"{a}\t{b}\t{n % 3}\n" for n, (a, b, _) in enumerate(rows)]
        tuning_files.write(folder / "pairs" / file, "".join(lines))
    for split in ("train", "dev"):
        write_csv(
            folder / f"scored/{split}.csv",
            ("text", "second", "label"),
            [(a, b, n % 3 / 2) for n, (a, b, _) in enumerate(rows)],
        )
        write_csv(folder / f"questions/{split}.csv", ("text", "second"), [row[:2] for row in rows])
    small_tasks.write_several(folder / "news", 24, 12)
    stars = [(f"a {('good', 'dull')[n % 2]} film, number {n}", n % 2) for n in range(40)]
    write_csv(folder / "reviews.csv", ("review", "stars"), stars)
    write_csv(folder / "more-reviews.csv", ("review", "stars"), stars)
    write_csv(folder / "letters.csv", ("body",), [(text,) for text, _ in stars[:4]])
    with lzma.open(folder / "imdb.jsonl.xz", "wt", encoding="utf-8") as file:
        for text, label in small_tasks.reviews(40, 1):
            file.write(json.dumps({"text": text, "label": label}) + "\n")
    for name in ("all-MiniLM-L6-v2", "bert-base-uncased", "google-bert/bert-base-uncased"):
        vocab_size = tuning_files.write_vocabulary(folder / name).vocab_size
        config = BertConfig.from_size("1-32-2", vocab_size=vocab_size, max_position_embeddings=512)
        Bert(config, initialise(config, seed=0)).save_pretrained(folder / name)


def write_csv(path: Path, header: tuple[str, ...], rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def logger(name: str) -> ModuleType:
    """In place of a library that sends figures to somebody."""
    module = ModuleType(name)
    module.init = module.log = module.log_metrics = lambda *_, **__: None
    module.start_run = contextlib.nullcontext
    return module
