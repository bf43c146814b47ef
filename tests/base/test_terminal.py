"""What reaches a terminal: no character of a file that would act there, from any command, in any form."""

import ast
import io
import json
import os
import re
import subprocess
import sys
import unicodedata

import pytest
from command import PATIENCE, ends_badly, notice  # noqa: F401 (a fixture)
from paths import PACKAGE
from small_tasks import OTHERS, small_config

from minibert import cli, hub
from minibert.base.terminal import (
    flush_errors,
    flush_output,
    json_text,
    listed,
    printable,
    printable_text,
    some_of,
)
from minibert.model.params import initialise
from minibert.tokenizer import SPECIAL_TOKENS
from minibert.training import runlog

# ESC, and the one byte of C1 for ESC [; a bell; direction and its isolates; what hides; another line end.
HOSTILE = ["\x1b]0;x\x07", "\x9b31m", "a\u202eb", "\u2066c\u2069", "d\u200be", "f\u2028g", "\u061ch", "\x7f"]
JOINERS = {"\u180e", "\u200c", "\u200d"}
SEEN = {chr(code) for code in (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)}
EVERY = list(map(chr, range(sys.maxunicode + 1)))
OF_NO_TEXT = ("Cc", "Cf", "Cs", "Zl", "Zp")
ACTING = {c for c in EVERY if unicodedata.category(c) in OF_NO_TEXT} - JOINERS - SEEN


def acts(text):
    """The characters of a text that a terminal might obey, but for line ends and tabs."""
    return [c for c in text if c in ACTING and c not in "\n\t"]


# the function


def test_control_and_hidden_characters_are_escaped_in_text_and_json():
    for character in ACTING:
        assert printable(f"a{character}b") == f"a{ascii(character)[1:-1]}b"
        assert printable_text(character) == (character if character in "\n\t" else printable(character))
        text = json_text(["a" + character], indent=None)
        assert not acts(text) and json.loads(text) == ["a" + character]


def test_letters_marks_numbers_signs_and_spaces_of_every_script_stay_as_they_are():
    kinds = {*map(unicodedata.category, EVERY)} - {*OF_NO_TEXT, "Cn"}
    seen = (c for c in EVERY if unicodedata.category(c) in kinds and c not in '"\\')
    text = "".join([*seen, *JOINERS, *SEEN])
    assert printable(text) == printable_text(text) == text
    assert json_text(text) == f'"{text}"'


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم",  # Persian
        "क्\u200dष",  # Hindi
        "ᠠ\u180eᠠ",  # Mongolian
        "\U0001f469\u200d\U0001f680 \U0001f44d\U0001f3fd ❤\ufe0f",
        "葛\U000e0100城",
        "12\xa0000 €",
        "naïve — “ok”…",
    ],
)
def test_words_of_any_language_stay_as_they_are(text):
    assert printable(text) == text
    assert json_text(text) == f'"{text}"'


def test_a_name_from_a_file_makes_no_line_and_no_column_of_its_own():
    assert printable("a\r\n\tb") == r"a\r\n\tb"


def test_sentences_about_progress_go_the_same_way(capsys):
    runlog.logger.info("Run 1, \x1b[31mred\u202e.\nNext")
    assert capsys.readouterr().err == "Run 1, \\x1b[31mred\\u202e.\nNext\n"


def test_errors_go_the_same_way_with_the_names_of_files_and_flags_in_them(capsys, tmp_path):
    name = str(tmp_path / "no\x1b[31m\u202e\nfile")
    for words in (["vocab", name, "--out", "o"], ["info", "--\x9b31m\u2066"]):
        assert not acts(ends_badly(capsys, 2, *words))


# the one way


def printing(source):
    """Lines of a source that print past `emit`: `print`, or a stream that is not only flushed."""
    nodes = list(ast.walk(ast.parse(source)))
    emitted = [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func) == "emit"]
    fine = [n.value for n in nodes if isinstance(n, ast.Attribute) and n.attr in ("flush", "fileno")]
    fine += [keyword.value for call in emitted for keyword in call.keywords]
    ways = ("print", "tqdm.write", "sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__", "os.write")
    return [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in ways and node not in fine
    ]


