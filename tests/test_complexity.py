"""The time of every scanner and regular expression grows with its input, not with the square of it.

A file decides what a scanner meets. Each is run on what would be worst for it, of n characters and of 8 n: a
linear one takes 8 times as long, a quadratic one 64 times. CPU time counts, the least of three, whatever else
the machine does. Regular expressions are found in the sources, and in each of them what is worst for it.
"""

import ast
import contextlib
import functools
import gc
import importlib
import json
import re
import runpy
import time
from collections import deque
from itertools import islice, product
from types import SimpleNamespace

import numpy as np
import pytest
from paths import GOLDEN, PACKAGE

from minibert.base.errors import InputError
from minibert.base.json_files import read_json
from minibert.base.reading import whole_lines
from minibert.base.terminal import json_text, printable
from minibert.cli import answer, tokenize
from minibert.cli.shared import texts as cli_texts
from minibert.cli.shared.messages import on_command_line
from minibert.cli.shared.parser import Parser
from minibert.data import corpus, json_items, lines, ner, squad, tables, trivia
from minibert.hub.pytorch import listing
from minibert.reports import markup
from minibert.tasks import contexts, words
from minibert.tasks.answering import passage
from minibert.tasks.metrics import entities, squad as squad_metric
from minibert.tokenizer import SPECIAL_TOKENS, BasicTokenizer, Tokenizer, formats, native
from minibert.tokenizer.counting import count_files, count_words
from minibert.training import runlog

# At most, from n to 8 n: linear is 8, n log n about 9, what outgrows the caches and is given fresh pages up
# to 21, quadratic 64.
RATIO = 32
MEASURABLE = 0.02  # seconds of CPU that n takes at least, unless it is MOST characters
LEAST = 0.005  # seconds that count as so many, where even MOST take less
FEWEST, MOST = 1 << 10, 1 << 20  # characters
PIECE = 1 << 16  # characters of a file that come at once


def seconds(run):
    """CPU time of one call; that it refuses its input is a result, too."""
    begin = time.process_time()
    with contextlib.suppress(InputError):
        run()
    return max(time.process_time() - begin, 1e-6)


def is_linear(prepare, n=FEWEST, measurable=MEASURABLE):
    """Whether eight times the input takes less than RATIO times as long; `prepare(n)` is what to call.

    The larger size is run again only where that can change the answer, the smaller one after it too.
    """
    gc.collect()
    gc.disable()  # what other tests left is not looked through meanwhile
    try:
        while (took := _quickest(prepare(n), measurable)) < measurable and n < MOST:
            n = min(MOST, int(n * min(8, 1.2 * measurable / took)))
        for _ in range(3):
            more = seconds(prepare(8 * n))
            took = min(took, _quickest(prepare(n), 0))  # a slow moment must not count for one size alone
            limit = RATIO * max(LEAST, took)
            if not limit < more < 2 * limit:
                break
        return more < limit
    finally:
        gc.enable()


def _quickest(run, enough):
    """Seconds of a run, or of the quickest of three where that takes enough: one may have been held up."""
    took = seconds(run)
    return took if took < enough else min(took, seconds(run), seconds(run))


# Regular expressions

METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "split")
# Those that are put together while the program runs; below, their functions are called.
COMPUTED = {
    "course/answers.py": [],  # a name, looked for as it is
    "cli/shared/messages.py": ["arguments in messages"],
    "cli/shared/parser.py": ["argparse's messages"],
    "data/marks.py": [],  # one class of characters
    "data/trivia.py": ["trivia.find_answers"],
    "base/files.py": [],  # of names of files, 255 characters at most
    "tokenizer/added.py": ["tokenizer.json, added tokens"],
    "tokenizer/counting.py": [],  # one of some strings, looked for as they are
    "tokenizer/greedy.py": ["python, google"],
    "tokenizer/normalize.py": ["python, google"],
}


