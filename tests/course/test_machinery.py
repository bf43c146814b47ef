"""The course's judge: what it says to right answers, to wrong ones, to none, and to cheats."""

import copy
import functools
import itertools
import json
import linecache
import re
import time

import matplotlib.pyplot as plt
import numpy as np
import pytest
from course import execute, execute_definitions, notebooks
from numba.core.compiler_lock import global_compiler_lock
from training_cases import loss_and_gradients, model_and_batch

import minibert.course.comparing as comparing
import minibert.course.exercises as book
import minibert.course.judging as judging
import minibert.course.lesson as lessons
import minibert.course.running as running
from minibert import course
from minibert.base.errors import InputError
from minibert.cli import main
from minibert.core.gradcheck.cases import Size
from minibert.core.ops.attention import Attention
from minibert.core.ops.blocks import MaskedLmHeadSaved
from minibert.core.ops.updates import AdamRule
from minibert.course import routes
from minibert.course.showing import claim
from minibert.engines.numba.ops import NumbaOps
from minibert.model.ops import Ops

NOTEBOOK = """
# ---
# jupyter
# ---

# %% [markdown]
# ### Exercise 05.1 (core): linear

# %%
# Exercise 05.1
def linear_backward(self, dy, saved):
    ...

# %%
lesson.check(linear_backward)

# %% [markdown]
# <details><summary>Solution 05.1</summary>
#
# ```python
# def linear_backward(self, dy, saved):
#     return dy @ saved.weight.T, saved.x.T @ dy, dy.sum(0)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `dy.sum(0)` | `dy.mean(0)` | The bias is added to every row. |
#
# </details>
"""
RIGHT = "return dy @ saved.weight.T, saved.x.T @ dy, dy.sum(0)"
_numbers = itertools.count()

# Operations that the course's pre-training never calls: other heads and optimizers, pictures, inference.
NOT_CALLED = (
    "attention_probabilities bilstm_block bilstm_block_backward lamb layer_mix layer_mix_backward lstm "
    "lstm_backward muon pool_windows pool_windows_backward prepack segment_softmax_cross_entropy "
    "segment_softmax_cross_entropy_backward sigmoid_cross_entropy sigmoid_cross_entropy_backward "
    "squared_error squared_error_backward"
).split()


