"""Tiny files in the layout of CoNLL-2003, with a vocabulary and a model that know their words."""

from itertools import cycle, islice, product
from pathlib import Path

from minibert import BertConfig, Tokenizer, hub
from minibert.model.params import initialise
from minibert.tokenizer import SPECIAL_TOKENS

NAMES, PLACES = ("anna", "ben", "cleo", "dan"), ("paris", "rome", "oslo")
OTHERS = (
    "the a is was lives in who where ? . and very here film book play song good fine dull bad poor".split()
)
WORDS = (*NAMES, *PLACES, *OTHERS)


def write_vocabulary(folder: Path, words=WORDS) -> Tokenizer:
    """A tokenizer that knows some words, by default those of these files; Hugging Face reads it."""
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *words])
    tokenizer.save_pretrained(folder)
    return tokenizer


def write_model(folder: Path, words=WORDS, **more) -> Path:
    """An untrained BERT of two layers with that vocabulary."""
    config = BertConfig(
        vocab_size=write_vocabulary(folder, words).vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        **more,
    )
    hub.save_hf(folder, config, initialise(config, seed=0))
    return folder


def write_data(folder: Path) -> Path:
    """Nine documents to learn from, and three that are not among them."""
    folder.mkdir(parents=True)
    every = list(islice(cycle(product(NAMES, PLACES)), 12))
    (folder / "eng.train").write_text(documents(every[:5] + every[8:]), "utf-8")
    (folder / "eng.testa").write_text(documents(every[5:8]), "utf-8")
    return folder


def documents(facts) -> str:
    """Three sentences on each of some (name, place), tags in IOB1."""
    lines = []
    for name, place in facts:
        lines += ["-DOCSTART- -X- O O", ""]
        for words in (f"{name} lives in {place}", "the film is here", f"in {place} is {name}"):
            for word in words.split():
                tag = "I-PER" if word in NAMES else "I-LOC" if word in PLACES else "O"
                lines.append(f"{word.title() if tag != 'O' else word} NN O {tag}")
            lines.append("")
    return "\n".join(lines) + "\n"
