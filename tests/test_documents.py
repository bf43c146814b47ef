"""README and docs/: links lead somewhere, files and functions exist, commands and samples work."""

import ast
import importlib
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import english_pack
import numpy as np
import page_reader
import pytest
from docs_programs import programs
from page_reader import FENCE, Reader, Step
from paths import PACKAGE, ROOT

import minibert
from minibert.base import bundled_models
from minibert.cli import main

DOCS = ROOT / "docs"
LOG = DOCS / "log"  # names there are those of their day
NOT_OURS = {"_build", "notebooks"}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"] + sorted(
    path for path in DOCS.rglob("*.md") if not NOT_OURS & set(path.relative_to(DOCS).parts)
)
IN_PRESENT = [path for path in PAGES if LOG not in path.parents]
# `folder/file.py`, `file.py`, `folder/file.cpp:name`, `folder/file.py:Class.method`
NAMED = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|cpp|h|c|ipynb|toml))(?::([\w.]+))?`")
ROOM = re.compile(r"`((?:[\w-]+/)+)`")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(page: str) -> str:
    """A page without what is fenced."""
    return FENCE.sub("", page)


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead_links(page: str, folder: Path) -> list[str]:
    """Return the relative links that lead to no file, or to no heading of it."""
    dead = []
    for target in re.findall(r"\]\(([^()\s]+)\)", prose(page)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        where = folder / path
        text = where.read_text("utf-8") if path and where.suffix == ".md" and where.is_file() else page
        if not where.exists() or (anchor and anchor not in anchors(text)):
            dead.append(target)
    return dead


def defined(path: Path) -> set[str]:
    """Names that a file defines, methods behind their class."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        return set(re.findall(r"\b[a-z_]\w+\b", text))
    found = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            found |= methods | {f"{node.name}.{method}" for method in methods}
    return found


def candidates(name: str) -> list[Path]:
    """Files that a page may mean by a path, from the root or inside the package, or by a mere name."""
    if "/" in name:
        return [path for path in (ROOT / name, PACKAGE / name) if path.is_file()]
    places = ("minibert", "benchmarks", "tests", "csrc")
    return [*ROOT.glob(name), *(path for place in places for path in (ROOT / place).rglob(name))]


def missing_names(page: str) -> list[str]:
    """Return the files, functions and folders that a page names and that are not there."""
    missing = []
    for name, function in NAMED.findall(prose(page)):
        if "NAME" in name:  # a pattern
            continue
        files = candidates(name)
        if not files or (function and not any(function in defined(path) for path in files)):
            missing.append(f"{name}:{function}" if function else name)
    for name in ROOM.findall(prose(page)):
        if not (ROOT / name).is_dir() and not (PACKAGE / name).is_dir():
            missing.append(name)
    return missing


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_relative_links_lead_to_files_and_headings(path):
    assert dead_links(path.read_text("utf-8"), path.parent) == []


@pytest.mark.parametrize("path", IN_PRESENT, ids=name_of)
def test_named_files_functions_and_folders_exist(path):
    assert missing_names(path.read_text("utf-8")) == []


def test_dead_links_and_missing_names_are_found():
    page = "# A b\n[a](nowhere.md) [b](README.md#no-such-heading) [c](#a-b) [d](#a-c) [e](https://a.example)"
    assert dead_links(page, ROOT) == ["nowhere.md", "README.md#no-such-heading", "#a-c"]
    page = "`core/ops/primitives.py:Primitives.layer_norm` `primitives.py:layer_norm` "
    page += "`core/ops/losses.py:layer_norm`"
    assert missing_names(page) == ["core/ops/losses.py:layer_norm"]
    assert missing_names("`core/nothing.py` `nothing.py` `core/` `nothing/`") == [
        "core/nothing.py", "nothing.py", "nothing/",
    ]  # fmt: skip


def commands(page: str) -> Iterator[list[str]]:
    """The words of every `minibert ...` in what a page fences, lines that go on taken together."""
    for language, text in FENCE.findall(page):
        if language in ("", "sh"):
            for line in text.replace("\\\n", " ").splitlines():
                if found := re.search(r"(?:^|\| |\$ |srun )minibert (.*)", line):
                    yield shlex.split(found[1], comments=True)


@pytest.mark.parametrize("path", IN_PRESENT, ids=name_of)
def test_commands_and_their_flags_exist(path, capsys):
    for name, *words in commands(path.read_text("utf-8")):
        if name == "COMMAND":
            continue
        with pytest.raises(SystemExit) as ended:
            main(["--help"] if name.startswith("--") else [name, "--help"])
        known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
        assert ended.value.code == 0 and len(known) > 1, name
        unknown = {word.partition("=")[0] for word in words if word.startswith("--")} - known
        assert not unknown, f"minibert {name} {' '.join(words)}"


def test_commands_are_found():
    text = (ROOT / "README.md").read_text("utf-8")
    assert {"pretrain", "fill-mask", "finetune"} <= {words[0] for words in commands(text)}


@pytest.mark.parametrize("page", IN_PRESENT, ids=name_of)
def test_python_samples_name_what_there_is(page):
    """Most would train for minutes, so of all but one page the samples are read and not run."""
    samples = [text for language, text in FENCE.findall(page.read_text("utf-8")) if language == "python"]
    for node in (node for sample in samples for node in ast.walk(ast.parse(sample))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "minibert":
            module = importlib.import_module(node.module)
            assert all(hasattr(module, one.name) for one in node.names), ast.unparse(node)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "minibert":
            assert hasattr(minibert, node.attr), ast.unparse(node)


@pytest.mark.parametrize("page", ["docs/getting-started.md"])
def test_python_samples_run(page, model):
    fenced = FENCE.findall((ROOT / page).read_text("utf-8"))
    samples = [text for language, text in fenced if language == "python"]
    for sample in samples:
        assert '"runs/books"' in sample
        names = {}
        exec(sample.replace('"runs/books"', repr(str(model))), names)
        T, H = names["encoded"].hidden_states[-1].shape
        assert names["encoded"].pooled.shape == (1, H)
        assert names["encoded"].attentions[0][0].shape[1:] == (T, T)
    assert samples


PROGRAMS = DOCS / "programs.md"  # which run as they are written, each by itself
FOLLOWED = [path for path in IN_PRESENT if path != PROGRAMS and page_reader.steps(path.read_text("utf-8"))]
# Samples that are not run: they train for hours, or need what only some machines have.
SAMPLES_LEFT_OUT = {"docs/experiments.md", "CONTRIBUTING.md"}


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder that `make pretrain` leaves, made of less text in fewer steps."""
    folder = tmp_path_factory.mktemp("trained")
    corpus = page_reader.write_books(folder / "text.txt")
    shape = "--size 2-128-4 --dtype auto --steps 2 --evaluations 0 --batch-size 8 --quiet"
    assert main(["pretrain", str(corpus), "--out", str(folder / "books"), *shape.split()]) == 0
    return folder / "books"


@pytest.fixture(scope="session")
def pretrained(trained, tmp_path_factory):
    """The folder of the models in the package, in which the same run stands in for one of hours."""
    folder = tmp_path_factory.mktemp("pretrained")
    english_pack.pack(trained, folder / bundled_models.DEFAULT)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", FOLLOWED, ids=name_of)
def test_commands_and_samples_run_in_order(page, trained, pretrained, tmp_path, monkeypatch):
    """As after `make pretrain`, in its folder; they leave files in `runs` alone, which Git ignores."""
    monkeypatch.setattr(bundled_models, "FOLDER", pretrained)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "runs"))
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, page_reader.logger(name))
    reader = Reader(tmp_path, trained)
    for step in page_reader.steps(page.read_text("utf-8")):
        if step.language == "python" and name_of(page) in SAMPLES_LEFT_OUT:
            continue
        reader.follow(step)
    assert reader.left_behind() == set()


@pytest.mark.slow
def test_programs_run_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))  # which a program sets anew
    (tmp_path / "docs").symlink_to(DOCS)
    found = programs()
    numbers = [title.partition(".")[0] for title in found]
    assert numbers == ["", *map(str, range(1, 21))]
    for title, (program, output) in found.items():
        exec(compile(program, title, "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out == output, title


def test_search_program_finds_each_text_by_itself(model, tmp_path, monkeypatch, capsys):
    lines = ["the film was charming", "a dull story", "the end", "one very funny journey", "it is cold"]
    texts, vectors = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    texts.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    program = runpy.run_path(str(DOCS / "examples" / "search.py"))

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["search.py", *map(str, words)])
        program["main"]()
        return capsys.readouterr().out

    assert run("index", model, texts, vectors) == f"5 vectors in {vectors}\n"
    stored = np.load(vectors)
    wanted = minibert.load(model).encode(lines).vectors(normalize=True)
    assert stored.dtype == np.float16
    assert np.abs(stored - wanted).max() < 1e-3
    answer = f"{lines[1]}\n1.000  {lines[1]}\n{lines[3]}\n1.000  {lines[3]}\n"
    assert run("ask", model, texts, vectors, lines[1], lines[3], "--top", 1) == answer
    monkeypatch.setitem(program["nearest"].__globals__, "BLOCK", 2)
    with_gaps = tmp_path / "gaps.txt"
    with_gaps.write_text("".join(f"\n{line}\n" for line in lines), "utf-8")
    assert run("index", model, with_gaps, tmp_path / "gaps.npy") == f"10 vectors in {tmp_path / 'gaps.npy'}\n"
    assert np.isnan(np.load(tmp_path / "gaps.npy")[::2]).all()
    assert run("ask", model, with_gaps, tmp_path / "gaps.npy", lines[1], lines[3], "--top", 1) == answer
    rows, cosines = program["nearest"](stored, wanted[:2], 3)
    whole = wanted[:2] @ stored.astype(np.float32).T
    assert np.array_equal(rows, np.argsort(-whole, axis=1)[:, :3])
    assert np.allclose(cosines, -np.sort(-whole, axis=1)[:, :3], atol=1e-6)


def documented_names() -> set[str]:
    """What the pages of the API have an entry for, by its whole name."""
    found = set()
    for page in (DOCS / "api").glob("*.md"):
        module = ""
        for kind, name in re.findall(r"^\.\. (\w+):: ([\w.]+)", page.read_text("utf-8"), re.MULTILINE):
            if kind == "currentmodule":
                module = name
            else:
                found.add(name if name.startswith("minibert.") else f"{module}.{name}")
    return found


def names_used(program: str) -> set[str]:
    """The names of the package that a program imports, or reads as `minibert.NAME`."""
    found = set()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("minibert"):
            found |= {f"{node.module}.{one.name}" for one in node.names}
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "minibert":
            found.add(f"minibert.{node.attr}")
    return found


def test_programs_use_only_what_the_api_pages_have():
    used = {name: names_used(program) for name, (program, _) in programs().items()}
    assert "minibert.core.step.HostSteps" in set().union(*used.values())
    assert {name: names - documented_names() for name, names in used.items()} == dict.fromkeys(used, set())


def test_public_names_stand_in_the_api_pages():
    public = {f"minibert.{name}" for name in minibert.__all__ if not name.startswith("_")}
    assert public <= documented_names()


def test_steps_of_a_page_are_its_commands_and_samples():
    page = """
```
$ minibert info | cat       # a prompt
minibert 1.0
```

```
minibert vocab a.txt \\
  --out b && minibert info  # not "#" alone
state = 3
```

```python
x = 1
```

```json
{}
```
"""
    assert page_reader.steps(page) == [
        Step("sh", "minibert info | cat"),
        Step("sh", "minibert vocab a.txt    --out b"),
        Step("sh", "minibert info"),
        Step("python", "x = 1\n"),
    ]


def test_a_step_that_fails_is_found(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path, trained)
    reader.follow(Step("sh", "make nothing"))
    with pytest.raises(AssertionError, match="There is no folder"):
        reader.follow(Step("sh", "minibert fill-mask --model runs/nowhere '[MASK]'"))
    with pytest.raises(NameError):
        reader.follow(Step("python", "nothing_of_the_kind"))
    reader.follow(Step("sh", "minibert fill-mask --model runs/books 'The [MASK].' > guesses.txt"))
    assert reader.left_behind() == {"guesses.txt"}
