"""Short names of compared runs: what of their paths or options tells them apart."""

from pathlib import Path

import pytest

from minibert.experiments.run_names import LONGEST, short_names

LONG = "a-folder-whose-name-is-long"


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (("runs/books", "runs/mine"), ["books", "mine"]),
        (("mini/seed0", "mini/seed1", "tiny/seed0"), ["mini/seed0", "mini/seed1", "tiny/seed0"]),
        (("mini/run", "tiny/run"), ["mini", "tiny"]),
        (("runs/books", "runs/books/again"), ["books", "again"]),
        (("a", "/elsewhere/b"), ["a", "b"]),
        (("/x", "/"), ["x", "/"]),
    ],
)
def test_names_are_the_ends_of_paths_that_differ(folders, names):
    assert short_names([Path(folder) for folder in folders], {}) == names


def test_long_names_give_way_to_options():
    folders = [Path(f"{LONG}-{number}") for number in range(2)]
    assert short_names(folders, {"seed": ["0", "1"], "epochs": ["2", "3"]}) == [
        "seed 0, epochs 2",
        "seed 1, epochs 3",
    ]
    short = [Path("one"), Path("two")]
    assert short_names(short, {"seed": ["0", "1"]}) == ["one", "two"]


@pytest.mark.parametrize("options", [{}, {"seed": ["0", "0"]}, {"data": ["x" * LONGEST, "y" * LONGEST]}])
def test_long_names_are_cut_where_they_stay_different(options):
    at_end = short_names([Path(f"{LONG}-{number}") for number in range(2)], options)
    assert at_end == ["…" + f"{LONG}-{number}"[1 - LONGEST :] for number in range(2)]
    at_beginning = short_names([Path(f"{number}-{LONG}") for number in range(2)], options)
    assert at_beginning == [f"{number}-{LONG}"[: LONGEST - 1] + "…" for number in range(2)]
    whole = [f"{LONG}-{number}-{LONG}" for number in range(2)]
    assert short_names([Path(name) for name in whole], options) == whole
