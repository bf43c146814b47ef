"""What the command line makes of errors and warnings: flags where the library names arguments."""

import argparse
import ast
import pickle
import re

import pytest
from paths import ROOT

from minibert.base.errors import InputError, InputWarning, OtherOptions, RunError, naming
from minibert.cli.shared.messages import on_command_line
from minibert.cli.shared.parser import build_parser


def parser_of(command):
    """The parser of a command, with its flags."""
    (commands,) = (action for action in build_parser(command)._actions if action.metavar == "COMMAND")
    return commands.choices[command]


@pytest.mark.parametrize(
    ("name", "value", "typed"),
    [
        ("batch_size", 0, "--batch-size 0"),
        ("size", "huge", "--size huge"),
        ("out", "my runs", "--out 'my runs'"),
        ("checkpoint_steps", 5, "--save-every 5"),
        ("checkpoint_seconds", 0.5, "--save-seconds 0.5"),
        ("learning_rate", -1.0, "--lr -1"),
        ("mask_rates", (0.8, 0.1, 0.2), "--mask-rates 0.8,0.1,0.2"),
        ("corpus", ("a.txt", "b.txt"), "CORPUS 'a.txt' 'b.txt'"),
        ("model", None, "no --model"),
        ("whole_word_mask", True, "--whole-word-mask"),
        ("whole_word_mask", False, "no --whole-word-mask"),
        ("fsdp", True, "--fsdp"),
        ("fsdp", False, "--no-fsdp"),
        ("next_sentence", False, "--no-nsp"),
        ("next_sentence", True, "no --no-nsp"),
        ("lower_case", False, "--cased"),
    ],
)
def test_argument_with_its_value_is_shown_as_typed(name, value, typed):
    error = InputError(f"{name}={value!r} is not valid.", **{name: value})
    assert on_command_line(error, parser_of("pretrain")) == f"{typed} is not valid."


@pytest.mark.parametrize(("value", "shown"), [((1e-3,), "--lr 1e-3"), ((0.5,), "--lr 0.5")])
def test_a_number_that_was_typed_is_shown_as_typed(value, shown):
    parser = parser_of("finetune")
    parser.parse_known_args(["sst2", "--out", "new", "--lr", "1e-3"])
    error = InputError(f"learning_rates={value!r} is high.", learning_rates=value)
    assert on_command_line(error, parser) == f"{shown} is high."


def test_weights_of_classes_are_shown_between_commas():
    weights = {"good": 1.0, "bad": 2.0}
    error = InputError(f"class_weights={weights!r} is not valid.", class_weights=weights)
    shown = on_command_line(error, parser_of("finetune"))
    assert shown == "--class-weights good=1.0,bad=2.0 is not valid."


def test_dictionary_is_shown_as_repeated_flags():
    columns = {"text": "body", "label": "my label"}
    error = InputError(f"{columns=} are not there.", columns=columns)
    shown = on_command_line(error, parser_of("finetune"))
    assert shown == "--column text=body --column 'label=my label' are not there."


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("choose another `out`.", "choose another --out."),
        ("shorten them by `seq_length`, or read `corpus`.", "shorten them by --seq-length, or read CORPUS."),
        ("set next_sentence=False.", "set --no-nsp."),
        ("continue with resume=True.", "continue with --resume."),
        ("choose engine='jax' or dtype=float32.", "choose --engine jax or --dtype float32."),
        ("raise `stride` or hidden_size=12.", "raise `stride` or hidden_size=12."),
        ("call encode(size=3) or x.size=3.", "call encode(--size 3) or x.size=3."),
        ("/a/seed=3/x.txt is gone; /seed=4 too", "/a/seed=3/x.txt is gone; /seed=4 too"),
        ("the row 'size=3' of size=tables[0]", "the row 'size=3' of size=tables[0]"),
    ],
)
def test_names_without_data_are_shown_as_flags_where_there_are_such(sentence, shown):
    assert on_command_line(InputError(sentence), parser_of("pretrain")) == shown


