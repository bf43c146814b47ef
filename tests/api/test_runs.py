"""The front door: training and loading from Python, as the README's first code has it."""

import dataclasses
import html
import inspect
import json
import re
from ast import literal_eval

import numpy as np
import pytest
from paths import ROOT
from small_corpus import write_corpus
from small_tasks import reviews, write_model, write_sst2

import minibert
from minibert.api.runs import FinetuneCall, PretrainCall, Run
from minibert.base.errors import InputError
from minibert.finetuning.options import FinetuneOptions
from minibert.model.ops import Ops
from minibert.pretraining.options import PretrainOptions
from minibert.training.runlog import takes_log

SMALL = dict(vocab_size=120, seq_length="16", batch_size=8, max_positions=16, engine="numpy", show=False)


def page_of(run):
    return (run.folder / "report.html").read_text(encoding="utf-8")


def first_code():
    """The README's first code in Python."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.S)[0]


def test_first_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    code, names = first_code(), {}
    assert "steps=200" in code
    exec(code.replace("steps=200", "steps=20"), names)
    assert repr(names["model"]) == repr(minibert.load("english"))
    assert set(names["classifier"].predict(["a fine film", "a dull film"])) <= {"good", "bad"}
    asked, answer = re.search(r"classifier\.predict\((.*)\) +# array\((.*)\)", code).groups()
    assert names["classifier"].predict(literal_eval(asked)).tolist() == literal_eval(answer)
    run = names["run"]
    assert isinstance(run, Run) and run.report["steps"] == 20 and str(run.folder) == "runs/letter"
    assert repr(run.model) == repr(minibert.load("runs/letter"))
    assert len(run.tokenizer) == run.report["vocab_size"]
    shown = run._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" ') and 'title="Run(' in shown
    assert html.unescape(shown.partition('srcdoc="')[2].partition('"')[0]) == page_of(run)
    assert "Engine" in capsys.readouterr().err  # it told how it went


def interrupting(step):
    """A logger that presses a notebook's button to interrupt after a step."""

    def press(number, values):
        if number == step and "train/loss" in values:
            raise KeyboardInterrupt

    return press


@pytest.mark.thorough
def test_interrupted_call_says_how_to_resume(tmp_path, capsys):
    corpus, out = str(write_corpus(tmp_path / "animals.txt")), tmp_path / "run"
    more = SMALL | {"out": out, "steps": 6, "show": True}
    with pytest.raises(KeyboardInterrupt) as stopped:
        minibert.pretrain(corpus, on_log=interrupting(3), **more)
    said = f"Stopped and saved in {out}; minibert.pretrain(out={str(out)!r}, resume=True) resumes it."
    assert str(stopped.value) == said
    assert "minibert pretrain" not in capsys.readouterr().err  # no command in answer to a call
    assert minibert.pretrain(corpus, resume=True, **more).report["steps"] == 6
    with pytest.raises(KeyboardInterrupt, match=r"Stopped and saved in .*tuned; the same call with out="):
        model, data = write_model(tmp_path / "m"), write_sst2(tmp_path / "d")
        more = {"out": tmp_path / "tuned", "engine": "numpy", "show": False, "on_log": interrupting(1)}
        minibert.finetune("sst2", str(data), str(model), **more)


def test_notebook_shows_an_interrupted_call_in_one_line(tmp_path, capsys):
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    corpus = str(write_corpus(tmp_path / "animals.txt"))
    calls = {
        "train": lambda: minibert.pretrain(
            corpus, steps=6, on_log=interrupting(3), out=tmp_path / "run", **SMALL
        ),
        "fit": lambda: minibert.TextClassifier(
            write_model(tmp_path / "m"), engine="numpy", verbose=False, on_log=interrupting(1)
        ).fit(*zip(*reviews(64, 1), strict=True)),
    }
    shell.user_ns.update(calls)
    for name in calls:
        capsys.readouterr()
        assert not shell.run_cell(f"{name}()").success
        [line] = capsys.readouterr().out.strip().splitlines()
        assert "Stopped and saved in" in line


