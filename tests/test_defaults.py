"""Defaults: docstrings say the ones that the code has, and those of options are the ones that users know."""

import ast
import dataclasses
import importlib
import inspect
import re

import pytest
from paths import PACKAGE

from minibert import cli
from minibert.api.encoder import TextEncoder
from minibert.core.config import BertConfig
from minibert.core.optim import KINDS, Optimizer
from minibert.data.instances import InstanceOptions
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.zero_shot import zero_shot
from minibert.pretraining.extension import PIECES
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.predict import evaluate
from minibert.tasks.metrics import squad
from minibert.tokenizer import Tokenizer

TYPED = re.compile(r", default (.+)$")  # at the end of "name : type, default X"
IN_WORDS = re.compile(
    r'(?<![\w"])("[^"\s]*"|-?[\d.,e-]*\d|True|False)(?:,? \(?the default\b|,? by default\b)'
)


def entries(doc):
    """The parameters of a docstring: (names, the line with their type, all that is said of them)."""
    if "Parameters\n-" not in doc:
        return
    lines = re.split(r"\n\w[\w ]*\n-{3,}", doc.split("Parameters\n", 1)[1].partition("\n")[2])[0]
    for entry in re.split(r"\n(?=\S)", lines):
        names, colon, said = entry.partition(" : ")
        if colon:
            yield names.replace("*", "").split(", "), said.partition("\n")[0], " ".join(said.split())


def defaults(node):
    """The parameters of a function, or of a class or its fields, with the code of their defaults."""
    if isinstance(node, ast.ClassDef):
        for one in node.body:
            if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                return defaults(one)
        return {one.target.id: one.value for one in node.body if isinstance(one, ast.AnnAssign) and one.value}
    parameters = node.args
    by_place = [*parameters.posonlyargs, *parameters.args]
    named = dict(zip([one.arg for one in reversed(by_place)], reversed(parameters.defaults), strict=False))
    by_name = zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
    return named | {one.arg: default for one, default in by_name if default}


def value_of(code, module):
    """The value of a default, for which its module is imported only if it names something."""
    try:
        return ast.literal_eval(code)
    except ValueError:
        return eval(ast.unparse(code), vars(importlib.import_module(module)))


def spellings(code, module):
    """How a docstring may write a default: as code, or its value as a reader knows it."""
    value = value_of(code, module)
    found = {ast.unparse(code), repr(value), getattr(value, "__name__", "")}
    if isinstance(value, str):
        found |= {f'"{value}"', {"\n": "a line end"}.get(value, f'"{value}"')}
    elif isinstance(value, int | float) and value is not True and value is not False:
        found |= {f"{value:,}", f"{value:g}", f"{value / 2**10:g} KiB", f"{value / 2**20:g} MiB"}
    elif isinstance(value, tuple):
        found.add(" and ".join(f'"{one}"' for one in value))
    return found


def says_itself(code):
    """Whether a default is a number, a truth value or a word, which its docstring has to name."""
    try:
        value = ast.literal_eval(code)
    except ValueError:
        return False
    return isinstance(value, int | float) or (isinstance(value, str) and bool(re.fullmatch(r"\S+", value)))


def wrong(source, module):
    """The parameters whose docstring says another default than the code, or none though there is one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        there = defaults(node)
        for names, first_line, said in entries(ast.get_docstring(node) or ""):
            typed = TYPED.search(first_line)
            stated = typed[1].split(" and ") if typed and len(names) > 1 else [typed[1] if typed else None]
            for name, told in zip(names, stated * (len(names) if len(stated) == 1 else 1), strict=True):
                code = there.get(name)
                in_words = IN_WORDS.search(said)
                told = told or (in_words[1] if in_words and len(names) == 1 else None)
                where = f"{module}: {node.name}: {name}"
                if code is None:
                    if typed:
                        found.append(f"{where} has no default, its docstring says {told}")
                elif ast.unparse(code) == "None" and not typed:
                    continue  # what it stands for is said in words
                elif told and told not in spellings(code, module):
                    found.append(f"{where} is {ast.unparse(code)}, its docstring says {told}")
                elif not told and "default" not in said and says_itself(code) and ".core." not in module:
                    found.append(f"{where} is {ast.unparse(code)}, its docstring says nothing")
    return found


def modules():
    """Every file of the package with the name of its module."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield path, ".".join(parts).removesuffix(".__init__")


def test_docstrings_say_the_defaults_of_the_code():
    assert [line for path, module in modules() for line in wrong(path.read_text("utf-8"), module)] == []


