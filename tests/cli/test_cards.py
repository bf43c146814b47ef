"""What the card of an exported folder advises does what it says: its commands and its Python are run."""

import json
import re
import shlex
import sys
from types import ModuleType

import numpy as np
import pytest

from minibert import Bert, Tokenizer, cli, hub
from minibert.core.config import BertConfig
from minibert.model.params import PRETRAINING, Head, initialise
from minibert.tasks.stored import TaskFile

LETTERS = [chr(97 + number) for number in range(26)]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{one}" for one in LETTERS), "."]
CONFIG = BertConfig.from_size("1-12-2", vocab_size=len(VOCAB), max_position_embeddings=64)
# Heads, and the task.json beside them: None for models of transformers', which have none.
MODELS = {
    "pretraining": (PRETRAINING, None),
    "classify": (Head("classify", 2), TaskFile("classify", ("no", "yes"), 16)),
    "classify pairs": (Head("classify", 2), TaskFile("classify", ("no", "yes"), 16, {"second": "b"})),
    "rte": (Head("classify", 2), TaskFile("rte", ("entailment", "not_entailment"), 16)),
    "multilabel": (Head("multilabel", 2), TaskFile("multilabel", ("art", "war"), 16)),
    "regress": (Head("regress", 1), TaskFile("regress", (), 16)),
    "tag": (Head("tag", 3), TaskFile("tag", ("O", "B-X", "I-X"), 16)),
    "span": (Head("span", 2), TaskFile("qa", (), 32)),
    "choice": (Head("choice", 1), TaskFile("copa", (), 32)),
    "similarity": (Head("cosine", 0), TaskFile("similarity", (), 16)),
    "their classify": (Head("classify", 3), None),
    "their multilabel": (Head("multilabel", 3), None),
    "their tag": (Head("tag", 3), None),
    "their span": (Head("span", 2), None),
    "their choice": (Head("choice", 1), None),
}


@pytest.fixture(autouse=True)
def library(monkeypatch):
    """Stand-ins for the libraries of others: what they do with these folders is in `tests/oracle`."""
    theirs = ModuleType("transformers")
    theirs.pipeline = lambda *_: lambda *_: None
    monkeypatch.setitem(sys.modules, "transformers", theirs)
    theirs = ModuleType("sentence_transformers")
    theirs.SentenceTransformer = lambda folder: Bert.from_pretrained(folder)
    monkeypatch.setitem(sys.modules, "sentence_transformers", theirs)


def saved(kind, folder):
    head, task = MODELS[kind]
    hub.save_hf(folder, CONFIG, initialise(CONFIG, 1, head=head), task.labels if task else ())
    Tokenizer(VOCAB).save_pretrained(folder, CONFIG.P)
    if task:
        task.save(folder)
    return folder


def export(*words):
    assert cli.main(["export", *map(str, words)]) == 0


def run_card(folder, monkeypatch, capsys):
    """Run what the card of a folder says, from the folder around it, as a reader would."""
    monkeypatch.chdir(folder.parent)
    (folder.parent / "endings").mkdir(exist_ok=True)
    row = {"premise": "a", "choice1": "b", "choice2": "c", "question": "cause", "label": 0, "idx": 0}
    (folder.parent / "endings" / "val.jsonl").write_text(json.dumps(row) + "\n")
    header = "video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
    swag = f"{header}\n0,0,a b,a,b,gold,c,d,e,f,1\n"
    (folder.parent / "endings" / "val.csv").write_text(swag)
    card = (folder / "README.md").read_text()
    use = card.split("\n## Use\n")[1].split("\n## ")[0]
    commands = re.findall(r"```\n(minibert .*?)\n```", use, re.S)
    for python in re.findall(r"```python\n(.*?)\n```", use, re.S):
        exec(python, {})
    for command in commands:
        words = shlex.split(command.replace("DIR", "endings"))[1:]
        assert cli.main(words) == 0, f"{command}\n{capsys.readouterr().err}"
    return use, commands


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", MODELS)
def test_command_of_the_card_works_on_its_folder(kind, tmp_path, monkeypatch, capsys):
    export("--model", saved(kind, tmp_path / "model"), "--out", tmp_path / "a bert")
    _, commands = run_card(tmp_path / "a bert", monkeypatch, capsys)
    assert len(commands) == 1


@pytest.mark.parametrize("lacking", ["cls.predictions", "cls.", "cls.seq_relationship", "pooler"])
def test_card_advises_only_what_trained_heads_can_do(lacking, tmp_path, monkeypatch, capsys):
    params = initialise(CONFIG, 1)
    lost = [name for name in hub.to_hf(params) if lacking in name]
    hub.save_hf(tmp_path / "model", CONFIG, params, omit=lost)
    Tokenizer(VOCAB).save_pretrained(tmp_path / "model", CONFIG.P)
    export("--model", tmp_path / "model", "--out", tmp_path / "out")
    use, _ = run_card(tmp_path / "out", monkeypatch, capsys)
    guesses = lacking in ("cls.seq_relationship", "pooler")
    assert ("fill-mask" in use) == guesses and ("features" in use) != guesses


def test_card_of_a_model_without_vocabulary_says_what_it_needs(tmp_path, monkeypatch, capsys):
    hub.save_hf(tmp_path / "model", CONFIG, initialise(CONFIG, 1))
    export("--model", tmp_path / "model", "--out", tmp_path / "out")
    use, commands = run_card(tmp_path / "out", monkeypatch, capsys)
    assert commands == [] and "vocabulary" in use


@pytest.mark.parametrize("flags", [(), ("--sentence-transformers", "cls")], ids=lambda one: one[-1:])
def test_card_of_an_exported_folder_is_renewed_by_the_next_export(flags, tmp_path, monkeypatch, capsys):
    run = saved("pretraining", tmp_path / "run")
    options = {"corpus": ["whales.txt"], "learning_rate": 1e-3, "batch_size": 64, "next_sentence": True}
    (run / "training.json").write_text(json.dumps(options))
    export("--model", run, "--out", tmp_path / "first")
    card = (tmp_path / "first" / "README.md").read_text()
    card = card.replace("---\n\n# first", "license: mit\n---\n\n# first") + "\n## Thanks\n\nTo the whales.\n"
    (tmp_path / "first" / "README.md").write_text(card)
    (tmp_path / "first").rename(tmp_path / "moved")
    export("--model", tmp_path / "moved", "--out", tmp_path / "second", *flags)
    use, _ = run_card(tmp_path / "second", monkeypatch, capsys)
    renewed = (tmp_path / "second" / "README.md").read_text()
    assert "license: mit" in renewed and renewed.endswith("To the whales.\n")
    assert "first" not in renewed and "Text: `whales.txt`." in renewed
    if not flags:
        assert renewed == card.replace("first", "second")
    assert ("sentence_transformers" in use) == ("cls" in flags)


def test_card_of_a_folder_whose_name_begins_with_a_dash_works(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    export("--model", saved("pretraining", tmp_path / "model"), "--out=-x")
    run_card(tmp_path / "-x", monkeypatch, capsys)


def test_vectors_that_the_card_writes_are_there(tmp_path, monkeypatch, capsys):
    export("--model", saved("similarity", tmp_path / "model"), "--out", tmp_path / "out")
    run_card(tmp_path / "out", monkeypatch, capsys)
    assert np.load(tmp_path / "vectors.npy").shape == (1, CONFIG.H)
