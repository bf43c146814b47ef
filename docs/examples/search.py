"""Search many texts by meaning: vectors in a file, in half precision, and a product with each question.

    python docs/examples/search.py index MODEL texts.txt vectors.npy
    python docs/examples/search.py ask MODEL texts.txt vectors.npy "The captain has one leg."

A line is a text; a blank line keeps its place, with NaN for a vector, and is found last. Beside the model and
what it computes with, memory holds one chunk of texts or a block of vectors, however many there are.
"""

import argparse
from pathlib import Path

import numpy as np

import minibert

BLOCK = 16_384  # vectors that are compared at a time, in float32


def write_vectors(encoder: minibert.TextEncoder, texts: Path, out: Path) -> int:
    """Write a vector of length 1 for each line of a file, and return how many lines there are."""
    with open(texts, encoding="utf-8") as lines:
        count = sum(1 for _ in lines)
    shape = count, len(encoder.get_feature_names_out())
    vectors = np.lib.format.open_memmap(out, mode="w+", dtype=np.float16, shape=shape)
    vectors[:] = np.nan  # which is left of blank lines, and sorted last
    with open(texts, encoding="utf-8") as lines, open(texts, encoding="utf-8") as same:
        numbers = (number for number, line in enumerate(same) if line.strip())
        words = (line.rstrip("\n") for line in lines if line.strip())
        for number, vector in zip(numbers, encoder.stream(words), strict=True):
            vectors[number] = vector
    vectors.flush()
    return count


# vectors (n,width)  questions (q,width) -> (q,top), (q,top)
def nearest(vectors: np.ndarray, questions: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows with the largest cosines to each question, the largest first, and these cosines."""
    cosines = np.empty((len(vectors), len(questions)), np.float32)
    for begin in range(0, len(vectors), BLOCK):
        block = vectors[begin : begin + BLOCK].astype(np.float32)
        cosines[begin : begin + BLOCK] = block @ questions.T
    rows = np.argsort(-cosines, axis=0)[:top].T
    return rows, np.take_along_axis(cosines.T, rows, axis=1)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="Search a file of texts, one a line.")
    parser.add_argument("what", choices=("index", "ask"))
    parser.add_argument("model", help="a BERT whose vectors are of use, such as all-MiniLM-L6-v2")
    parser.add_argument("texts", type=Path)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("questions", nargs="*")
    parser.add_argument("--top", type=int, default=4)
    given = parser.parse_args()
    encoder = minibert.TextEncoder(given.model, normalize=True, verbose=given.what == "index")
    if given.what == "index":
        print(f"{write_vectors(encoder, given.texts, given.vectors):,} vectors in {given.vectors}")
        return
    if not given.questions:
        parser.error("there is no question; give one or more after the file of vectors")
    vectors = np.load(given.vectors, mmap_mode="r")
    rows, cosines = nearest(vectors, encoder.transform(given.questions), given.top)
    wanted = set(rows.ravel().tolist())
    with open(given.texts, encoding="utf-8") as lines:
        found = {number: line.rstrip("\n") for number, line in enumerate(lines) if number in wanted}
    for question, numbers, values in zip(given.questions, rows, cosines, strict=True):
        print(question)
        for number, value in zip(numbers.tolist(), values, strict=True):
            print(f"{value:.3f}  {found[number]}")


if __name__ == "__main__":
    main()