def expressions():
    """Every regular expression of the package: its file, the method that uses it, the pattern or None."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    calls = re.compile(rf"\.(compile|{'|'.join(METHODS)})\b")  # only files with such a call are parsed
    nodes = {
        str(path.relative_to(PACKAGE)): list(ast.walk(ast.parse(text)))
        for path, text in texts.items()
        if calls.search(text)
    }
    used = {}  # name of a compiled one -> method
    for node in (node for file in nodes.values() for node in file):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            used.setdefault(ast.unparse(node.value).rpartition(".")[2], node.attr)
    for file, own in nodes.items():
        targets = {id(node.value): node.targets[0] for node in own if isinstance(node, ast.Assign)}
        for node in own:
            method = _method_of_re(node)
            if method:
                name = ast.unparse(targets[id(node)]) if id(node) in targets else ""
                used_as = used.get(name, "finditer") if method == "compile" else method
                yield file, used_as, _pattern(node, name, file)


def _method_of_re(node):
    """The method of `re` that a node of the syntax tree calls, or None."""
    called = node.func if isinstance(node, ast.Call) else None
    of_re = (
        isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "re"
    )
    return called.attr if of_re and called.attr in ("compile", *METHODS) else None


def _pattern(call, name, file):
    if isinstance(call.args[0], ast.Constant):
        return re.compile(call.args[0].value, re.MULTILINE if ast.unparse(call.args[-1]) == "re.M" else 0)
    if name.isupper():
        return getattr(importlib.import_module(f"minibert.{file[:-3].replace('/', '.')}"), name)
    return None


def adversaries(pattern, n):
    """Texts of about n characters: repetitions of what the expression looks for, with and without an end."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode()
    known = re.findall(r"[A-Za-z_]{2,}|[^\\]", source)[:200]
    parts = [*dict.fromkeys([*" a1.\n", *known])][:24]
    for first, second in product(parts, parts):
        yield (first + second) * (n // len(first + second)) + "#"
        yield first + second * (n // len(second)) + "#"


def is_linear_expression(pattern, method, n=1 << 12):
    """Whether an expression takes linear time on all of its adversaries; those are measured that are slow."""

    def scan(text):
        if isinstance(pattern.pattern, bytes):
            text = text.encode()
        found = getattr(pattern, method)(*["-"] * (method == "sub"), text)
        if method == "finditer":
            deque(found, maxlen=0)

    for number, text in enumerate(adversaries(pattern, n)):
        took = seconds(lambda text=text: scan(text))
        longer = functools.partial(_longer, scan, pattern, number)
        if took > 0.002 and not is_linear(longer, n, LEAST):
            return False
    return True


def _longer(scan, pattern, number, n):
    return functools.partial(scan, next(islice(adversaries(pattern, n), number, None)))


FOUND = list(expressions())


@pytest.mark.thorough
@pytest.mark.parametrize(("file", "method", "pattern"), [one for one in FOUND if one[2]])
def test_regular_expression_takes_linear_time(file, method, pattern):
    assert is_linear_expression(pattern, method)


def test_every_other_regular_expression_is_run_by_a_case_below():
    assert {file for file, _, pattern in FOUND if pattern is None} == COMPUTED.keys()
    for name in (name for names in COMPUTED.values() for name in names):
        assert any(case.startswith(name) for case in CASES), name


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("planted", [r"(?m)[ \t]+$", r"(\w+): ", r"[.!?]+\s", r"bytes\w*\s+\d"])
def test_planted_quadratic_expression_is_found(planted):
    assert not is_linear_expression(re.compile(planted), "finditer", 1 << 11)


# Scanners

CASES = {}


def case(name, *inputs):
    """Add a function for each input, a string that is repeated up to n characters."""

    def add(function):
        for number, repeated in enumerate(inputs or [""]):
            title = f"{name} {number} {ascii(repeated)}" if inputs else name
            CASES[title] = functools.partial(_repeated, function, repeated)
        return function

    return add


def _repeated(function, text, n, tmp):
    return function(text * (n // max(1, len(text))), n, tmp)


def written(tmp, text, name="file.txt"):
    """A file with a text."""
    path = tmp / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def pieces(text):
    """A text as files are read."""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


MARKS = (".", "!?", "。", ".。", "。.", ".)", ". ", ".\u201d", "._", ". (", "。)", "…a ")
NUMERALS = ("a.", "Mr. ", "I. ", "1.", "I")


@case("corpus.split_sentences", *MARKS, *NUMERALS)
def _(text, n, tmp):
    return lambda: corpus.split_sentences(text)


for layout in corpus.LAYOUTS:

    @case(f"corpus {layout}", ".", "a", " ", "\n", "? a\n")
    def _(text, n, tmp, layout=layout):
        file = written(tmp, text)
        return lambda: deque(corpus.sentences(file, layout), maxlen=0)


@case("trivia.first_tokens", "a", "a ", " ", "!")
def _(text, n, tmp):
    return lambda: trivia.first_tokens(iter(pieces(text)), n)


@case("trivia.find_answers", " ", "a ", "a")
def _(text, n, tmp):
    return lambda: trivia.find_answers(text, [f"a{text[: n // 2]}b", text[: n // 2] + "b"])


@case("squad.locate", "a ", "a", "a  ", " ")
def _(text, n, tmp):
    return lambda: squad.locate(f"x {text}c {text}", text + "b", 3)


@case("json_items.array_items", "1,", '"', "\\\\", "[", "a", "1", "1.", " ", "{},")
def _(text, n, tmp):
    files = [written(tmp, f'{{"data": [{quote}{text}', f"{len(quote)}.json") for quote in ("", '"')]

    def run():
        for file in files:
            with contextlib.suppress(InputError):
                deque(json_items.array_items(file, ("data",)), maxlen=0)

    return run


@case("lines.rows", "\t", "\n", "\r", "a\n", ",", '""', '"a",', '"\n', " ")
def _(text, n, tmp):
    file = written(tmp, text)

    def run():
        for delimiter in "\t,":
            with contextlib.suppress(InputError):
                deque(lines.rows(file, delimiter), maxlen=0)

    return run


@case("lines.json_lines", "{}\r", "[", " ", '{"a":')
def _(text, n, tmp):
    file = written(tmp, text)
    return lambda: deque(lines.json_lines(file), maxlen=0)


@case("ner.read", "a O\n", "a O\n\n", "a B-x\na I-y\n", "-DOCSTART- O\n\na O\n", "# a\n", "a ", "\t")
def _(text, n, tmp):
    file = written(tmp, text)
    return lambda: ner.read(file)


@case("tables", "a")
def _(text, n, tmp):
    count = n // 16
    texts = written(tmp, "".join(f"a,{number}\n" for number in range(count)), "a.csv")
    question = {"question": "a", "context": "b c", "answer": "c"}
    asked = written(tmp, "".join(json.dumps(question | {"id": i}) + "\n" for i in range(count)), "a.jsonl")

    def run():
        tables.read_texts(texts, 1, label=2)
        tables.read_questions(asked, id="id")

    return run


@case("squad metric, normalize", "a ", "the", "Σ", "'", "Σ'", " ", "a", "\u0130")
def _(text, n, tmp):
    return lambda: squad_metric.normalize(text)


@case("squad metric, answers")
def _(text, n, tmp):
    prediction, answers = "b " * n, [f"c{number}" for number in range(n // 8)]
    return lambda: squad_metric.exact_and_f1(prediction, answers)


@case("conlleval, one sentence", "B-a I-a ", "I-a I-b ")
def _(text, n, tmp):
    tags = text.split()
    return lambda: entities.report(entities.conlleval([tags], [tags[::-1]]))


@case("conlleval, types")
def _(text, n, tmp):
    tags = [[f"B-{number}"] for number in range(n // 8)]
    return lambda: (entities.report(entities.conlleval(tags, tags)), entities.sentence_counts(tags, tags))


@case("markup.shown", "<", "\x00")
def _(text, n, tmp):
    return lambda: markup.shown(text)


@case("terminal", "\x1b", "\n")
def _(text, n, tmp):
    return lambda: (printable(text), json_text([text]))


@case("arguments in messages", " seed=1", "=", "a", " `seed`", " a='")
def _(text, n, tmp):
    parser = Parser()
    parser.add_argument("--seed")
    return lambda: on_command_line(InputError(text, seed=1), parser)


@case("argparse's messages", "a", ", ", "argument --seed: ", "--seed ")
def _(text, n, tmp):
    def complain():
        with pytest.raises(SystemExit):
            Parser().error(f"argument --seed: {text}")

    return complain


@case("passages", " ", "a-", "a", "-", "a ", "\u2014")
def _(text, n, tmp):
    found = {"begin": n // 4, "end": len(text), "probability": 1.0}
    return lambda: (passage(text, n // 2, n // 2 + 1), answer._answer_text(found, text))


@case("lines of commands", "a", "\n", "a\n", "\r")
def _(text, n, tmp):
    file = written(tmp, text)
    return lambda: deque(cli_texts.text_lines(str(file)), maxlen=0)


@case("lines of tokenize", "a", "\n", "a\n", "\t", "\r")
def _(text, n, tmp):
    data = [piece.encode() for piece in pieces(text)]
    return lambda: [tokenize._halves(whole.split(b"\n"), "", 0) for whole in whole_lines(data, "a", False)]


@case("json_files.read_json", "[", '{"a":', "{},", '"a",', "1,", "1", " ")
def _(text, n, tmp):
    file = written(tmp, f'{{"a": [{text}')
    whole = written(tmp, json.dumps({str(number): [{}] for number in range(n // 16)}), "whole.json")
    return lambda: [seconds(functools.partial(read_json, one)) for one in (file, whole)]


@case("metrics of a run", '{"step": 1}\n', "\n", "{", "\u2028")
def _(text, n, tmp):
    written(tmp, text, runlog.METRICS)
    return lambda: runlog.read_metrics(tmp)


@case("names in many pickles")
def _(text, n, tmp):
    pickles = (f"cm\nn{number}\n." for number in range(n // 10))
    file = written(tmp, "".join(pickles))
    return lambda: listing.list_names(file)


@case("make_books.documents_of", " ", "\n", "\n ", "A", "CHAPTER I ", "1:1 ", "[", "a\n")
def _(text, n, tmp):
    make_books = SimpleNamespace(**runpy.run_path(GOLDEN / "make_books.py"))
    kinds = [make_books.Book("", "prose", r"(?:[A-Z][A-Z ,'-]+\.|(?:CHAPTER|SCENE) [IVX]+\.)")]
    kinds += [make_books.Book("", "verse", r"(?:\}  .*|\[BOOK.*)"), make_books.Book("", "bible")]
    return lambda: [make_books.documents_of(book, text + ".x") for book in kinds]


# The tokenizer in both engines: letters, spaces, marks that change places, sigmas that look at neighbours,
# what stands alone, what becomes more or nothing, special tokens and almost such; syllables to be composed.

LETTERS = ("a", "a ", "Σ'", "aΣ", "中", "\u0390", "\x00")
MARKED = ("\u0316\u0301", "a\u0301\u0316")
COMPOSED = ("\u1100\u1161\u11a8", "\ud800")
VOCAB = [*SPECIAL_TOKENS, "a", "##a", "##aa", "##aaaa", ".", "中", "##\u0301"]
CORES = ["python", *["c"] * native.available()]


def encoded(tokenizer, text):
    """What makes pieces of a text in both ways, without and with places."""
    return lambda: (tokenizer(text, special=True), tokenizer.encode_batch([text], offsets=True, special=True))


for core in CORES:

    @case(f"{core}, google", *LETTERS, *MARKED, " ", ".", "[MASK]", "[MAS")
    def _(text, n, tmp, core=core):
        return encoded(Tokenizer(VOCAB, core=core), text)

    @case(f"{core}, hf-slow", *COMPOSED, *MARKED)
    def _(text, n, tmp, core=core):
        rules = {"compat": "hf-slow", "lower_case": False, "never_split": ["aa"]}
        return encoded(Tokenizer(VOCAB, core=core, **rules), text)

    @case(f"{core}, longest match in one word", "a", "aab")
    def _(text, n, tmp, core=core):
        return encoded(Tokenizer(VOCAB, core=core, max_input_chars_per_word=10**9), text + "c")

    @case(f"{core}, counting", "a", "a ", " ", "a\n", "Σ'", "\u0316\u0301")
    def _(text, n, tmp, core=core):
        basic = BasicTokenizer()
        file = written(tmp, text)

        def run():
            count_words([text], basic, core=core, threads=1)
            count_files([file], basic, held_out=2, core=core, threads=1)

        return run

    @case(f"{core}, counting different words")
    def _(text, n, tmp, core=core):
        text = " ".join(f"{number:x}" for number in range(n // 8))
        return lambda: count_words([text], BasicTokenizer(), core=core, threads=1)


@case("tokenizer.json, added tokens")
def _(text, n, tmp):
    names = [f"[{number}]" for number in range(n // 16)]
    written(tmp, "\n".join(SPECIAL_TOKENS), "vocab.txt")
    written(tmp, json.dumps({"additional_special_tokens": names}), "special_tokens_map.json")
    added = {name: number for number, name in enumerate(names, len(SPECIAL_TOKENS))}
    written(tmp, json.dumps(added), "added_tokens.json")
    return lambda: formats.read(tmp)


# Words of a text that is tagged

WORD_TEXTS = (".", "a", "a ", "a-", "1,", "'s", "a.")


@case("words.word_spans", *WORD_TEXTS)
def _(text, n, tmp):
    tokenizer = Tokenizer(VOCAB)
    return lambda: words.word_spans(tokenizer, text)


@case("contexts.windows")
def _(text, n, tmp):
    ends = np.arange(1, n + 1)
    return lambda: contexts.windows(np.ones(n, np.int64), ends, 8)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_time_grows_with_the_input(name, tmp_path):
    assert is_linear(lambda n: CASES[name](n, tmp_path))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "planted",
    [
        lambda text: sum(len(text[at:].upper()) for at in range(0, len(text), 16)),
        lambda text: re.search("a*b", text),
    ],
)
def test_planted_quadratic_scanner_is_found(planted):
    assert not is_linear(lambda n: lambda: planted("a" * n), measurable=LEAST)
