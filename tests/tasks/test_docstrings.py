"""Docstrings of tasks: what an overriding method leaves out is described where the method comes from."""

import importlib
import inspect
import pkgutil

import pytest

import minibert.tasks
from minibert.tasks.task import Task


def task_classes():
    """Return `Task` and all tasks of the package."""
    for module in pkgutil.iter_modules(minibert.tasks.__path__, "minibert.tasks."):
        importlib.import_module(module.name)
    classes = [Task]
    for kind in classes:
        classes += kind.__subclasses__()
    return sorted({kind for kind in classes if kind.__module__.startswith("minibert.")}, key=str)


def described(kind, name):
    """Return the lines of all docstrings of a method: of a class, and of those that it derives from."""
    texts = [inspect.getdoc(vars(base)[name]) or "" for base in kind.__mro__ if name in vars(base)]
    return "\n".join(texts).splitlines()


@pytest.mark.parametrize("kind", task_classes())
def test_parameters_of_a_task_are_described_by_it_or_by_what_it_overrides(kind):
    missing = []
    for name, member in inspect.getmembers(kind, inspect.isroutine):
        if name.startswith("_"):
            continue
        lines = described(kind, name)
        parameters = set(inspect.signature(member).parameters) - {"self"}
        heads = {
            head.strip() for line in lines for head in line.partition(" : ")[0].split(",") if " : " in line
        }
        missing += [f"{name}: {parameter}" for parameter in sorted(parameters - heads)]
    assert missing == []


def test_all_tasks_are_looked_at():
    names = {kind.__name__ for kind in task_classes()}
    assert names >= {"Task", "Sentences", "ManyLabels", "Tagging", "Squad", "Choices", "SimilarPairs"}
