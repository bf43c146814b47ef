"""Train `english`, the BERT in the package: from its text to the folder in the package.

    python benchmarks/english.py [--out runs/english] [--steps N] [--pair-steps N] [--long-steps N]
        [--threads N]

It is trained on single texts first, which is cheaper, then on pairs with next sentences, as in the paper, and
then on many more pairs, of which the last are longer.
The text is a sample of the English Wikipedia and the public-domain books in MINIBERT_DATA/text, and the
books in the package. Left out are articles and chapters that share 13 words in a row with a task that the
model is measured on, chapters that are also in the package's books, and Frankenstein, on which the model is
measured as well. Every finished part stays in --out; the same command continues from there and, on a
processor of the same kind, gives the same bytes. The finished run is packed as the model in the package.
"""

import argparse
import json
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from english_pack import pack

from minibert.base.bundled_models import DEFAULT, FOLDER
from minibert.base.json_files import read_json
from minibert.data.corpus import SentenceStream, embedded_corpus

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("MINIBERT_DATA", ROOT.parent / "shared" / "data"))
MINIBERT = [sys.executable, "-m", "minibert"]
# Short sequences first: they are cheap, and teach most of what a small model learns. A last twentieth of 512
# tokens, at the end of the decay, left the loss two nats higher (docs/log/2026-11-29-english.md).
LENGTHS = "10:0.03,16:0.03,32:0.14,64:0.35,128:0.45"
STEPS = 14_650  # of 4,096 tokens each: 55 million in all, as short texts do not fill a batch
PAIR_STEPS = 6_000  # after them, with two segments and next sentences: 25 million tokens more
LONG_STEPS = 31_000  # after these, of 8,192 tokens each: 220 million tokens more
OF_ALL = [
    *("--optimizer", "muon"),
    *("--batch-size", "32"),  # of the longest texts; shorter ones come in larger batches
    *("--held-out", "0.02"),
]
FIRST = [*OF_ALL, "--size", "4-192-6", "--no-nsp", "--seq-length", LENGTHS, "--evaluations", "8"]
TRAINED = [*OF_ALL, "--lr", "1e-3", "--dropout", "0"]
PAIRS = [*TRAINED, "--seq-length", "128", "--evaluations", "6"]
# bfloat16 where the processor has it. Another seed draws other pairs and other [MASK]s than before.
LONG = [*TRAINED, "--dtype", "auto", "--seed", "1", "--seq-length", "128:0.7,256:0.3", "--evaluations", "8"]
VOCABULARY = ["--vocab-size", "8192"]
SHARED = 13  # a text that shares so many words in a row is an overlap, as in the GPT-3 paper
COPIED = 0.5  # a chapter that shares more of its word sequences than this is a copy
SHORTEST = 500  # characters of a chapter; shorter ones are titles and tables of contents
HELD_OUT = "Letter 1\n\n_To Mrs. Saville, England._"  # where Frankenstein begins, the last of the books