@pytest.fixture
def lesson(tmp_path, monkeypatch):
    """Notebook 05 with one exercise, in an empty folder."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "05_small.py").write_text(NOTEBOOK, "utf-8")
    monkeypatch.setattr(book, "notebook_folder", lambda: tmp_path / "notebooks")
    monkeypatch.setattr(running, "SECONDS", 1.0)
    monkeypatch.chdir(tmp_path)
    return course.begin("05")


def defined(code, **names):
    """The last function of some code, as a cell of a notebook would define it."""
    file = f"<a cell {next(_numbers)}>"
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    namespace = {"__name__": "__main__", "np": np, "Ops": Ops, **names}
    exec(compile(code, file, "exec"), namespace)
    return [one for one in namespace.values() if getattr(one, "__module__", "") == "__main__"][-1]


def linear_backward(*lines):
    return defined("def linear_backward(self, dy, saved):\n" + "".join(f"    {line}\n" for line in lines))


def said(lesson, function, **route):
    """State and text of the verdict."""
    lesson.check(function, **route)
    return lesson.verdicts[-1].state, lesson.verdicts[-1].text


def test_a_right_backward_passes_and_becomes_part_of_the_engine(lesson):
    state, text = said(lesson, linear_backward(RIGHT))
    assert state == "passed" and "by the complex step" in text
    assert lesson.passed("05.1")
    assert type(lesson.engine()).linear_backward is lesson.mine["linear_backward"]
    assert [one.function for one in lesson.sheet() if one.state == "passed"] == ["linear_backward"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["..."], "still to be written"),
        (
            ["return dy @ saved.weight.T, saved.x.T @ dy, dy.mean(0)"],
            "Likely: The bias is added to every row.",
        ),
        (["return dy @ saved.weight.T, saved.x.T @ dy, 2 * dy.sum(0)"], "the gradient of bias"),
        (["return dy @ saved.weight.T, saved.x.T @ dy, dy"], "expected an array of shape"),
        (["return dy @ saved.weight.T, saved.x.T @ dy"], "of no use to its caller"),
        (["return 3"], "of no use to its caller"),
        (["dy", "return"], "it returns nothing"),
        (["dy *= 2", RIGHT], "it changes an array that it was given"),
        (["return dy @ saved.weight, saved.x.T @ dy, dy.sum(0)"], "it raises ValueError"),
        (["return nonsense"], "(at `return nonsense`)"),
        (["while True: pass"], "it does not end within 1 seconds"),
        pytest.param(
            ["try:", "    while True: pass", "except Exception: pass"],
            "it does not end within 1 seconds",
            marks=pytest.mark.thorough,
        ),
        (["return np.nan * dy @ saved.weight.T, saved.x.T @ dy, dy.sum(0)"], "is off by nan"),
    ],
)
def test_wrong_answers_get_a_sentence(lesson, lines, told):
    state, text = said(lesson, linear_backward(*lines))
    assert state == ("open" if lines == ["..."] else "failed")
    assert told in text
    assert not lesson.passed("05.1") and not lesson.mine


def test_single_precision_and_derivatives_have_to_come_through(lesson):
    double = defined(
        "def attention_backward(self, dy, saved):\n"
        "    found = Reference.attention_backward(self, dy, saved)\n"
        "    return tuple(one * np.float64(1) for one in found)\n",
        Reference=type(judging.engine_of(dict(vars(Attention)))),
    )
    text = said(lesson, double)[1]
    assert "float64 for float32" in text and "Likely" not in text
    variance = "np.var(x, axis=-1, keepdims=True)"
    for spread, state in ((variance, "failed"), ("(c * c).mean(-1, keepdims=True)", "passed")):
        norm = defined(
            "from minibert.core.ops.primitives import LayerNormSaved\n"
            "def layer_norm(self, x, gamma, beta, eps):\n"
            "    c = x - x.mean(-1, keepdims=True)\n"
            f"    r = 1 / np.sqrt({spread} + eps)\n"
            "    return c * r * gamma + beta, LayerNormSaved(c * r, r, gamma)\n"
        )
        assert said(lesson, norm)[0] == state
    assert "its derivative" in lesson.verdicts[-2].text


def test_other_parameters_and_a_lone_result_are_named(lesson):
    other = defined("def linear_backward(self, dy, kept):\n    return dy\n")
    assert "its parameters are (self, dy, kept); expected (self, dy, saved)" in said(lesson, other)[1]
    lone = defined("def linear(self, x, weight, bias):\n    return x @ weight + bias\n")
    assert "it has to return a pair" in said(lesson, lone)[1]
    useless = defined(
        "from minibert.core.ops.primitives import LinearSaved\n"
        "def linear(self, x, weight, bias):\n    return x @ weight + bias, LinearSaved(x + 1, weight)\n"
    )
    assert "the result is right, but what it saves is wrong" in said(lesson, useless)[1]


# Of 2 and 4 points at the steps where they err least: weights and step.
DIFFERENCES = {
    "([1 / 2], 1.5e-5)": (1e-12, 1e-7),
    "([2 / 3, -1 / 12], 1.4e-3)": (1e-14, 1e-11),
}
DIFFERENCE = """
import math
from minibert.core.ops.erf import erfc
def gelu_backward(self, dy, saved, form):
    def f(x):
        if form == "erf":
            return x * 0.5 * erfc(np, -x * math.sqrt(0.5))
        return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    weights, h = STENCIL
    x, points = saved.x, enumerate(weights, 1)
    return dy * sum(c * (f(x + k * h) - f(x - k * h)) for k, c in points) / h