# Who may: the function itself; the handler of messages, above progress bars; and the one sentence that is
# ready for an abort of JAX's.
MAY_PRINT = {"base/terminal.py", "training/runlog.py", "engines/jax/cluster.py"}
MAY_PRINT |= {"core/__main__.py", "core/gradcheck/__main__.py"}  # which know nothing of the others
MAY_PRINT |= {f"course/{file}.py" for file in ("lesson", "running", "showing")}  # into notebooks
MAY_PRINT |= {"course/confined.py"}  # bytes of data, into a pipe that the judge reads


def test_nothing_prints_past_the_one_function():
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in PACKAGE.rglob("*.py")
        if (lines := printing(path.read_text(encoding="utf-8")))
    }
    assert found.keys() == MAY_PRINT, found


@pytest.mark.parametrize(
    "source",
    [
        "print(label)",
        "show = print",
        "functools.partial(print, flush=True)",
        "sys.stdout.write(label)",
        "out = sys.stdout",
        "print_to(sys.stderr)",
        "tqdm.write(label)",
        "def f():\n    import sys\n    sys.stderr.writelines([label])",
    ],
)
def test_a_planted_print_is_found(source):
    assert printing(source)
    assert not printing("emit(label, file=sys.stderr)\nsys.stdout.flush()\nsys.stdin.buffer.read()")