def main() -> None:
    """Do the parts that are not finished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/english"))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--pair-steps", type=int, default=PAIR_STEPS)
    parser.add_argument("--long-steps", type=int, default=LONG_STEPS)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    text, shards = given.out / "text", given.out / "shards"
    if not (text / "report.json").exists():
        write_text(text)
    sources = [str(text / "english.txt"), str(embedded_corpus())]
    if not (given.out / "vocabulary" / "vocab.txt").exists():
        run("vocab", *sources, "--out", given.out / "vocabulary", *VOCABULARY)
    run("data", *sources, "--vocab", given.out / "vocabulary", "--out", shards)
    threads = ["--threads", str(given.threads)] if given.threads else []
    first, pairs, packed, long = (given.out / name for name in ("run", "run-pairs", "packed", "run-long"))
    train(first, given.steps, threads, "--shards", shards, *FIRST)
    train(pairs, given.pair_steps, threads, "--shards", shards, "--model", first, *PAIRS)
    if not packed.exists():
        pack(pairs, packed)
    train(long, given.long_steps, threads, "--shards", shards, "--model", packed, *LONG)
    for name, value in pack(long, FOLDER / DEFAULT).items():
        print(f"{value:>17}  {name}")


def train(folder: Path, steps: int, threads: list[str], *words: str | Path) -> None:
    """Pre-train into a folder, or go on with the run that is there; stop if that has another length."""
    if not (folder / "training.json").exists():
        run("pretrain", "--out", folder, "--steps", str(steps), *words, *threads)
        return
    begun = read_json(folder / "training.json", {"steps": int})["steps"]
    if begun != steps:
        sys.exit(f"english.py: {folder} has a run of {begun} steps, not {steps}; give another --out.")
    run("pretrain", "--out", folder, "--resume", *threads)


def run(*words: str | Path) -> None:
    """Run a command of minibert; stop if it fails."""
    subprocess.run([*MINIBERT, *map(str, words)], check=True)


def write_text(folder: Path) -> None:
    """Write the training text, the held-out book, and a count of what was left out."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = word_sequences(task_texts())
    articles = read("enwiki.txt.xz").split("\n\n")
    chapters, frankenstein = chapters_of(read("more_books.txt.xz"))
    packaged = " ".join(sentence or "\n" for sentence in SentenceStream(embedded_corpus())).split("\n")
    ours = word_sequences(packaged)
    kept_articles = [text for text in articles if not word_sequences([text]) & tasks]
    kept_chapters = [
        text for text in chapters if not is_copy(text, ours) and not word_sequences([text]) & tasks
    ]
    (folder / "english.txt").write_text("\n\n".join([*kept_articles, *kept_chapters]) + "\n", "utf-8")
    (folder / "frankenstein.txt").write_text("\n\n".join(frankenstein) + "\n", "utf-8")
    report = {
        "articles": len(kept_articles),
        "articles_left_out": len(articles) - len(kept_articles),
        "chapters": len(kept_chapters),
        "chapters_left_out": len(chapters) - len(kept_chapters),
    }
    print(json.dumps(report))
    (folder / "report.json").write_text(json.dumps(report) + "\n")


def read(name: str) -> str:
    """Return a text of the data."""
    path = DATA / "text" / name
    if not path.exists():
        sys.exit(f"english.py: {path} is not there; name the folder that has it: MINIBERT_DATA=...")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read()


def chapters_of(books: str) -> tuple[list[str], list[str]]:
    """Return the chapters of the books, a paragraph a line, and those of the held-out book."""
    begin = books.index(HELD_OUT)
    return list(chapters_in(books[:begin])), list(chapters_in(books[begin:]))


def chapters_in(books: str) -> Iterator[str]:
    """Yield the chapters, which four blank lines separate, without the notices of the publishing site."""
    for piece in re.split(r"\n{5,}", books):
        if len(piece) < SHORTEST:
            continue
        paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", piece))
        yield "\n".join(text for text in paragraphs if text and "Gutenberg" not in text)


def is_copy(text: str, known: set[int]) -> bool:
    """Tell whether most word sequences of a text are among the known ones."""
    sequences = word_sequences([text])
    return len(sequences & known) > COPIED * len(sequences)


def word_sequences(texts: Iterable[str]) -> set[int]:
    """Return a hash of every sequence of `SHARED` words, lower-cased and without punctuation."""
    hashes = set()
    for text in texts:
        words = re.findall(r"\w+", text.lower())
        hashes.update(hash(tuple(words[at : at + SHARED])) for at in range(len(words) - SHARED + 1))
    return hashes


def task_texts() -> Iterator[str]:
    """Yield all texts of the tasks that the model is measured on."""
    for path in sorted([*DATA.glob("glue/*/*.tsv"), *DATA.glob("pairs/*/*")]):
        yield from re.split("[\t\n]", path.read_text("utf-8", errors="replace"))
    for path in sorted(DATA.glob("squad/*.json")):
        for article in read_json(path)["data"]:
            for paragraph in article["paragraphs"]:
                yield paragraph["context"]
                yield from (question["question"] for question in paragraph["qas"])
    for path in sorted(DATA.glob("ner/eng.*")):
        yield " ".join(line.split(" ")[0] for line in path.read_text("utf-8").splitlines())
    for name in ("wikitext2.valid.raw.xz", "wikitext2.test.raw.xz"):
        yield from read(name).splitlines()


if __name__ == "__main__":
    main()
