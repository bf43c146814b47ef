"""The tokenizer in C against its twin in Python on random Unicode (`make fuzz`).

    python tests/support/fuzz_tokenizer.py [--strings 1000000] [--seconds S] [--seed N] [--jobs J]
        [--first-round R]

Compared are ids, offsets, numbers of words and counts of words. A round is a thousand texts under one of 384
combinations of options, with a vocabulary cut out of its own words; in a thousand rounds each code point
there is comes once. A round depends on the seed and its number alone, not on Python or machine. The first
text that differs is shrunk and printed with its options.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import cache
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np

from minibert.tokenizer import SPECIAL_TOKENS, BasicTokenizer, Tokenizer, count_words, unicode
from minibert.tokenizer.normalize import COMPAT

TEXTS = 1000  # in a round
PROGRESS_SECONDS = 5.0
ROUNDS_OF_ALL_CODES = 1000
N_CODES = 0x110000
NEVER_SPLIT = ("a.b", "Don't", "中", "[MASK]", "É", "no piece")

# Where tokenizers go wrong: sigma, expansions, spaces, deleted characters, marks, borders of blocks.
NOTABLE = (
    "ΣσςΟ'’·ͺ\u0345İıẞßŉǰΐﬁﬃʼ\u0149\u1e9e\u1fb3KÅΩ"
    "\t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000"
    "\0\x01\x7f\xad\u200b\u200d\u200e\u200f\u202e\u2060\ufeff\ufffd\u0378\ue000\uf8ff\U000f0000\U0010ffff"
    "\ud800\udbff\udc00\udfff中一\u3400\u9fff\U00020000\U0002b81f\U0002b820\U0002b91f\U0002b920\U0002ceaf豈\U0002f800"
    "가각힣각\u1160\u11a7\ua960\ud7b0\u0344\u0340\u0341\u0374\u037e\u0387\u1fef\u2126\u212a\u212b\u0958\u0fb9"
    "\u302e\u302f\u0f71\u0f72\u0f74\u05b0\u05bc\u05c1\u0301\u0323\u0345\u0338\U0001d15e\U0001d165\U0001d16d\U00016ff0"
    "\u166d\u1734\u1885\u1886\ua9bd\U000111c9$+<=>^`|~#[]¿«»。、"
)
PHRASES = (
    *SPECIAL_TOKENS,
    *NEVER_SPLIT,
    "[mask]",
    "[MASK",
    "##",
    "##a",
    "ΑΣ ",
    "Α'Σ'Α",
    "e\u0301\u0323",
    "한국어",
    "हिन्दी",
    "ไทย",
    "עִבְרִית",
)
LETTERS = "aaabbcdeABE"


class Options(NamedTuple):
    """What a round tries out."""

    compat: str
    lower_case: bool
    strip_accents: bool
    tokenize_chinese_chars: bool
    never_split: bool
    short_words: bool  # a word limit that is often reached
    special: bool
    raw: bool  # bytes, some of them no UTF-8

    def rules(self) -> dict[str, Any]:
        """Arguments of `BasicTokenizer`."""
        return {
            "lower_case": self.lower_case,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.tokenize_chinese_chars,
            "compat": self.compat,
            "never_split": NEVER_SPLIT if self.never_split else (),
        }

    def tokenizer(self, vocab: list[str], core: str) -> Tokenizer:
        limit = {"max_input_chars_per_word": 6} if self.short_words else {}
        return Tokenizer(vocab, core=core, **self.rules(), **limit)


class Failure(NamedTuple):
    """Where the two differ."""

    round: int
    what: str
    options: Options
    vocab: list[str]
    text: str | bytes
    c: object
    python: object

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.what} differ in round {self.round}",
                f"  text     {ascii(self.text)}",
                f"  C        {readable(self.c)}",
                f"  Python   {readable(self.python)}",
                f"  options  {self.options}",
                f"  vocab    {ascii(self.vocab)}",
            ]
        )


def readable(result: object) -> str:
    if not isinstance(result, dict):
        return ascii(result)
    return ", ".join(f"{ascii(key)[1:-1]} {ascii(np.array(value).tolist())}" for key, value in result.items())


@cache
def combinations() -> list[Options]:
    """All of them, in an order that tries each option early."""
    switches = product((False, True), repeat=len(Options._fields) - 1)
    found = [Options(compat, *rest) for rest in switches for compat in COMPAT]
    random.Random(0).shuffle(found)
    return found


@cache
def eventful() -> list[str]:
    """Characters that lower-casing, decomposition or reordering changes."""
    tables = unicode.data()
    return [chr(code) for code in sorted({*tables.combining, *tables.lower, *tables.decompositions})]


def random_text(random: random.Random) -> str:
    """A text of any length from 0 to some 60 characters."""
    parts = []
    for _ in range(int(random.expovariate(0.25))):
        recipe = random.random()
        if recipe < 0.35:
            parts.append("".join(random.choices(LETTERS, k=random.randrange(1, 9))))
        elif recipe < 0.50:
            parts.append("".join(random.choices(NOTABLE, k=random.randrange(1, 4))))
        elif recipe < 0.65:
            parts.append("".join(random.choices(eventful(), k=random.randrange(1, 5))))
        elif recipe < 0.75:
            begin = random.choice(
                (random.randrange(0x3000), random.randrange(0x20000), random.randrange(N_CODES))
            )
            parts += (
                chr(min(N_CODES - 1, begin + random.randrange(40))) for _ in range(random.randrange(1, 6))
            )
        elif recipe < 0.85:
            parts.append(random.choice(PHRASES))
        else:
            parts.append(random.choice(" .,'- "))
        if random.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def every_code_point(number: int) -> list[str]:
    """The share of a round in all code points, a few to a text, between letters."""
    first, last = (N_CODES * part // ROUNDS_OF_ALL_CODES for part in (number, number + 1))
    codes = [chr(code) for code in range(first, last)]
    return ["a" + "b".join(codes[at : at + 10]) + "E" for at in range(0, len(codes), 10)]


def damaged(text: str, random: random.Random) -> bytes:
    """The bytes of a text, some of them replaced, left out or put in."""
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(random.choice((0, 0, 1, 3))):
        at = random.randrange(len(data) + 1)
        new = bytes(
            random.choices(
                (0x80, 0xBF, 0xC0, 0xC3, 0xE0, 0xE2, 0xED, 0xA0, 0xF0, 0xF4, 0x90, 0xFF, 0x61), k=2
            )
        )
        data[at : at + random.randrange(3)] = new[: random.randrange(3)]
    return bytes(data)


def random_vocab(words: set[str], random: random.Random) -> list[str]:
    """Pieces cut out of words, so that they nest, overlap and fail late; most characters are pieces too."""
    pieces = {"a", "##a", "#", "##", "no piece"}
    for word in sorted(words):
        pieces |= {mark + character for character in word for mark in ("", "##") if random.random() < 0.8}
        for _ in range(3):
            begin = random.randrange(len(word))
            pieces.add("##" * (begin > 0) + word[begin : begin + random.randrange(2, 12)])
    vocab = [*SPECIAL_TOKENS, *sorted(pieces - set(SPECIAL_TOKENS))]
    repeated = random.choices(vocab, k=random.randrange(8))  # of which the last counts; "" is no piece
    return [*vocab, *random.choices([*repeated, ""], k=random.randrange(12)), *repeated]


class Pair:
    """Both cores with one vocabulary."""

    def __init__(self, options: Options, vocab: list[str]):
        self.options = options
        self.c, self.python = (options.tokenizer(vocab, core) for core in ("c", "python"))
        self.basic_tokenizer = BasicTokenizer(**options.rules() | {"never_split": ()})

    def encoded(self, tokenizer: Tokenizer, texts: list[str] | list[bytes]) -> dict[str, np.ndarray]:
        batch = tokenizer.encode_batch(texts, offsets=True, special=self.options.special, threads=2)
        return {
            "ids": batch.ids,
            "cu_seqlens": batch.cu_seqlens,
            "offsets": batch.offsets,
            "word_ids": batch.word_ids,
            "n_invalid": np.array(batch.n_invalid),
        }

    def without_offsets(self, tokenizer: Tokenizer, texts: list[str] | list[bytes]) -> dict[str, np.ndarray]:
        batch = tokenizer.encode_batch(texts, special=self.options.special, threads=1)
        return {"ids": batch.ids, "cu_seqlens": batch.cu_seqlens, "n_invalid": np.array(batch.n_invalid)}

    def alone(self, tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
        return [tokenizer.encode(text, special=self.options.special) for text in texts]

    def counted(self, core: str, texts: list[str] | list[bytes]) -> dict[str, int]:
        limit = {"max_chars": 6} if self.options.short_words else {}
        return dict(count_words(texts, self.basic_tokenizer, core=core, **limit).items())

    def views(self) -> dict[str, Callable[[str, list], object]]:
        """Everything that must be the same: name -> function of a core and texts."""
        cores = {"c": self.c, "python": self.python}
        found = {
            "pieces with offsets": lambda core, texts: self.encoded(cores[core], texts),
            "pieces without offsets": lambda core, texts: self.without_offsets(cores[core], texts),
            "counts": self.counted,
        }
        if not self.options.raw:
            found["pieces of single texts"] = lambda core, texts: self.alone(cores[core], texts)
        return found


def same(left: object, right: object) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(np.array_equal(left[key], right[key]) for key in left)
    return left == right


def run_round(seed: int, number: int, core: str = "c") -> Failure | None:
    """Compare the cores on the texts of a round; the first difference, made small."""
    options = combinations()[number % len(combinations())]
    rng = random.Random(f"{seed} {number}")
    texts = every_code_point(number % ROUNDS_OF_ALL_CODES)
    texts += [random_text(rng) for _ in range(TEXTS - len(texts))]
    if options.raw:
        texts = [damaged(text, rng) for text in texts]
    basic = BasicTokenizer(**options.rules())
    strings = [text.decode("utf-8", "replace") if options.raw else text for text in texts]
    vocab = random_vocab({word for text in strings for word in basic.tokenize(text)}, rng)
    pair = Pair(options, vocab)
    for what, view in pair.views().items():
        if not same(view(core, texts), view("python", texts)):
            return _smallest(number, what, view, pair, texts)
    return None


def _smallest(number: int, what: str, view: Callable, pair: Pair, texts: list) -> Failure:
    def differs(text: str | bytes) -> bool:
        return not same(view("c", [text]), view("python", [text]))

    alone = next(filter(differs, texts), None)
    if alone is None:  # they differ together only
        return Failure(number, what, pair.options, [], f"{len(texts)} texts together", None, None)
    text = shrink(alone, differs)
    found = [view(core, [text]) for core in ("c", "python")]
    ids = {int(i) for result in found if "ids" in result for i in result["ids"]}
    return Failure(number, what, pair.options, [pair.c.vocab[i] for i in sorted(ids)], text, *found)


def shrink(text: str | bytes, differs: Callable[[str | bytes], bool]) -> str | bytes:
    """The text with everything taken out, and then made an "a", that is not needed for `differs`."""
    size = len(text)
    while size:
        for begin in range(len(text) - size, -1, -size):
            shorter = text[:begin] + text[begin + size :]
            if differs(shorter):
                text = shorter
        size //= 2
    plain = b"a" if isinstance(text, bytes) else "a"
    for at in range(len(text)):
        simpler = text[:at] + plain + text[at + 1 :]
        if simpler != text and differs(simpler):
            text = simpler
    return text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strings", type=int, default=1_000_000, help="how many random texts")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seed", type=int, default=None, help="by default another one at every run")
    parser.add_argument("--first-round", type=int, default=0, help="go on from there, or repeat a failure")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args(arguments)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"minibert: fuzzing with --seed {seed}", flush=True)

    began = told = time.monotonic()
    rounds = range(options.first_round, options.first_round - (-options.strings // TEXTS))
    done, tried, todo = 0, set(), iter(rounds)
    with ProcessPoolExecutor(options.jobs) as pool:
        running = {pool.submit(run_round, seed, number): number for number in islice(todo, 2 * options.jobs)}
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number = running.pop(future)
                if (failure := future.result()) is not None:
                    pool.shutdown(cancel_futures=True)
                    print(f"minibert: {failure}")
                    print(f"Repeat it with --seed {seed} --first-round {number} --strings 1")
                    return 1
                done += 1
                tried.add(number % len(combinations()))
                in_time = time.monotonic() - began < options.seconds
                if in_time and (number := next(todo, None)) is not None:
                    running[pool.submit(run_round, seed, number)] = number
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                left = min((told - began) / done * (len(rounds) - done), began + options.seconds - told)
                print(f"  {done * TEXTS:,} texts, no difference; about {left:,.0f} s left", flush=True)
    print(
        f"minibert: {done * TEXTS:,} texts under {len(tried)} combinations of options: 0 differences between "
        f"C and Python in ids, offsets, words and counts ({time.monotonic() - began:.0f} s)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