def test_run_resumes_in_its_folder_and_opens_from_it(tmp_path):
    corpus, logged = str(write_corpus(tmp_path / "animals.txt")), []
    more = SMALL | {"out": tmp_path / "run", "seed": 3}
    minibert.pretrain(corpus, steps=4, **more)
    run = minibert.pretrain(corpus, steps=6, resume=True, on_log=lambda *line: logged.append(line), **more)
    assert run.report["steps"] == 6 and [step for step, values in logged if "train/loss" in values] == [5, 6]
    assert {name.split("/")[0] for _, values in logged for name in values} == {"train", "eval", "speed"}
    assert [line["step"] for line in run.metrics() if "mlm_loss" in line] == [1, 2, 3, 4, 5, 6]
    again = Run.open(tmp_path / "run")
    assert repr(again) == repr(run) and str(again) == str(run)
    stored = json.loads((tmp_path / "run" / "report.json").read_text())
    assert list(again.report) == list(stored) and list(again.report["held_out"]) == list(stored["held_out"])
    with pytest.raises(InputError, match=r"cannot be resumed with .*seed"):
        minibert.pretrain(corpus, steps=6, resume=True, **more | {"seed": 4})
    with pytest.raises(InputError, match=r"holds no finished run .report.json is missing.; name one"):
        Run.open(tmp_path)


@pytest.mark.thorough
def test_device_applies_to_one_run_only(tmp_path):
    corpus = str(write_corpus(tmp_path / "animals.txt"))
    own = SMALL | {"engine": "jax", "device": "cpu"}
    run = minibert.pretrain(corpus, steps=2, out=tmp_path / "run", **own)
    assert run.model.encode("the cat").pooled is not None  # by the fastest engine
    with pytest.raises(InputError, match="device='cpu' is for engine='jax'"):
        minibert.pretrain(corpus, steps=2, out=tmp_path / "other", **SMALL | {"device": "cpu"})
    assert minibert.load(tmp_path / "run", "numpy").config == run.model.config


def test_empty_corpus_does_not_mean_the_books(tmp_path):
    with pytest.raises(InputError, match=r"corpus=\[\] names no file; give one, or leave it out for the boo"):
        minibert.pretrain([], out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="There is no run in '.*run'; check `out`, or leave out `resume`"):
        minibert.pretrain(out=tmp_path / "run", resume=True, show=False)


def test_column_of_a_corpus_that_is_not_a_list_is_named():
    with pytest.raises(InputError, match=r"^corpus\['a'\]=1 is not a list; give one, an array, or a column"):
        minibert.pretrain({"a": 1})
    with pytest.raises(
        InputError, match=r"^The table has no column for column='text', nor any other; fill it"
    ):
        minibert.pretrain({})


def test_default_that_is_given_is_compared_with_the_run(tmp_path):
    corpus = str(write_corpus(tmp_path / "animals.txt"))
    more = SMALL | {"out": tmp_path / "run", "steps": 2}
    minibert.pretrain(corpus, held_out=0.2, **more)
    with pytest.raises(InputError, match=r"cannot be resumed with held_out=0.05 \(the run has 0.2\)"):
        minibert.pretrain(corpus, held_out=0.05, resume=True, **more)
    assert minibert.pretrain(corpus, dropout=None, resume=True, **more).report["steps"] == 2