# the commands, on files that hold such characters


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A BERT whose pieces are hostile, all but the words of the texts below."""
    folder = tmp_path_factory.mktemp("models") / "hostile"
    pieces = [*SPECIAL_TOKENS, *OTHERS, *HOSTILE]
    config = small_config(vocab_size=len(pieces))
    hub.save_hf(folder, config, initialise(config, 0))
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8", newline="")
    return folder


@pytest.fixture(scope="module")
def finetuned(model, tmp_path_factory):
    """A function from a task and its rows to the folder of a model that was fine-tuned for one step."""

    def make(task, rows):
        folder = tmp_path_factory.mktemp(task)
        for split in ("train", "dev"):
            lines = [json.dumps(row) + "\n" for row in rows]
            (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
        words = ["finetune", task, "--model", str(model), "--data", str(folder), "--out", str(folder / "run")]
        assert cli.main([*words, *"--max-steps 1 --batch-size 4 --engine numpy --quiet".split()]) == 0
        return folder / "run"

    return make


def printed(capsys, *words):
    """What a command prints, as text and as JSON, both of them harmless."""
    capsys.readouterr()
    assert cli.main(list(map(str, words))) == 0
    text = capsys.readouterr()
    assert cli.main([*map(str, words), "--json"]) == 0
    as_json = capsys.readouterr().out
    assert not acts(text.out + text.err + as_json)
    return text.out, as_json


def test_pieces_of_a_vocabulary(model, capsys):
    text, as_json = printed(capsys, "fill-mask", "--model", model, "the film is [MASK]", "--top", "24")
    assert r"%  \x1b]0;x\x07" in text and len(text.splitlines()) == 24
    assert {*HOSTILE} <= json.loads(as_json)["masks"][0].keys()


def test_classes_of_a_text(finetuned, capsys):
    labels = ["\x1b[31mred\n100%  x", "\u202eb\tc"]
    rows = [{"text": f"the {word}", "label": labels[number % 2]} for number, word in enumerate(OTHERS)]
    run = finetuned("classify", rows)
    text, as_json = printed(capsys, "classify", "--model", run, "the film")
    assert sorted(line[9:] for line in text.splitlines()) == sorted(map(printable, labels))
    assert json.loads(as_json)["probabilities"].keys() == {*labels}
    text, _ = printed(capsys, "evaluate", "--model", run)
    assert r"\x1b[31mred\n100%  x" in text


def test_tags_and_entities_of_a_text(finetuned, capsys):
    row = {"words": ["the", "film"], "tags": ["B-\x1b[31m\n", "I-\x9b31m"]}
    run = finetuned("tag", [row] * 4)
    text, as_json = printed(capsys, "tag", "--model", run, "the\u202e film\x1b[2J")
    words, _, entities = text.partition("\n\n")
    assert len(words.splitlines()) == len(json.loads(as_json)["words"])
    assert len(entities.splitlines()) == len(json.loads(as_json)["entities"])
    text, _ = printed(capsys, "evaluate", "--model", run)
    assert r"f1 \x1b[31m\n " in text


def test_answers_and_the_passages_around_them(finetuned, capsys, tmp_path):
    context = "the \x1b[31mfilm\u202e is a \x9bjourney"
    run = finetuned("qa", [{"question": "the film", "context": context, "answer": context[4:13]}] * 4)
    file = tmp_path / "text.txt"
    file.write_text(context, encoding="utf-8")
    text, as_json = printed(capsys, "answer", "--model", run, "the \x1b[0mfilm", "--file", file, "--top", "3")
    assert r"\x1b[31mfilm\u202e" in text.replace(">>", "").replace("<<", "")
    assert json.loads(as_json)["question"] == "the \x1b[0mfilm"


def test_types_of_chunks_that_are_scored(capsys, tmp_path):
    (tmp_path / "tagged.txt").write_text("film B-\x1b[31m B-\x1b[31m\na B-\u202ex O\n", encoding="utf-8")
    text, as_json = printed(capsys, "score", "conll", tmp_path / "tagged.txt")
    assert r"\x1b[31m: precision" in text
    assert json.loads(as_json)["types"].keys() == {"\x1b[31m", "\u202ex"}


def test_texts_and_pieces_of_tokenize_vocab_and_data(model, capsys, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("the film\u202e is \x1b[31mvery a\u202eb\nit was one\n" * 9, encoding="utf-8")
    text, _ = printed(capsys, "tokenize", "--vocab", model, "--file", file)
    assert r"\u202e" in text
    printed(capsys, "vocab", file, "--report-on", model, "--held-out", "0")
    words = ["data", file, "--vocab", model, "--out", tmp_path / "shards", "--show", "4", "--no-nsp"]
    assert cli.main(list(map(str, words))) == 0
    shown = capsys.readouterr().out
    assert not acts(shown) and re.search(r"\[SEP\]", shown)


def test_of_many_names_the_first_are_listed_and_the_others_counted():
    names = ["a", "b", "c", "d"]
    said = ["a and 3 more", "a, b and 2 more", "a, b, c and 1 more", "a, b, c, d", "a, b, c, d"]
    assert [some_of(names, most) for most in range(1, 6)] == said


def test_the_last_of_several_names_has_its_word_before_it():
    said = [listed(names, "or") for names in ("a", "ab", "abc", "abcd")]
    assert said == ["a", "a or b", "a, b or c", "a, b, c or d"]


class Full:
    """A stream of its own that nobody can write to."""

    def __init__(self, ends=False):
        self.flushes, self.ends = 0, ends

    def flush(self):
        self.flushes += 1
        if self.ends:
            raise BrokenPipeError("nobody reads")

    def fileno(self):
        raise io.UnsupportedOperation("it is not a file")


def test_both_streams_are_flushed_and_only_the_output_may_fail(monkeypatch):
    for name, flush in (("stdout", flush_output), ("stderr", flush_errors)):
        stream = Full()
        monkeypatch.setattr(sys, name, stream)
        flush()
        assert stream.flushes == 1
    monkeypatch.setattr(sys, "stdout", Full(ends=True))
    monkeypatch.setattr(sys, "stderr", Full(ends=True))
    flush_errors()
    with pytest.raises(BrokenPipeError):
        flush_output()


def test_what_nobody_reads_is_discarded_and_not_written_at_the_end():
    code = "import sys; from minibert.base import terminal; terminal.emit('a' * 9)\n"
    code += "try: terminal.flush_output()\nexcept OSError: sys.exit(7)"
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writes, stderr=subprocess.PIPE, timeout=PATIENCE
    )
    os.close(writes)
    assert (done.returncode, done.stderr) == (7, b"")  # Python itself would end it with 120 and a sentence
