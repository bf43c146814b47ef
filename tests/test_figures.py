"""Figures in README, in docs/ and in help are those of the code, of the files and of arithmetic."""

import ast
import functools
import inspect
import json
import lzma
import re
import struct
import tomllib
from pathlib import Path

import course
import numpy as np
import page_of_promises
import pytest
from paths import PACKAGE, ROOT

import minibert
from minibert.base import reading
from minibert.cli import pretrain as pretrain_command
from minibert.cli.shared.parser import commands
from minibert.core.config import SIZES, BertConfig
from minibert.course import confined, grading
from minibert.course.exercises import exercises
from minibert.data import corpus
from minibert.engines import trace
from minibert.explorer import page as explorer_page
from minibert.finetuning.options import MOST_WINDOWS
from minibert.hub import onnx
from minibert.pretraining import budget, evaluation, objective, page, preparation, recipes, run
from minibert.pretraining.options import PretrainOptions
from minibert.reports import doctor
from minibert.tasks import similarity_losses
from minibert.tasks.answering import Answering
from minibert.tasks.metrics import schemes
from minibert.tasks.metrics.intervals import bootstrap
from minibert.tasks.task import Task
from minibert.tokenizer import counting
from minibert.verification import replay

MEBI, GIBI = 2**20, 2**30
IN_WORDS = {4: "four", 5: "five", 7: "seven", 8: "eight", 10: "ten"}
PARTS = {5: "a fifth", 8: "an eighth"}


def rate(number: float) -> str:
    """A learning rate as people write it, such as 3e-4."""
    return f"{number:.0e}".replace("e-0", "e-")


def default_of(function, name: str):
    return inspect.signature(function).parameters[name].default


