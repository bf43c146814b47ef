"""The page on the architecture tells what calls what: each line is called by the one it is under."""

import ast
import os
import re
import subprocess
import sys
import threading

import pytest
from paths import PACKAGE, ROOT

from minibert.model.ops import Ops
from minibert.pretraining.objective import Pretraining
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import prepare_text
from minibert.pretraining.recipes import Timetable
from minibert.tokenizer import native
from minibert.training.loop import Loop, train
from minibert.training.runlog import RunLog

PAGE = ROOT / "docs" / "architecture.md"
LINE = re.compile(r"( *)(\S+\.py):(\S+)(?:  +.*)?")
FIRST = re.compile(r"\bRead `([\w/]+)`")  # the file of a folder that its docstring says to begin with
FOLDERS = [file.parent.relative_to(PACKAGE).as_posix() for file in sorted(PACKAGE.rglob("__init__.py"))]
MOST_FRAMES = 4  # from the loop to the model
# Files with a function that a small run calls, by the kind of run: lower a number where you can.
MOST_FILES = {"fit": 89, "pretrain": 88}

# Prints the files of the package with a function that is called, also while they are imported.
COUNT = """
import inspect, sys, tempfile, threading
from pathlib import Path

import minibert
from small_tasks import reviews, write_model

package = str(Path(minibert.__file__).parent)
files = set()


def note(frame, event, _):
    code = frame.f_code
    is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")  # no class body
    is_ours = code.co_filename.startswith(package) and code.co_filename.endswith(".py")
    if event == "call" and is_function and is_ours:
        files.add(code.co_filename[len(package) + 1 :])


with tempfile.TemporaryDirectory() as folder:
    model = write_model(Path(folder, "model"))
    texts, labels = zip(*reviews(40, 1))
    documents = [f"it came to pass on day {n}. The sea was calm. No ship came." for n in range(40)]
    threading.setprofile(note)
    sys.setprofile(note)
    if sys.argv[1] == "fit":
        minibert.TextClassifier(model, engine="numpy", epochs=1).fit(texts, labels)
    else:
        sizes = dict(size="2-24-3", vocab_size=80, seq_length="16", batch_size=4)
        minibert.pretrain(documents, engine="numpy", steps=2, **sizes, show=False, out=Path(folder, "run"))
    sys.setprofile(None)
    threading.setprofile(None)
print(*sorted(files), sep="\\n")
"""


def paths(text):
    """The blocks marked as paths: for each its lines as (depth, "file.py:function")."""
    for block in re.findall(r"```text path\n(.*?)```", text, flags=re.S):
        lines = [LINE.fullmatch(line) for line in block.splitlines()]
        assert all(lines), f"a line of a path is not `file.py:function`: {block}"
        yield [(len(line[1]) // 2, f"{line[2]}:{line[3]}") for line in lines]


def parents(lines):
    """Each line with the one it stands under, None at the margin."""
    above = []
    for depth, name in lines:
        del above[depth:]
        yield name, above[-1] if above else None
        above.append(name)


class Calls:
    """Who called whom inside the package, and in which order functions were first entered."""

    def __init__(self):
        self.edges, self.first = set(), {}

    def __enter__(self):
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame, event, _):
        if event == "call" and (name := self._name(frame)):
            caller = frame.f_back
            while caller and not self._name(caller):
                caller = caller.f_back
            self.edges.add((caller and self._name(caller), name))
            self.first.setdefault(name, len(self.first))

    @staticmethod
    def _name(frame):
        """`file.py:function`; None outside the package, and of what has no name: comprehensions, lambdas."""
        code = frame.f_code
        if not code.co_filename.startswith(str(PACKAGE)) or code.co_name.startswith("<"):
            return None
        return f"{code.co_filename[len(str(PACKAGE)) + 1 :]}:{code.co_qualname.replace('.<locals>', '')}"


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """One step of pre-training by the reference, from a text to changed weights."""
    folder = tmp_path_factory.mktemp("run")
    text = "\n\n".join(f"it came to pass on day {n}.\nthe sea was calm.\nno ship came." for n in range(40))
    (folder / "text.txt").write_text(text)
    options = PretrainOptions(
        corpus=(str(folder / "text.txt"),), size="tiny", vocab_size=80, steps=1, seq_length="16",
        max_positions=16, batch_size=2, held_out=0.2,
    ).resolved()  # fmt: skip
    with Calls() as found:
        task = Pretraining(options, prepare_text(options, folder, show=False), Ops())
        state = task.start()
        before = state.params.flat.copy()
        loop = Loop(1, lambda step: 1e-3, folder / "checkpoints")
        batches = task.batches(Timetable.of(1))
        with RunLog(folder, 0, 1, show=False) as log:
            train(task.ops, state, batches, task.objective(state.params.config), loop, log)
    assert (state.params.flat != before).any()
    return found


def test_every_call_on_the_page_is_a_real_one_and_comes_in_this_order(calls):
    told = list(paths(PAGE.read_text(encoding="utf-8")))
    assert len(told) == 2
    for lines in told:
        for name, parent in parents(lines):
            assert name in calls.first, f"{name} was not called"
            assert parent is None or (parent, name) in calls.edges, f"{parent} does not call {name}"
        order = [calls.first[name] for _, name in lines]
        assert order == sorted(order)


def test_from_the_loop_to_the_model_are_at_most_four_frames(calls):
    step = next(paths(PAGE.read_text(encoding="utf-8")))
    chain = [name for depth, name in step[:MOST_FRAMES] if step.index((depth, name)) == depth]
    assert chain[0] == "training/loop.py:train" and chain[-1] == "core/bert.py:pretraining_loss"
    assert len(chain) == MOST_FRAMES


@pytest.mark.parametrize(
    "wrong", ["training/loop.py:train\n  core/bert.py:encoder", "training/loop.py:no_such_function"]
)
def test_a_path_that_is_not_taken_is_found(calls, wrong):
    [lines] = paths(f"```text path\n{wrong}\n```")
    real = all(
        name in calls.first and (parent is None or (parent, name) in calls.edges)
        for name, parent in parents(lines)
    )
    assert not real


def test_only_direct_calls_count(calls):
    assert ("core/step.py:HostSteps.step", "core/ops/updates.py:Updates.zero") in calls.edges
    assert ("core/step.py:HostSteps.step", "core/bert.py:encoder") not in calls.edges


@pytest.mark.skipif(not native.available(), reason="without the extension, other files split words")
@pytest.mark.representatives(run="fit")
@pytest.mark.parametrize("run", MOST_FILES)
def test_small_run_enters_no_more_files_than_before(run):
    """A reader who follows a run has to open each of these files."""
    folders = (str(ROOT), str(ROOT / "tests" / "support"))
    command = [sys.executable, "-W", "ignore", "-c", COUNT, run]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    files = done.stdout.split()
    assert {"training/loop.py", "core/bert.py"} <= set(files)
    assert len(files) <= MOST_FILES[run], files


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_has_a_docstring_and_the_file_that_it_begins_with_exists(folder):
    source = (PACKAGE / folder / "__init__.py").read_text("utf-8")
    text = ast.get_docstring(ast.parse(source))
    assert text
    for name in FIRST.findall(text):
        assert (PACKAGE / folder / f"{name}.py").is_file()