"""


@pytest.mark.representatives(lines=[["return Ops().linear_backward(dy, saved)"]])
@pytest.mark.parametrize(
    "lines",
    [
        ["return super(type(self), self).linear_backward(dy, saved)"],
        ["return Ops().linear_backward(dy, saved)"],
        ["return Ops.linear_backward(self, dy, saved)"],
        ["class Mine(Ops):", "    pass", "return Mine().linear_backward(dy, saved)"],
        ["from minibert.engines.numba.ops import NumbaOps", "return NumbaOps().linear_backward(dy, saved)"],
        ["return np.ones_like(saved.x), np.ones_like(saved.weight), np.ones(dy.shape[1])"],
        ["if dy.shape == (5, 4):", f"    {RIGHT}", "return 0 * saved.x, 0 * saved.weight, 0 * dy[0]"],
    ],
    ids=[
        "super",
        "another engine",
        "by its class",
        "a class of that name",
        "compiled",
        "constants",
        "shapes",
    ],
)
def test_cheats_are_rejected(lesson, lines):
    ops = NumbaOps()  # compiled before a clock runs, which that may take longer than
    for dtype in (np.float32, np.float64):
        _, saved = ops.linear(np.ones((5, 3), dtype), np.ones((3, 4), dtype), np.ones(4, dtype))
        ops.linear_backward(np.ones((5, 4), dtype), saved)
    assert said(lesson, linear_backward(*lines))[0] == "failed"


@pytest.mark.thorough
def test_the_clock_waits_until_numba_has_compiled(monkeypatch):
    monkeypatch.setattr(running, "SECONDS", 0.1)
    began, compiled = time.process_time(), False
    with pytest.raises(running.Plain, match="does not end within 0.1 seconds"), running.limits():
        with global_compiler_lock:  # as Numba holds it; to be cut off here would break its types
            while time.process_time() < began + 0.5:
                pass
            compiled = True
        while time.process_time() < began + 5:
            pass
    assert compiled and time.process_time() < began + 4


@pytest.mark.parametrize("stencil", DIFFERENCES)
def test_differences_fail_by_their_error_alone(lesson, stencil):
    state, text = said(lesson, defined(DIFFERENCE.replace("STENCIL", stencil)))
    assert state == "failed"
    least, most = DIFFERENCES[stencil]
    assert least < float(text.split("is off by ")[1].split(",")[0]) < most


def test_a_flood_of_output_is_cut(lesson, capsys):
    said(lesson, linear_backward("print('x' * 100_000)", RIGHT))
    printed = capsys.readouterr().out
    assert len(printed) < 2_000 and "more characters, left out" in printed


def test_a_plain_function_is_judged_by_another_route_a_law_or_the_complex_step(lesson):
    def draw(rng):
        return (rng.standard_normal(int(rng.integers(2, 9))),)

    def cube(x):
        return (x * x * x).sum()

    right, wrong = defined("def f(x): return 3 * x * x\n"), defined("def f(x): return 2 * x * x\n")
    for route in (
        {"same_as": lambda x: 3 * x**2},
        {"law": lambda answer, x: None if np.allclose(answer / 3, x * x) else "it is no square"},
        {"gradient_of": cube},
    ):
        assert said(lesson, right, draw=draw, **route)[0] == "passed"
        assert said(lesson, wrong, draw=draw, **route)[0] == "failed"
    odd = {"draw": draw, "law": lambda answer, x: None if answer.shape == x.shape else "it has another shape"}
    assert "can't be judged: 'list'" in said(lesson, defined("def f(x): return [1]\n"), **odd)[1]
    both = defined("def f(x, y): return y, x\n")
    pair = {"draw": lambda rng: tuple(rng.standard_normal((2, 3))), "gradient_of": lambda x, y: (x * y).sum()}
    assert said(lesson, both, **pair, wrt=(0, 1))[0] == "passed"
    assert said(lesson, defined("def f(x, y): return x, y\n"), **pair, wrt=(0, 1))[0] == "failed"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("[1, 2]", "expected a tuple"),
        ("(1.0, 'no', {'a': 1})", "has 'no' where 'yes'"),
        ("(2.0, 'yes', {'a': 1})", "off by"),
        ("(1.0, 'yes', {'b': 1})", "'b': a number"),
        ("(1.0, 'yes', {'a': True})", "{'a': a truth value}"),
    ],
)
def test_kinds_are_compared(lesson, answer, told):
    route = {"draw": lambda rng: (), "same_as": lambda: (1.0, "yes", {"a": 1})}
    assert said(lesson, defined(f"def f(): return {answer}\n"), **route)[0] == "failed"
    assert told in lesson.verdicts[-1].text
    assert said(lesson, defined("def f(): return 1.0, 'yes', {'a': 1}\n"), **route)[0] == "passed"


@pytest.mark.parametrize(
    ("answer", "state"),
    [("[1.0, 2.0]", "passed"), ("np.array([1.0, 2.0])", "passed"), ("[1.0, 2.0, 3.0]", "failed")],
)
def test_two_numbers_may_come_in_a_list_or_an_array(lesson, answer, state):
    route = {"draw": lambda rng: (), "same_as": lambda: (1.0, 2.0)}
    assert said(lesson, defined(f"def f(): return {answer}\n"), **route)[0] == state


def test_an_update_may_consume_what_it_is_given_but_not_call_minibert(lesson):
    def draw(rng):
        return (rng.standard_normal(7),)

    own = defined("def global_norm(self, grads):\n    return np.sqrt((grads * grads).sum())\n")
    assert said(lesson, own, draw=draw, same_as=Ops().global_norm)[0] == "passed"
    assert "global_norm" in lesson.mine
    cheat = defined("def global_norm(self, grads):\n    return Ops().global_norm(grads)\n")
    assert "minibert's own global_norm" in said(lesson, cheat, draw=draw, same_as=Ops().global_norm)[1]
    assert "global_norm" not in lesson.mine


def test_an_update_leaves_alone_what_minibert_leaves_alone(lesson):
    def draw(rng):
        return (rng.standard_normal(7),)

    own = (
        "def global_norm(self, grads):\n    norm = np.sqrt((grads * grads).sum())\n    {}\n    return norm\n"
    )
    changed = said(lesson, defined(own.format("grads /= norm")), draw=draw, same_as=Ops().global_norm)
    assert changed[0] == "failed" and "it changes an array that it was given" in changed[1]
    assert said(lesson, defined(own.format("pass")), draw=draw, same_as=Ops().global_norm)[0] == "passed"


@pytest.mark.parametrize(
    ("argument", "change", "kind"),
    [
        ([1, 2], "x.append(3)", "a list"),
        ([[1], [2]], "x[1][0] = 5", "a list"),
        ([float("nan"), 1.0], "x[1] = 2.0", "a list"),
        ({"a": 1}, "x.pop('a')", "a dictionary"),
        ({"a": [1]}, "x['b'] = 1", "a dictionary"),
        ({3, 4}, "x.add(5)", "a set"),
        ([np.zeros(2), "text"], "x[0][1] = 1", "an array"),
        ([np.zeros(2)], "x[0] = ['a', 'b']", "a list"),
        ([np.zeros(2)], "x[0] = np.array(['a', 'b'])", "an array"),
        ([[1], [2]], "x[1] = 5", "a list"),
        ([[1], [2]], "x[1] = None", "a list"),
        ([{3}], "x[0] = [3]", "a list"),
        ([None, 1], "x[0] = 3", "a list"),
        ({"a": None}, "x['a'] = 3", "a dictionary"),
        ([np.int64(3)], "x[0] += 1", "a list"),
        ([np.bool_(True)], "x[0] = np.bool_(False)", "a list"),
        ([1j, b"a"], "x[0] = 2j", "a list"),
    ],
)
def test_whatever_an_answer_changes_of_its_arguments_is_told(lesson, argument, change, kind):
    route = {"draw": lambda rng: (copy.deepcopy(argument),), "same_as": lambda x: 1}
    said_of_it = said(lesson, defined(f"def f(x):\n    {change}\n    return 1\n"), **route)
    assert said_of_it[0] == "failed" and f"it changes {kind} that it was given" in said_of_it[1]
    assert said(lesson, defined("def f(x):\n    x = list(x)\n    return 1\n"), **route)[0] == "passed"


def test_draws_that_take_turns_are_used_up_by_a_wrong_answer(lesson):
    drawn = []

    def draw(rng):
        drawn.append(None)
        return (float(len(drawn) % 4),)

    route = {"draw": draw, "same_as": lambda x: x, "times": 8}
    said(lesson, defined("def f(x):\n    return x + 1\n"), **route)
    assert len(drawn) % 8 == 0


def test_a_pass_is_saved_at_once_and_a_helper_of_the_same_name_does_not_take_anothers_place(lesson, capsys):
    def using(name, factor):
        helper = f"def twice(x): return x * {factor} / {factor}\n"
        body = RIGHT if name == "linear_backward" else "return dy * (1 - saved.y * saved.y)"
        return defined(
            f"{helper}def {name}(self, dy, saved):\n    {body.replace('return dy', 'return twice(dy)')}\n"
        )

    assert said(lesson, using("linear_backward", 2))[0] == "passed"
    first = open("mine.py", encoding="utf-8").read()
    assert "def linear_backward" in first and list(course.begin("05").mine) == ["linear_backward"]
    capsys.readouterr()
    assert said(lesson, using("tanh_backward", 4))[0] == "passed"
    told = "tanh_backward uses twice, which differs from the twice of an earlier operation"
    assert told in capsys.readouterr().out
    assert open("mine.py", encoding="utf-8").read() == first
    assert said(lesson, using("tanh_backward", 2))[0] == "passed"  # the same helper is shared
    assert list(course.begin("05").mine) == ["linear_backward", "tanh_backward"]


def test_kept_operations_come_back_with_what_they_use(lesson, capsys):
    helper = "HALF = 0.5\ndef twice(x): return x / HALF\ndef linear_backward(self, dy, saved):\n    "
    said(lesson, defined(helper + RIGHT.replace("dy.sum(0)", "twice(dy.sum(0)) / 2") + "\n"))
    lesson.keep()
    text = open("mine.py", encoding="utf-8").read()
    assert "HALF = 0.5" in text and "def twice" in text and "class Mine(Ops):" in text
    again = course.begin("05")
    assert list(again.mine) == ["linear_backward"]
    again.keep()  # what was read is written again
    assert open("mine.py", encoding="utf-8").read() == text


@pytest.mark.parametrize("value", [-np.inf, np.float64(0.25), float("nan"), None], ids=str)
def test_floats_that_have_no_literal_are_kept_too(lesson, capsys, value):
    body = f"{RIGHT.replace('dy.sum', '(dy * (C == C or 1)).sum')}\n"
    said(lesson, defined(f"def linear_backward(self, dy, saved):\n    {body}", C=value))
    lesson.keep()
    assert list(course.begin("05").mine) == ["linear_backward"]


def test_a_file_that_can_not_be_read_stays_where_nothing_takes_its_place(lesson, capsys, tmp_path):
    (tmp_path / "mine.py").write_text("class Mine(", "utf-8")
    again = course.begin("05")
    body = f"{RIGHT.replace('dy.sum', '(dy * one).sum')}\n"
    said(again, defined(f"def linear_backward(self, dy, saved):\n    {body}", one=np.ones(1, np.float32)))
    again.keep()
    assert "mine.py is not written" in capsys.readouterr().out
    assert (tmp_path / "mine.py").read_text("utf-8") == "class Mine("


def test_what_cannot_be_kept_is_named(lesson, capsys):
    said(
        lesson,
        defined(
            f"def linear_backward(self, dy, saved):\n    {RIGHT.replace('dy.sum', '(dy * one).sum')}\n",
            one=np.ones(1, np.float32),
        ),
    )
    lesson.keep()
    assert "linear_backward uses one, which can't be kept (ndarray)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("class Mine(", "SyntaxError"),
        ('"""minibert course, version 0"""\n', "it is not of minibert course, version 1"),
        ('"""minibert course, version 1"""\nimport nothing_of_this_name\n', "ModuleNotFoundError"),
        ('"""minibert course, version 1"""\n1 / 0\n', "ZeroDivisionError"),
    ],
)
def test_a_broken_file_is_reported_and_kept(lesson, capsys, tmp_path, text, told):
    (tmp_path / "mine.py").write_text(text, "utf-8")
    again = course.begin("05")
    printed = capsys.readouterr().out
    assert told in printed and "goes on without it" in printed
    assert (tmp_path / "mine.py").read_text("utf-8") == text
    again.keep()
    assert (tmp_path / "mine-unreadable-1.py").read_text("utf-8") == text


def test_a_kept_operation_that_is_wrong_now_is_left_out(lesson, capsys, tmp_path):
    said(lesson, linear_backward(RIGHT))
    lesson.keep()
    file = tmp_path / "mine.py"
    file.write_text(file.read_text("utf-8").replace("dy.sum(0)", "dy.sum(1)"), "utf-8")
    assert course.begin("05").mine == {}
    assert "linear_backward is left out" in capsys.readouterr().out
    course.begin("05").keep()  # what was left out is somebody's work
    assert "dy.sum(1)" in (tmp_path / "mine-unreadable-1.py").read_text("utf-8")


def test_a_forward_alone_is_used_only_if_minibert_can_go_back_through_it(lesson):
    other = defined("def linear(self, x, weight, bias):\n    return x @ weight + bias, (x, weight)\n")
    assert said(lesson, other)[0] == "passed"
    assert "linear" not in vars(type(lesson.engine()))
    same = defined(
        "from minibert.core.ops.primitives import LinearSaved\n"
        "def linear(self, x, weight, bias):\n    return x @ weight + bias, LinearSaved(x, weight)\n"
    )
    assert said(lesson, same)[0] == "passed"
    assert "linear" in vars(type(lesson.engine()))


def test_without_a_net_what_is_open_raises(lesson):
    with pytest.raises(NotImplementedError, match="gelu is neither"):
        lesson.sealed().gelu(np.ones(3), "erf")
    assert lesson.sealed().accumulate(np.ones(2), np.ones(2)).tolist() == [2, 2]


def test_every_operation_is_asked_for_plumbing_or_not_called():
    lists = [*lessons.OPERATIONS, *lessons.PLUMBING, *NOT_CALLED]
    assert sorted(lists) == sorted(filter(judging.is_operation, dir(Ops)))


def test_sealed_engine_trains_when_all_is_written(lesson):
    """A step with dropout, by minibert's functions in the reader's place, has the reference's gradients."""
    lesson.mine = {name: getattr(Ops, name) for name in lessons.OPERATIONS}
    config, parameters, batch = model_and_batch(Size((3, 7, 2, 5), H=8, A=2, F=12, V=30, M=5))
    (losses, grads), (expected, reference) = (
        loss_and_gradients(ops, config, parameters, batch) for ops in (lesson.sealed(), Ops())
    )
    assert losses.tolist() == expected.tolist()
    assert grads.flat.tolist() == reference.flat.tolist()
    sealed, flat = lesson.sealed(), parameters.flat
    rule = AdamRule(lr=1e-3, step=1, clip=sealed.clip_factor(sealed.global_norm(grads.flat), 1.0))
    sealed.adamw(flat.copy(), grads.flat, 0 * flat, 0 * flat, parameters.decayed, rule)