MINUTES = IN_WORDS[recipes.MINUTES]
STARTED = "docs/getting-started.md"
DRAWS = f"{default_of(bootstrap, 'draws'):,} bootstrap samples of the examples"
LONGEST_SCHEDULE, *_ = reversed(recipes.SCHEDULES)
LARGEST_PAGE = f"{explorer_page.LARGEST // 10**6} MB"
MOST_EXPLORED = f"at most {pretrain_command.MOST_EXPLORED // 10**6} million parameters"
LIMITS = f"{confined.SECONDS:.0f} seconds and {confined.MEMORY // GIBI} GiB"
NAMED_SIZES = ", ".join(f"`{name}` {'-'.join(map(str, shape))}" for name, shape in SIZES.items())
QUICK = PretrainOptions(size="2-128-4").resolved()  # what `make pretrain` trains
FURTHER_QUICK = rate(recipes.further_rate(BertConfig.from_size("2-128-4")))
# A page, and what it has to say today.
FIGURES = [
    ("README.md", f"trains a BERT on the books in the package: {MINUTES} minutes"),
    ("docs/index.md", f"trains a BERT on the books in the package: {MINUTES} minutes"),
    (STARTED, f"# {MINUTES} minutes on the books in the package"),
    (STARTED, f"in the last line if the model has {MOST_EXPLORED} and has read texts of "
              f"{pretrain_command.LEAST_COMPARED} tokens"),
    (STARTED, f"in which the model runs, where it has {MOST_EXPLORED}"),
    (STARTED, f"With `--model` sequences have {recipes.FURTHER.seq_length} tokens"),
    (STARTED, f"{rate(recipes.further_rate(BertConfig()))} for `base`, which Google advises, "
              f"{FURTHER_QUICK} for the model of `make pretrain` "
              f"(at least {rate(recipes.NEW_HEAD_RATE)} where a model has no masked-LM head)"),
    (STARTED, f"if it is at least {run.REPEATED:.1%}"),
    (STARTED, f"text of more than {preparation.LEAST_LINES:,} lines, above {preparation.MUCH_REPEATED:.0%} a "
              "warning shows one of them"),
    (STARTED, f"at the end, on {evaluation.TARGETS:,} targets"),
    (STARTED, f"have the losses on the way, of {objective.PREVIEW_TARGETS:,}"),
    (STARTED, f"it is cut into documents of {corpus.CONTINUOUS_SENTENCES} sentences"),
    (STARTED, f"where less than {PARTS[round(1 / preparation.LEAST_IN_PAIRS)]} of the text"),
    (STARTED, f"is measured {IN_WORDS[PretrainOptions().evaluations]} times on the way"),
    (STARTED, f"up to {budget.HELD_OUT:.0%} of the time, with `--steps` up to "
              f"{objective.MEASURING_SHARE:.0%} of the work of the steps"),
    (STARTED, f"{evaluation.TARGETS:,} at the end of a long run, {objective.LEAST_TARGETS} for the shortest"),
    (STARTED, f"at every evaluation and every {page.REFRESH} seconds"),
    (STARTED, f"(of more than {page.MOST_LINES:,} steps, only once the run has ended)"),
    (STARTED, " and ".join(NAMED_SIZES.rsplit(", ", 1))),
    (STARTED, f"128 tokens from {LONGEST_SCHEDULE.tokens / 1e6:.0f} million on, below that 64, and below "
              f"{recipes.SCHEDULES[1].tokens / 1e6} million 32"),
    ("docs/command-line.md", f"judges runs of {doctor.LEAST_STEPS} steps or more"),
    ("docs/command-line.md", f"no {doctor.LEAST_STEPS} steps are needed"),
    ("docs/command-line.md", f"never fell at over {doctor.MANY_TIMES} times the recipe's rate"),
    ("docs/command-line.md", f"at less than {PARTS[doctor.MANY_TIMES]} of the recipe's rate"),
    ("docs/command-line.md", f"less than {PARTS[doctor.MANY_TIMES]} of the recipe's, and the loss"),
    ("docs/command-line.md", f"wrong by less than {IN_WORDS[doctor.MANY_TIMES]} times"),
    ("docs/command-line.md", f"more than {IN_WORDS[replay.MOST_MINUTES]} minutes of training lie between"),
    ("docs/command-line.md", f"a difference above {rate(onnx.TOLERANCE)} is an error"),
    ("docs/fine-tuning.md", f"Other metrics have an interval from {DRAWS}"),
    ("docs/fine-tuning.md", f"A text is cut after `--most-windows` windows ({MOST_WINDOWS})"),
    ("docs/fine-tuning.md", f"cut after {Task.max_length} tokens"),
    ("docs/fine-tuning.md", "strictly if nine tenths of its entity tags" if schemes.KEPT == 0.9 else "?"),
    ("docs/fine-tuning.md", f"{IN_WORDS[len(Task.__abstractmethods__)].title()} methods have no default"),
    ("docs/fine-tuning.md", f"among those of the batch, over {similarity_losses.SCALE:.0f} × their cosines"),
    ("docs/decisions.md", f"with {QUICK.tokens_per_step:,} tokens per step"),
    ("docs/many-devices.md", f"would take {1e6 * 131_072 / 719_000 / 86_400:.1f} days with `base`"),
    ("docs/tokenizer.md", "Two lines in a hundred are held out (`--held-out`)"),
    ("minibert vocab --help", "rounded to one line in n; 0: learn from all lines (default: 0.02)"),
    ("docs/asking.md", f"A page holds at most {LARGEST_PAGE}"),
    ("minibert show --help", f"Models that need more than {LARGEST_PAGE} are refused."),
    ("docs/coming-from.md", f"a checkpoint every {PretrainOptions().checkpoint_seconds / 60:.0f} minutes"),
    ("docs/engines.md", f"a timeline of the first {IN_WORDS[trace.STEPS_SHOWN]} steps"),
    ("docs/differences.md", f"every span of up to {Answering.longest} tokens is a possible answer"),
    ("docs/differences.md", f"if read line by line, {reading.LONGEST_LINE // MEBI} MiB per line"),
    ("docs/differences.md", f"{reading.MOST_TIMES} times the compressed size, or "
                            f"{reading.LEAST_UNFOLDED // MEBI} MiB if that is more"),
    ("docs/differences.md", f"from a pipe | {reading.LARGEST_WHOLE // GIBI} GiB"),
    ("docs/differences.md", f"when words are counted | {counting.LONGEST_STRETCH // MEBI} MiB"),
    ("docs/teaching.md", f"more than {confined.SECONDS:.0f} seconds of processor time for all its questions"),
    ("docs/teaching.md", "or a minute by the clock" if confined.SECONDS * confined.PATIENCE == 60 else "?"),
    ("docs/teaching.md", f"takes more than {confined.MEMORY // GIBI} GiB of memory, its process ended, or "
                         f"its result is larger than {confined.MOST // MEBI} MiB"),
    ("docs/teaching.md", f"the worst mark counts, in the order {', '.join(grading.MARKS[:-1])}"),
    ("minibert course --help", f"with {LIMITS} for an exercise"),
    ("minibert score --help", f"otherwise from {DRAWS}"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "sentence"), FIGURES)