def test_value_that_looks_like_arguments_is_shown_as_it_is():
    out = "a, size=3 `seed`"
    error = InputError(f"{out=} holds a run; leave out `seed`.", out=out)
    expected = "--out 'a, size=3 `seed`' holds a run; leave out --seed."
    assert on_command_line(error, parser_of("pretrain")) == expected


def test_error_that_is_unpickled_says_the_same():
    problem = InputError("size='huge' is unknown.", where="a.json", size="huge")
    other = OtherOptions({"seed": (2, 1)})
    for error in (problem, other):
        copy = pickle.loads(pickle.dumps(error))
        assert str(copy) == str(error) and copy.arguments == error.arguments
    assert pickle.loads(pickle.dumps(other)).differing == {"seed": (2, 1)}


def test_source_is_named_before_the_place():
    with pytest.raises(InputError) as caught, naming("t.csv"):
        raise InputError("columns=1 is odd.", where="line 3", columns=1)
    assert str(caught.value) == "t.csv: line 3: columns=1 is odd."
    assert on_command_line(caught.value, parser_of("finetune")) == "t.csv: line 3: --column 1 is odd."


def test_place_stands_before_the_sentence():
    error = InputError("size='huge' is unknown.", where="a.json, line 3", size="huge")
    assert on_command_line(error, parser_of("pretrain")) == "a.json, line 3: --size huge is unknown."


def test_options_of_another_run_are_shown_with_those_of_the_run():
    differing = {"seed": (2, 1), "model": ("b", None), "next_sentence": (False, True), "fsdp": (True, False)}
    error = OtherOptions(differing)
    assert str(error) == (
        "The run cannot be resumed with seed=2 (the run has 1), model='b' (the run has None), "
        "next_sentence=False (the run has True), fsdp=True (the run has False); "
        "leave them out, or start a new run in another folder."
    )
    assert error.arguments == {"seed": 2, "model": "b", "next_sentence": False, "fsdp": True}
    assert on_command_line(error, parser_of("pretrain")) == (
        "The run cannot be resumed with --seed 2 (the run has 1), --model b (the run has none), "
        "--no-nsp (the run has no --no-nsp), --fsdp (the run has --no-fsdp); "
        "leave them out, or start a new run in another folder."
    )


@pytest.mark.parametrize(
    ("differing", "shown"),
    [
        ({"bias_correction": (False, True), "google_decay": (True, False)}, "paper (the run has adamw)"),
        ({"bias_correction": (True, False), "google_decay": (False, True)}, "adamw (the run has paper)"),
        ({"google_decay": (True, False)}, "paper (the run has adamw)"),
        ({"optimizer": ("lamb", "muon")}, "lamb (the run has muon)"),
    ],
)
def test_options_of_the_papers_optimizer_are_shown_as_one_flag(differing, shown):
    text = on_command_line(OtherOptions(differing), parser_of("pretrain"))
    assert text.startswith(f"The run cannot be resumed with --optimizer {shown}; ")


@pytest.mark.parametrize("kind", [InputWarning, RunError])
def test_warnings_and_failures_are_shown_with_flags(kind):
    shown = on_command_line(kind("Too much at batch_size=8; try accumulate=2."), parser_of("pretrain"))
    assert shown == "Too much at --batch-size 8; try --accumulate 2."


def test_argument_that_a_command_lacks_stays_as_it_is():
    error = InputError("size=3 is not valid.", size=3)
    assert on_command_line(error, argparse.ArgumentParser()) == "size=3 is not valid."


# What the library writes


LIBRARY = [path for path in sorted((ROOT / "minibert").rglob("*.py")) if "cli" not in path.parts]


def messages_of(path):
    """The line and text of each string within the raise statements and warnings of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        is_warning = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "warn"
        if isinstance(node, ast.Raise) or is_warning:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


@pytest.mark.thorough
def test_library_names_no_flags_but_those_of_whole_commands():
    texts = [(path, *message) for path in LIBRARY for message in messages_of(path)]
    assert len(texts) > 1000
    for path, line, text in texts:
        without_commands = re.sub(r"minibert [a-z].*", "", text)
        assert not re.search(r"(?<![\w-])--[a-z]", without_commands), f"{path}:{line}: {text}"
        assert not re.search(r"\$[a-z]", text), f"{path}:{line}: {text}"