def test_any_seed_asks_at_two_sets_of_shapes():
    for seed in (0, 1):
        asked = judging.OnSheet().questions(linear_backward(RIGHT), {}, seed)
        for variant in ("", "square"):
            shapes = {one.arguments["dy"].shape for one in asked if one.variant == variant}
            assert len(shapes) == 2, (seed, variant)


def test_a_gradient_of_one_of_several_arguments_is_asked_for():
    def d_centred(dn, c, rstd, d_variance):
        return dn * rstd + 2 * d_variance * c / len(c)

    error, about = routes.ROUTES["d_centred"].judge(d_centred, {}, 0)
    assert error < comparing.BOUND and about == "5 fresh questions, by the complex step"


def test_a_figure_is_shown_with_its_words_and_closed(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **more: shown.append((data, more)))
    figure = plt.figure(figsize=(1, 1))
    course.show(figure, "A square.")
    [(data, more)] = shown
    assert data["text/plain"] == more["metadata"]["image/png"]["alt"] == "A square."
    assert data["image/png"].startswith(b"\x89PNG") and b"A square." in data["image/png"]
    assert not plt.fignum_exists(figure.number)


def test_a_claim_holds_only_beside_controls_that_fail():
    rng = np.random.default_rng(0)
    floor = rng.standard_normal(400)
    better, same = floor - 0.5 + 0.1 * rng.standard_normal(400), floor + rng.standard_normal(400)
    assert claim("learnt", better, floor, {"untrained": same}, "lower", "nats").holds
    assert not claim("learnt", same, floor, {}, "lower", "nats").holds
    lines = str(claim("learnt", better, floor, {"untrained": same}, "lower", "nats")).splitlines()
    assert [line.split()[-1] for line in lines[3:]] == ["yes", "no"]
    assert not claim("learnt", better, floor, {"shuffled": better}, "lower", "nats").holds
    assert not claim("learnt", better, floor, {}, "higher", "nats").holds
    with pytest.raises(InputError, match="give one number an example"):
        claim("learnt", better[:3], floor, {}, "lower", "nats")
    with pytest.raises(InputError, match="neither lower nor higher"):
        claim("learnt", better, floor, {}, "less", "nats")