def test_figures_are_those_of_the_code(name, sentence):
    assert sentence in page_of_promises.text_of(name)


def test_versions_and_extras_are_those_of_the_installation():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    readme, started = (page_of_promises.text_of(name) for name in ("README.md", STARTED))
    assert f"named `{project['name']}`" in readme
    least = project["requires-python"].removeprefix(">=")
    assert f"Python {least} or later (with venv)" in readme and f"Python is {least} or later" in started
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"'\.\[(\w+)\]'", page.read_text("utf-8"))}
    assert {"plots", "experiments", "notebooks", "jax", "wiki", "zstd", "onnx"} <= named
    assert named <= project["optional-dependencies"].keys()


def test_make_help_lists_every_target():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.search(r"^\.PHONY: (help .*)$", makefile, re.MULTILINE)[1].split()
    assert sorted(targets) == sorted(re.findall(r"^([a-z-]+):.*## .", makefile, re.MULTILINE))


def test_table_of_the_command_line_has_every_command():
    text = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    table = text.partition("| to | commands |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`([\w-]+)`", table)) == sorted(commands())


def test_rules_of_the_doctor_are_those_of_the_page():
    text = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    table = text.partition("| finding | what it rests on |\n|---|---|\n")[2].partition("\n\n")[0]
    assert [line.split("|")[1].strip() for line in table.splitlines()] == list(doctor.RULES)


def test_chapters_have_as_many_exercises_as_the_readme_says():
    rows = re.findall(
        r"^\| \[(\d\d)\]\(.*\| (none|\d+)(?: puzzles)? \|$", (ROOT / "README.md").read_text(), re.M
    )
    told = {chapter: 0 if count == "none" else int(count) for chapter, count in rows}
    assert told == {path.name[:2]: len(exercises(path)) for path in course.notebooks()}


