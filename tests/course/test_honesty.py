"""What answers may be made of: each cheat is refused with its reason, and every solution is allowed."""

import functools
import linecache

import numpy as np
import pytest
from course import execute, execute_definitions, notebooks

from minibert.core.ops.primitives import LinearSaved
from minibert.course import mine
from minibert.course.exercises import exercises
from minibert.course.honesty import honest
from minibert.course.judging import is_operation
from minibert.course.lesson import OPERATIONS
from minibert.course.routes import ROUTES, library_step
from minibert.model.ops import Ops

ROUTE = "def by_entries(f, arguments):\n    '''Route.'''\n    return [f(one) for one in arguments]\n"
HEAD = "def linear_backward(self, dy, saved):\n"


def written(code, **names):
    """The last function of some code, as a cell of a notebook would define it."""
    file = f"<answer {len(linecache.cache)}>"
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    namespace = {"__name__": "__main__", "np": np, "LinearSaved": LinearSaved, **names}
    exec(compile(code, file, "exec"), namespace)
    return [one for one in namespace.values() if getattr(one, "__module__", "") == "__main__"][-1]


@pytest.mark.parametrize(
    ("code", "names", "reason"),
    [
        ("    return kept(dy, saved)\n", {"kept": Ops().linear_backward}, "kept is an operation of minibert"),
        (
            "    return kept(self, dy, saved)\n",
            {"kept": Ops.linear_backward},
            "kept is an operation of minibert",
        ),
        ("    return kept[0](dy, saved)\n", {"kept": [Ops().linear_backward]}, "kept is an operation"),
        (
            "    return kept(dy, saved)\n",
            {"kept": functools.partial(Ops.linear_backward, Ops())},
            "kept is an op",
        ),
        (
            "    return Ops().linear_backward(dy, saved)\n",
            {"Ops": Ops},
            "Ops is an operation of minibert, or holds",
        ),
        (
            "    return one.linear_backward(dy, saved)\n",
            {"one": type("Mine", (Ops,), {})()},
            "one is an operation",
        ),
        (
            "    return Mine.linear_backward(self, dy, saved)\n",
            {"Mine": type("Mine", (), {"linear_backward": Ops.linear_backward})},
            "Mine is an operation",
        ),
        ("    class Mine:\n        pass\n    return Mine\n", {}, "it defines a class, Mine."),
        ("    return super().linear_backward(dy, saved)\n", {}, "it uses super."),
        ("    exec('solution')\n", {}, "it uses exec."),
        ("    return eval('solution')\n", {}, "it uses eval."),
        ("    return open('mine.py').read()\n", {}, "it uses open."),
        ("    import importlib\n    return importlib\n", {}, "it imports importlib."),
        (
            "    from minibert.course.exercises import exercises\n    return exercises\n",
            {},
            "it imports minibert.course.exercises.",
        ),
        ("    return self.__class__.__mro__\n", {}, "it uses __mro__."),
        ("    return self._probabilities(dy)\n", {}, "it calls self._probabilities."),
        ("    return self.linear_backward(dy, saved)\n", {}, "it calls self.linear_backward."),
    ],
)
def test_a_cheat_is_refused_with_its_reason(code, names, reason):
    assert any(one.startswith(reason) for one in honest(written(HEAD + code, **names)))


def test_routes_that_stand_in_the_package_are_refused():
    code = "def one_of_bias(dy, n):\n    return route(dy, n)\n"
    for route in (ROUTES["one_of_bias"].same_as, library_step):
        assert "route is an operation" in "".join(honest(written(code, route=route)))
    code = code.replace("route(dy", "routes['one_of_bias'].same_as(dy")
    assert "routes is an operation" in "".join(honest(written(code, routes=ROUTES)))


def test_a_helper_that_cheats_and_the_route_of_the_check_are_refused():
    helper = written("def helper(dy, saved):\n    return eval('1')\n")
    assert "it uses eval." in honest(written(f"{HEAD}    return helper(dy, saved)\n", helper=helper))
    route = written(ROUTE)
    answer = written("def wrong_gradients(f, x):\n    return by_entries(f, x)\n", by_entries=route)
    assert honest(answer) == []
    assert honest(answer, ROUTE) == ["by_entries is a route of the check."]
    renamed = written(ROUTE.replace("by_entries", "mine").replace("Route", "Mine"))
    answer = written("def wrong_gradients(f, x):\n    return mine(f, x)\n", mine=renamed)
    assert honest(answer, ROUTE) == ["mine is a route of the check."]


@pytest.mark.parametrize("path", [one for one in notebooks() if exercises(one)], ids=lambda path: path.stem)
def test_every_solution_is_allowed(path):
    namespace = {"__name__": "__main__"}
    execute_definitions(path, namespace)
    for exercise in exercises(path):
        execute(exercise.solution, namespace)
        for name in exercise.functions:
            assert honest(namespace[name], exercise.check) == [], (exercise.number, name)


def test_the_solutions_of_all_chapters_can_be_kept_together():
    """No two of them use different helpers of the same name."""
    kept = {}
    for path in notebooks():
        namespace = {"__name__": "__main__"}
        execute_definitions(path, namespace)
        for exercise in exercises(path):
            execute(exercise.solution, namespace)
            kept |= {name: namespace[name] for name in exercise.functions if is_operation(name)}
    text = mine.text_of(kept)
    assert set(OPERATIONS) <= set(kept)
    assert text.count("\n    def ") >= len(kept)


CHAIN = "def third(f):\n    exec('solution')\n\n\ndef second(f):\n    return third(f)\n\n\n"


def test_a_cheat_is_found_in_the_helper_of_a_helper():
    reasons = honest(written(f"{CHAIN}{HEAD}    return second(dy)\n"))
    assert reasons == ["it uses exec."]


def test_a_helper_that_calls_itself_is_looked_at_once():
    code = "def power(n):\n    return 1 if n == 0 else power(n - 1)\n\n\n"
    assert honest(written(f"{code}{HEAD}    return power(3)\n")) == []


def test_a_helper_in_the_readers_own_file_is_looked_at():
    """`mine.py` holds what earlier chapters kept."""
    helper = written("def helper(f):\n    eval('solution')\n")
    helper.__module__ = "mine"
    assert honest(written(f"{HEAD}    return helper(dy)\n", helper=helper)) == ["it uses eval."]


def test_a_function_made_from_text_brings_its_source_along():
    namespace = {"__name__": "__main__"}
    exec("def helper(f):\n    return open(f)\n", namespace)
    helper = namespace["helper"]
    assert honest(written(f"{HEAD}    return helper(dy)\n", helper=helper)) == [
        "helper has no source that can be read."
    ]
    helper.__course_source__ = "def helper(f):\n    return open(f)\n"
    assert honest(written(f"{HEAD}    return helper(dy)\n", helper=helper)) == ["it uses open."]


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("functools", functools, "import functools"),
        ("np", np, "import numpy as np"),
        ("partial", functools.partial, "from functools import partial"),
        ("p", functools.partial, "from functools import partial as p"),
        ("rate", 0.5, "rate = 0.5"),
        ("most", np.float64("inf"), "most = float('inf')"),
        ("word", "a'b", 'word = "a\'b"'),
        ("unknown", [1], ""),
    ],
)
def test_a_name_is_defined_by_an_import_or_its_value(name, value, line):
    assert mine._definition(name, value) == line