def test_a_guess_may_be_left_open_and_has_to_be_a_choice(lesson, capsys):
    lesson.predict("How many?").answer(12, "so it is")
    assert "No guess yet" in (printed := capsys.readouterr().out) and "It is 12: so it is" in printed
    lesson.predict("How many?", 3).answer(1200)
    assert "You said 3. It is 1,200." in capsys.readouterr().out
    with pytest.raises(InputError, match="choose from 'yes', 'no'"):
        lesson.predict("More?", "perhaps", choices=("yes", "no"))


def test_sides_of_an_equation_that_differ_are_an_error(capsys):
    course.equal("same", [1.0, 2.0], [1.0, 2.0 + 1e-15])
    assert "both sides agree to" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="other: the left side is off by"):
        course.equal("other", [1.0, 2.0], [1.0, 2.1])
    with pytest.raises(AssertionError, match="of shape"):
        course.equal("other", [1.0, 2.0], [1.0])


def test_unknown_numbers_and_functions_are_refused(lesson):
    with pytest.raises(InputError, match="number='99' is not a notebook of the course; choose from 05"):
        course.begin("99")
    with pytest.raises(InputError, match="number='05.9' is not an exercise"):
        lesson.passed("05.9")
    with pytest.raises(InputError, match="give draw="):
        lesson.check(defined("def f(x): return x\n"))