def test_a_task_has_the_methods_without_default_of_the_page():
    text = (ROOT / "docs" / "fine-tuning.md").read_text("utf-8")
    table = text.partition("| method | what it does |\n|---|---|\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == Task.__abstractmethods__


def test_floors_of_the_rooms_are_twelve():
    picture = re.search(
        r"```\n(cli\n.*?core\n)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL
    )
    assert len(picture[1].splitlines()) == 12
    assert "the picture of twelve floors" in page_of_promises.text_of("docs/decisions.md")


def test_there_are_twenty_programs():
    programs = (ROOT / "docs" / "programs.md").read_text("utf-8")
    assert len(re.findall(r"^### \d+\. ", programs, re.MULTILINE)) == 20 and programs.startswith(
        "# Twenty programs"
    )


# The core


def lines_of(path: Path) -> tuple[int, int]:
    """How many lines of a file are code, and how many comments and docstrings."""
    source = path.read_text("utf-8")
    described = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            described |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    written = [(n, line.strip()) for n, line in enumerate(source.splitlines(), 1) if line.strip()]
    words = sum(n in described or line.startswith("#") for n, line in written)
    return len(written) - words, words


def test_the_core_is_as_long_as_the_readme_says():
    told = re.search(
        r"some ([\d,]+) lines of code \(and some ([\d,]+) of documentation\)",
        page_of_promises.text_of("README.md"),
    )
    counts = np.array([lines_of(path) for path in (PACKAGE / "core").rglob("*.py")]).sum(0)
    said = np.array([int(number.replace(",", "")) for number in told.groups()])
    assert (np.abs(counts / said - 1) < 0.07).all(), counts


def test_each_backward_is_directly_below_its_forward():
    found = 0
    for path in (PACKAGE / "core").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        for body in [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]:
            names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
            for above, name in zip(["", *names], names, strict=False):
                if name.endswith("_backward") and not name.startswith("_"):
                    assert above == name.removesuffix("_backward"), f"{path.name}: {name}"
                    found += 1
    assert found > 20


# What the package never does


def dotted(node: ast.AST) -> str:
    """A name with what stands behind its dots, such as os.environ; "" of what is computed."""
    if isinstance(node, ast.Name):
        return node.id
    before = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return before and f"{before}.{node.attr}"


def names_in(source: str) -> set[str]:
    """What a source imports, and the dotted names that it uses."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):
            found.add(dotted(node))
    return found


@functools.cache
def names_of_files() -> dict[str, set[str]]:
    return {
        str(path.relative_to(PACKAGE)): names_in(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")
    }


def users_of(pattern: str) -> set[str]:
    """The files of the package that use or import a name that matches a pattern from its beginning."""
    return {
        file for file, names in names_of_files().items() if any(re.match(pattern, name) for name in names)
    }


NETWORK = r"(socket|ssl|urllib\.request|http|ftplib|smtplib|asyncio|requests|httpx|aiohttp|huggingface_hub)\b"


def test_nothing_but_the_processes_of_a_cluster_opens_a_connection():
    assert users_of(NETWORK) == {"engines/jax/cluster.py", "training/runlog.py"}
    assert {name for name in names_of_files()["training/runlog.py"] if name.startswith("socket.")} == {
        "socket.gethostname"
    }  # no connection


def test_nothing_is_unpickled_in_the_package():
    assert users_of(r"(pickle|_pickle|cPickle|marshal|shelve|dill|cloudpickle|joblib|torch\.load)\b") == set()
    assert users_of(r"(np|numpy)\.(load|fromregex|DataSource)\b") == set()


def test_no_module_differentiates_by_itself():
    assert (
        users_of(r"(jax\.(grad|vjp|jvp|value_and_grad|jac\w+|hessian|linearize)|autograd|torch\.autograd)\b")
        == set()
    )


def test_only_the_command_line_reads_the_arguments_of_the_process():
    assert users_of(r"sys\.argv\b") == {"cli/shared/parser.py"}


def test_only_two_files_read_the_environment_and_the_page_names_their_variables():
    readers = users_of(r"os\.(environ|getenv)\b")
    assert readers == {"engines/cpp/primitives.py", "base/model_names.py"}
    source = "".join((PACKAGE / file).read_text("utf-8") for file in sorted(readers))
    variables = set(re.findall(r'"((?:MINIBERT|HF|HUGGINGFACE|XDG)_\w+)"', source))
    text = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    table = text.partition("| variable | what it does |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([A-Z_]+)`", table)) == variables


# The model and the books in the package

FOLDER = PACKAGE / "pretrained" / "english"


def test_figures_of_the_model_in_the_package_are_those_of_its_files():
    told = page_of_promises.text_of("docs/models/english.md")
    card = " ".join((FOLDER / "README.md").read_text("utf-8").split())
    config = BertConfig.from_dict(json.loads((FOLDER / "config.json").read_text("utf-8")))
    with open(FOLDER / "model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    count = sum(int(np.prod(entry["shape"])) for entry in tensors.values())
    assert {entry["dtype"] for entry in tensors.values()} == {"F16"}
    assert any("pooler" in name for name in tensors) != ("it has no trained pooler" in told)
    megabytes = sum(path.stat().st_size for path in FOLDER.iterdir()) / 1e6
    for sentence in (
        f"{config.L} layers, hidden size {config.H}, {config.A} heads, {count:,} parameters",
        f"{config.V:,} pieces, uncased, without accents",
        f"it has {config.P} positions",
        f"float16, {megabytes:.1f} MB with its tokenizer",
    ):
        assert sentence in told
    steps, tokens, minutes = re.search(r"([\d,]+) steps, ([\d,]+) tokens, ([\d.]+) minutes", card).groups()
    before = re.findall(r"Before: ([\d,]+) steps, ([\d,]+) tokens", card)
    all_steps, all_tokens = zip(*before, (steps, tokens), strict=True)
    assert f"| steps | {' | '.join(all_steps)} |" in told
    assert f"| tokens | {' | '.join(all_tokens)} |" in told
    assert f"{float(minutes) // 60:.0f} h {float(minutes) % 60:.0f} min" in told
    millions = round(sum(int(count.replace(",", "")) for count in all_tokens) / 1e6)
    assert f"It read {millions} million tokens in some eight hours" in told
    assert f"It has read only {millions} million tokens" in page_of_promises.text_of("README.md")
    for name in ("loss, nats", "its standard error, by document", "accuracy"):
        assert re.search(rf"\| {name} \| ([\d.]+%?) \|", card)[1] in told
    for name in (
        "unigram entropy of the targets: the best guess without context",
        "loss with the context shuffled",
    ):
        assert re.search(rf"\| {name} \| ([\d.]+) \|", card)[1] in told
    tokenizer = minibert.Tokenizer.from_pretrained("english")
    assert len(tokenizer) == config.V and tokenizer.tokenize("Étés") == tokenizer.tokenize("etes")


def test_answers_of_the_model_in_the_package_are_those_of_the_page():
    told = page_of_promises.text_of("docs/models/english.md")
    english = minibert.load("english")
    for text, sentence in (
        ("She was born in New [MASK] City.", '("New [MASK] City": *{}*, {:.0%})'),
        ("The capital of France is [MASK].", "it answers *{}*, with {:.0%}"),
    ):
        [[guess]] = english.fill_mask(text, top=1)
        assert sentence.format(guess.token, guess.probability) in told
    readme = (ROOT / "README.md").read_text("utf-8")
    [text, shown] = re.search(r'model\.encode\("(.*)"\) +# (Encoded.*)', readme).groups()
    assert repr(english.encode(text)) == shown


def test_books_of_the_package_have_the_lines_of_the_page():
    with lzma.open(corpus.embedded_corpus(), "rt", encoding="utf-8") as file:
        lines = sum(1 for line in file if line.strip())
    assert f"The books in the package are {lines:,} lines." in page_of_promises.text_of("docs/asking.md")
    megabytes = corpus.embedded_corpus().stat().st_size / 1e6
    note = (PACKAGE / "corpora" / "README.md").read_text("utf-8")
    books = re.search(r"`books.txt.xz`: (\d+) English books", note)[1]
    assert f"{books} public-domain books in {megabytes:.1f} MB" in page_of_promises.text_of(
        "docs/architecture.md"
    )


# Arithmetic


def matrices_of_layers(config: BertConfig) -> int:
    return config.L * (4 * config.H**2 + 2 * config.H * config.F)


def test_prepacked_matrices_of_base_take_the_memory_of_the_page():
    base = BertConfig()
    layers, decoder = (4 * count / 1e6 for count in (matrices_of_layers(base), base.V * base.H))
    of_decoder = f"another {decoder:.0f} or {decoder / 2:.0f} for the decoder"
    assert f"for `base` {layers:.0f} MB, half of that in bfloat16, {of_decoder}" in page_of_promises.text_of(
        "docs/python.md"
    )


def test_arithmetic_of_the_pages_is_right():
    asking = page_of_promises.text_of("docs/asking.md")
    half = np.finfo(np.float16).eps / 2  # of rounding to nearest, relative
    width = minibert.BertConfig(hidden_size=384).H
    for sentence in (
        f"A million such vectors take {1e6 * 4 * width / 1e9:.1f} GB",
        f"a number is rounded by one part in {1 / half:,.0f} at most",
        f"two vectors of length 1 by {half:.4f} at most",
        f"A vector of {width} numbers takes {2 * width} bytes",
        f"those of 100,000 texts {2e5 * width / 1e6:.0f} MB on disk",
        f"the array of their cosines {1e5 * 4 / 1e6} MB for each question",
    ):
        assert sentence in asking


def test_page_of_the_model_in_the_package_takes_the_megabytes_of_the_page(tmp_path):
    whole, half = (minibert.show("english", int8=int8).save(tmp_path / "page.html") for int8 in (False, True))
    sentence = f"`english` takes {whole / 1e6:.1f} MB, or {half / 1e6:.1f} with `int8=True`"
    assert sentence in page_of_promises.text_of("docs/asking.md")


# Measurements that stand on two pages


def rows_of(page: str, beginning: str) -> list[list[str]]:
    """The cells of the rows of a page's tables that begin so, without the first cell."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith(f"| {beginning}")]
    return [[cell.strip() for cell in row[1:]] for row in rows]


def factors(cell: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", cell)]


# A row of README's table on speed, and where docs/results.md has its factors for Zen 4, in both precisions.
SPEEDS = [
    ("a pre-training step", "**minibert / the fastest peer", 0, 4),
    ("the same for `tiny`", "**minibert / Hugging Face", 0, 2),
    ("encoding 32 sequences", "**minibert / the fastest peer", 2, 2),
    ("fine-tuning `mini`", "**minibert / Hugging Face", 2, 3),
]


@pytest.mark.parametrize(("claim", "measured", "first", "count"), SPEEDS)
def test_readme_claims_no_more_speed_than_was_measured(claim, measured, first, count):
    [claimed] = rows_of("README.md", claim)
    found = [[factors(cell)[0] for cell in row[:count]] for row in rows_of("docs/results.md", measured)]
    for cell, fastest in zip(claimed[:2], found[first : first + 2], strict=True):
        assert len(factors(cell)) == count and (np.array(factors(cell)) <= fastest).all()


def test_readme_tokenises_as_fast_as_was_measured():
    [claimed], measured = (
        rows_of("README.md", "tokenising English"),
        rows_of("docs/results.md", "English Wikipedia"),
    )
    assert f"{claimed[0]}×" == measured[0][3]


def test_memory_of_training_is_that_of_the_tables():
    fp32, bf16 = (
        [
            factors(cell.replace(",", ""))[0] / 1000
            for cell in rows_of("docs/results.md", f"cpp, {dtype}")[1][:5]
        ]
        for dtype in ("fp32", "bf16")
    )
    for name, (*small, least, most) in (("float32", fp32), ("bfloat16", bf16)):
        expected = [*(f"{gigabytes:.1f}" for gigabytes in small), f"{least:.1f} to {most:.1f}"]
        assert [cell.removesuffix(" GB") for cell in rows_of("docs/getting-started.md", name)[0]] == expected


def test_experiments_have_what_the_readme_says_of_them():
    experiments = (ROOT / "docs" / "experiments.md").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    table = readme.partition("| | paper | here | shown? |")[2].partition("\n\n")[0]
    found = re.findall(r"\d+\.\d ±\d\.\d", table) + re.findall(r"[+-]\d+\.\d \[-?\d[^]]*\]", table)
    assert len(found) > 25 and [one for one in found if one not in experiments] == []


def test_present_speed_of_make_pretrain_is_that_of_the_results():
    results, started = (page_of_promises.text_of(name) for name in ("docs/results.md", STARTED))
    figures = r"`make pretrain` reads ([\d.]+) million .*?, ([\d,]+) tokens/s\) and ends ([\d.]+) nats under"
    tokens, speed, under = re.search(figures, results).groups()
    told = f"reads {tokens} million tokens in its {MINUTES} minutes ({speed} tokens/s)"
    assert f"{told} and ends {under} nats under" in started