@pytest.mark.thorough
def test_custom_engine_computes_the_run(tmp_path):
    counted = []

    class Mine(Ops):
        def layer_norm(self, *given, **named):
            counted.append(1)
            return super().layer_norm(*given, **named)

    corpus = str(write_corpus(tmp_path / "animals.txt"))
    mine = minibert.pretrain(corpus, steps=2, ops=Mine(), out=tmp_path / "mine", **SMALL)
    assert len(counted) > 10
    theirs = minibert.pretrain(corpus, steps=2, out=tmp_path / "theirs", **SMALL)
    assert np.array_equal(mine.model.params.flat, theirs.model.params.flat)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"on_log": 3}, "on_log=3 is not valid; give a function of the number of a step and its values."),
        ({"on_log": [print]}, "is not valid; give a function of the number of a step and its values."),
        ({"on_log": lambda values: None}, "is not valid; give a function of the number of a step and its"),
        ({"on_log": dict}, "on_log=<class 'dict'> is not valid; give a function of the number of a step and"),
        ({"resume": 1}, "resume=1 is not valid; give True or False."),
        (
            {"ops": "numpy"},
            "ops='numpy' is not valid; give an engine object, or one by its name",
        ),
        ({"ops": Ops}, 'is not valid; give an engine object, or one by its name, such as engine="numpy".'),
    ],
)
def test_invalid_ops_and_on_log_are_refused_before_any_work(tmp_path, given, message):
    corpus = str(write_corpus(tmp_path / "animals.txt"))
    for start in (
        lambda: minibert.pretrain(corpus, steps=2, out=tmp_path / "run", **SMALL, **given),
        lambda: minibert.finetune("sst2", tmp_path, tmp_path, out=tmp_path / "run", **given),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            start()
    assert not (tmp_path / "run").exists()


class Logger:
    def __init__(self, step, values):
        pass

    def __call__(self, step, values):
        pass


def test_on_log_is_a_function_known_to_take_a_step_and_values():
    assert takes_log(print) and takes_log({}.__setitem__) and takes_log(lambda step, values, *more: None)
    assert takes_log(Logger(1, {})) and not takes_log(Logger)  # the class itself would only be made
    assert not takes_log(len) and not takes_log(lambda *, step, values: None)
    for unknown in (max, {}.update, dict, int):
        assert not takes_log(unknown)


def test_help_shows_no_default_for_options_without_one():
    for function, names in (
        (minibert.pretrain, ("model", "shards")),
        (minibert.finetune, ("feature_based",)),
    ):
        for name in names:
            text = re.search(rf"^{name} : .*(?:\n    .*)+", function.__doc__, re.M)[0]
            assert "(default:" not in text, text


def test_fine_tuning_from_python_equals_the_command(tmp_path):
    model, data = write_model(tmp_path / "m"), write_sst2(tmp_path / "d")
    run = minibert.finetune(
        "sst2", str(data), str(model), out=tmp_path / "run", epochs=1, engine="numpy", show=False
    )
    assert (
        isinstance(run.model, minibert.TextClassifier) and "accuracy" in repr(run) and "on dev" in repr(run)
    )
    assert "Accuracy" in str(run) or "accuracy" in str(run)
    assert html.escape(page_of(run)) in run._repr_html_()
    (run.folder / "report.html").unlink()
    assert run._repr_html_() == f"<pre>{html.escape(str(run))}</pre>"
    assert run.model.predict(["a charming film"]).tolist()[0] in ("0", "1")


@pytest.mark.parametrize(
    "function, call, options",
    [(minibert.pretrain, PretrainCall, PretrainOptions), (minibert.finetune, FinetuneCall, FinetuneOptions)],
)
def test_every_option_is_an_argument_that_the_docstring_describes(function, call, options):
    signature = inspect.signature(function)
    for field in dataclasses.fields(options):
        parameter = signature.parameters[field.name]
        assert parameter.annotation is not inspect.Parameter.empty
        described = re.search(rf"^{field.name} : .+\n    (.+)", function.__doc__, flags=re.M)
        assert described and len(described[1]) > 10, field.name
        assert "--" not in described[1]
    assert issubclass(call, options) and "Returns\n-------" in function.__doc__
    with pytest.raises(TypeError, match=r"has no argument 'batch_sise'; did you mean batch_size\?"):
        function(batch_sise=3)


def test_call_with_unnamed_or_missing_arguments_names_them():
    with pytest.raises(
        TypeError, match=r"^pretrain\(\) takes only corpus without a name; give the others by"
    ):
        minibert.pretrain(["A fine film.", "A dull one."], 20)
    with pytest.raises(TypeError, match=r"^finetune\(\) needs data, model; give a value for each"):
        minibert.finetune("classify")
    with pytest.raises(TypeError, match=r"^TextClassifier\(\) needs model; give a value for it"):
        minibert.TextClassifier()