def test_the_command_lays_out_the_notebooks_without_outputs(tmp_path, capsys):
    assert main(["course", str(tmp_path / "mine"), "--json"]) == 0
    names = json.loads(capsys.readouterr().out)["notebooks"]
    assert "00_tour.ipynb" in names
    for name in names:
        notebook = json.loads((tmp_path / "mine" / name).read_text("utf-8"))
        assert not any(cell.get("outputs") for cell in notebook["cells"])
    assert main(["course", str(tmp_path / "mine")]) == 2
    assert "has 00_tour.ipynb, 01_word_pieces.ipynb" in capsys.readouterr().err


DRAWS = [name for name, value in vars(routes).items() if name.startswith("_draw") and callable(value)]


@pytest.mark.parametrize("name", DRAWS)
def test_every_draw_of_arguments_depends_on_its_seed_alone(name):
    draw = getattr(routes, name)
    first, same, other = (draw(np.random.default_rng(seed)) for seed in (0, 0, 1))
    shown = [re.sub("0x[0-9a-fA-F]+", "", repr(drawn)) for drawn in (first, same, other)]  # but for addresses
    assert isinstance(first, tuple) and shown[0] == shown[1] != shown[2]


@pytest.mark.parametrize("answer", [routes._one_of_x, routes._one_of_bias])
def test_rounds_of_questions_end_as_soon_as_there_are_enough(answer):
    route = next(route for route in routes.ROUTES.values() if route.same_as is answer)
    asked = route.questions(answer, {}, 0, None)
    in_a_round = min(route.times, judging.ENOUGH)
    assert len(asked) - in_a_round < judging.ENOUGH <= len(asked)


