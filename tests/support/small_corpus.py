"""A corpus of a few kilobytes that a model can learn something from, made anew wherever it is needed."""

import random
from pathlib import Path

ANIMALS = ("cat", "dog", "horse", "sheep", "whale", "rabbit")
PLACES = {
    "cat": "house",
    "dog": "yard",
    "horse": "field",
    "sheep": "hill",
    "whale": "sea",
    "rabbit": "garden",
}
VERBS = ("sleeps", "runs", "waits", "sings", "dances", "looks around")


def write_corpus(path: Path, documents: int = 24, sentences: int = 12) -> Path:
    """One sentence a line, a blank line between documents; each document is about one animal in its place."""
    rng = random.Random(5)
    texts = []
    for number in range(documents):
        animal = ANIMALS[number % len(ANIMALS)]
        lines = [f"The {animal} {rng.choice(VERBS)} in the {PLACES[animal]}." for _ in range(sentences)]
        texts.append("\n".join(lines) + "\n")
    path.write_text("\n".join(texts), encoding="utf-8")
    return path
