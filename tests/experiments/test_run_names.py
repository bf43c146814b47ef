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
        (("/x", "/y/x"), ["/x", "y/x"]),
    ],
)
def test_names_are_the_ends_of_paths_that_differ(folders, names):
    assert short_names([Path(folder) for folder in folders], {}) == names


def test_long_names_give_way_to_options():
    folders = [Path(f"{LONG}-{number}") for number in range(2)]
    assert short_names(folders, {"seed": ["0", "1"]}) == ["seed 0", "seed 1"]
    short = [Path("one"), Path("two")]
    assert short_names(short, {"seed": ["0", "1"]}) == ["one", "two"]


LARGE = ["x" * LONGEST, "y" * LONGEST, "z" * LONGEST]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"seed": "034", "learning_rate": LARGE}, ["seed 0", "seed 3", "seed 4"]),
        ({"learning_rate": LARGE, "seed": "034"}, ["seed 0", "seed 3", "seed 4"]),
        ({"seed": "011", "epochs": "223"}, ["seed 0, epochs 2", "seed 1, epochs 2", "seed 1, epochs 3"]),
        ({"a": "011", "b": "223", "data": LARGE}, ["a 0, b 2", "a 1, b 2", "a 1, b 3"]),
        ({"a": "0011", "b": "2323", "c": "0001"}, ["a 0, b 2", "a 0, b 3", "a 1, b 2", "a 1, b 3"]),
    ],
)
def test_one_option_is_a_name_before_several_are(options, names):
    folders = [Path(f"{LONG}-{number}-{LONG}") for number in range(len(names))]
    assert short_names(folders, options) == names


@pytest.mark.parametrize("options", [{}, {"seed": ["0", "0"]}, {"data": ["x" * LONGEST, "y" * LONGEST]}])
def test_long_names_are_cut_where_they_stay_different(options):
    at_end = short_names([Path(f"{LONG}-{number}") for number in range(2)], options)
    assert at_end == ["…" + f"{LONG}-{number}"[1 - LONGEST :] for number in range(2)]
    at_beginning = short_names([Path(f"{number}-{LONG}") for number in range(2)], options)
    assert at_beginning == [f"{number}-{LONG}"[: LONGEST - 1] + "…" for number in range(2)]
    whole = [f"{LONG}-{number}-{LONG}" for number in range(2)]
    assert short_names([Path(name) for name in whole], options) == whole