DOCUMENTED = '''
def f(a, b=2, c="x", d=None, e=4096, *, g=True):
    """Do.

    Parameters
    ----------
    a : int
    b : int, default 2
        Two.
    c : str
        "x" (the default) or "y".
    d : str, optional
        3 by default.
    e : int, default 4,096
    g : bool, default True
    """
'''


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("b=2", "b=3", "b is 3, its docstring says 2"),
        ('c="x"', 'c="y"', "c is 'y', its docstring says \"x\""),
        ("e=4096", "e=4097", "e is 4097, its docstring says 4,096"),
        ("g=True", "g=False", "g is False, its docstring says True"),
        ("g=True", "g", "g has no default, its docstring says True"),
        ("e : int, default 4,096", "e : int", "e is 4096, its docstring says nothing"),
    ],
)
def test_a_docstring_with_another_default_is_found(old, new, said):
    assert wrong(DOCUMENTED, "a.b") == []
    assert wrong(DOCUMENTED.replace(old, new), "a.b") == [f"a.b: f: {said}"]


# What a run has that names no option. None is left out: it is decided when the run begins.
TRAINING = {
    "dtype": "float32", "optimizer": "adamw", "weight_decay": 0.01, "clip_norm": 1.0, "beta1": 0.9,
    "beta2": 0.999, "adam_eps": 1e-6, "engine": "auto", "fsdp": False, "recompute": False,
    "checkpoint_steps": 0, "checkpoint_seconds": 300.0, "seed": 0,
}  # fmt: skip
MASKS = {
    "masked_lm_prob": 0.15, "mask_rates": (0.8, 0.1, 0.1), "whole_word_mask": False, "dupe_factor": 0,
    "short_seq_prob": 0.1, "next_sentence": True, "left_to_right": False,
}  # fmt: skip
OPTIONS = {
    InstanceOptions: {"seq_length": 128, **MASKS},
    PretrainOptions: {
        **TRAINING, **MASKS, "keep": 2, "corpus": (), "layout": "auto", "column": "text", "vocab_size": 8192,
        "lower_case": True, "keep_accents": False, "segmented": False, "held_out": 0.05, "hidden_act": "gelu",
        "evaluations": 10,
    },
    FinetuneOptions: {
        **{name: value for name, value in TRAINING.items() if name != "optimizer"},
        "keep": 1, "accumulate": 1, "warmup": 0.1, "bias_correction": True, "google_decay": False,
        "span_weight": 0.5, "long": "cut", "token_budget": 4096, "bilstm": False,
        "restarts": 1, "columns": (), "also": (), "stratified": True, "width": 768,
    },
    TextEncoder: {
        "text": "text", "layers": -1, "normalize": False, "engine": "auto", "dtype": "float32",
        "verbose": False,
    },
    BertConfig: {
        "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2,
        "initializer_range": 0.02, "layer_norm_eps": 1e-12, "is_decoder": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", OPTIONS)
def test_options_that_nobody_gives_are_these(kind):
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    undecided = (None, dataclasses.MISSING)
    assert {name: value for name, value in fields.items() if value not in undecided} == OPTIONS[kind]


def given_nothing(function):
    """The defaults of a function by their names."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def test_an_optimizer_begins_as_in_the_paper():
    expected = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "weight_decay": 0.01, "clip_norm": 1.0}
    assert given_nothing(Optimizer) == {**expected, "bias_correction": True, "begin": 0}
    rates = {"adamw": (1, False), "lamb": (10, True), "muon": (1, True)}
    assert {name: (kind.RATE, kind.WHOLE) for name, kind in KINDS.items()} == rates


def test_a_tokenizer_that_is_called_has_the_defaults_of_its_methods():
    called, batch = given_nothing(Tokenizer.__call__), given_nothing(Tokenizer.encode_batch)
    shared = called.keys() & batch.keys() - {"pair"}
    assert shared == {"max_length", "truncation", "special", "add_special_tokens"}
    assert {name: called[name] for name in shared} == {name: batch[name] for name in shared}
    assert given_nothing(Tokenizer.encode)["add_special_tokens"] is called["add_special_tokens"] is True


@pytest.mark.parametrize(
    ("command", "flag", "default"),
    [
        ("extend", "--n", PIECES),
        ("score", "--threshold", given_nothing(squad.score)["threshold"]),
        ("classify", "--template", given_nothing(zero_shot)["template"]),
        ("evaluate", "--targets", given_nothing(evaluate)["targets"]),
    ],
)
def test_help_says_the_defaults_of_the_library(command, flag, default, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, *(["squad"] if command == "score" else []), "--help"])
    about = " ".join(capsys.readouterr().out.partition(f"\n  {flag} ")[2].split())
    expected = f"{default:g}" if isinstance(default, float) else str(default)
    assert re.search(r"\(default: ([^()]*)\)", about)[1] == expected