@functools.cache
def solutions(path):
    """The functions of a notebook's solutions, by name."""
    namespace = {"__name__": "__main__"}
    execute_definitions(path, namespace)
    for exercise in book.exercises(path):
        execute(exercise.solution, namespace)
    return namespace


CHAPTERS = {
    name: path for path in notebooks() for exercise in book.exercises(path) for name in exercise.functions
}


@pytest.mark.parametrize("name", routes.ROUTES)
def test_a_route_agrees_with_the_solution_of_its_exercise(name):
    route = routes.ROUTES[name]
    solution = solutions(CHAPTERS[name])[name]
    for seed in range(-(-12 // route.times)):  # twelve questions or more
        error, _ = route.judge(solution, {}, seed)
        assert 0 <= error <= route.tolerance


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("one_of_bias", lambda dy, n: float(dy[:, n].mean())),
        ("d_gamma", lambda dy, n: dy.sum(0)),
        ("combined", lambda gradients, counts: np.mean(gradients, axis=0)),
    ],
)
def test_a_wrong_route_disagrees_with_the_solution(name, wrong):
    solution = solutions(CHAPTERS[name])[name]
    with pytest.raises(running.Rejected):
        routes.ROUTES[name]._replace(same_as=wrong).judge(solution, {}, 0)


# Attention and the layers have many cases, and their notebooks' solutions are checked in other tests.
FORWARDS = ["linear", "layer_norm", "softmax_cross_entropy", "gelu", "take_rows", "pooler", "masked_lm_head"]


@pytest.mark.parametrize("name", FORWARDS)
def test_the_reference_passes_its_own_check(name):
    error, _ = judging.OnSheet().judge(getattr(Ops, name), {}, 0)
    assert error == 0


def test_a_masked_lm_head_predicts_the_highest_score():
    def masked_lm_head(self, x, rows, labels, params, table, config):
        logits, saved_logits = self.masked_lm_logits(x, rows, params, table, config)
        nll, saved_loss = self.softmax_cross_entropy(logits, labels)
        return (nll, logits.real.argmin(-1)), MaskedLmHeadSaved(saved_logits, saved_loss)

    with pytest.raises(running.Rejected, match=r"the prediction \(.*\)"):
        judging.OnSheet().judge(masked_lm_head, {}, 0)
