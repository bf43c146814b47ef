"""The command line: what it says, what it passes on, how it ends."""

import dataclasses
import errno
import importlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from command import (
    PATIENCE,
    ROOT,
    ends_badly,
    notice,  # noqa: F401 (a fixture)
    start,
    steps_done,
    wait_for_step,
)
from marks import seldom

from minibert import cli, engines
from minibert.api.runs import run_folder
from minibert.base.errors import InputError, RunError
from minibert.cli import pretrain as pretrain_command
from minibert.cli.info import information
from minibert.cli.shared.flags import given_fields
from minibert.cli.shared.parser import PURPOSES, commands
from minibert.data.documents import DOCUMENTS, format_of
from minibert.pretraining.options import PretrainOptions
from minibert.tokenizer import Tokenizer

COMMANDS = commands()
KINDS = "squad conll glue".split()  # of what is scored
STOPS = [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)]  # what is sent, and the status then
STOPS = [(getattr(signal, name), status) for name, status in STOPS if hasattr(signal, name)]
QUICK = "--vocab-size 200 --seq-length 16 --batch-size 8 --evaluations 1 --engine numpy --quiet".split()


@pytest.fixture(scope="module", autouse=True)
def nothing_is_ignored():
    """Whoever runs the tests may have SIGHUP ignored, as nohup has, and then so have all their processes."""
    before = [(number, signal.signal(number, signal.SIG_DFL)) for number, _ in STOPS[1:]]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def words_of(number, sentences):
    """A document of simple sentences about cats and dogs, another one for each number."""
    animals, deeds, places = (
        ("cat", "dog", "bird", "fish"),
        ("sat", "slept", "sang"),
        ("mat", "tree", "house"),
    )
    for i in range(sentences):
        n = number * 7 + i
        who, did, where = animals[n % 4], deeds[n // 2 % 3], places[n // 3 % 3]
        yield f"The {who} {did} by the old {where} of number {number + i}."


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Forty short documents in one file, one sentence a line."""
    path = tmp_path_factory.mktemp("corpus") / "animals.txt"
    path.write_text("\n\n".join("\n".join(words_of(n, 12)) for n in range(40)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """The folder of a finished run of three steps."""
    folder = tmp_path_factory.mktemp("runs") / "animals"
    assert cli.main(["pretrain", str(corpus), "--out", str(folder), "--steps", "3", *QUICK]) == 0
    return folder


def parse(*words):
    return cli.parse_arguments(["pretrain", *words])


# What the help says


@pytest.mark.parametrize("command", COMMANDS)
def test_help_describes_the_command_and_its_examples_parse(command, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    text = capsys.readouterr().out
    examples = re.findall(r"^  (minibert .+)$", text.split("examples:\n")[1], re.M)
    assert stop.value.code == 0
    assert len(examples) >= 2
    for example in examples:
        assert cli.parse_arguments(shlex.split(example)[1:]).run


def test_general_help_lists_every_command(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    for command, what in COMMANDS.items():
        assert re.search(rf"^  {command} +{re.escape(what)}$", text, re.M)
    page = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    rows = re.findall(r"^\| [a-z ]+ \| (`.*) \|$", page, re.M)
    assert [re.findall("`([a-z-]+)`", row) for row in rows] == [names.split() for names in PURPOSES.values()]


def test_help_fits_into_eighty_columns_but_for_examples(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for words in [[], *([command] for command in COMMANDS), *(["score", kind] for kind in KINDS)]:
        with pytest.raises(SystemExit):
            cli.main([*words, "--help"])
        body = capsys.readouterr().out.split("examples:\n")[0].split("\n\n", 1)[1]
        assert max(map(len, body.splitlines())) <= 80


def test_help_opens_and_closes_every_bracket(capsys):
    for words in [[], *([command] for command in COMMANDS), *(["score", kind] for kind in KINDS)]:
        with pytest.raises(SystemExit):
            cli.main([*words, "--help"])
        text = capsys.readouterr().out
        assert text.count("(") == text.count(")"), words


@pytest.mark.parametrize("command", ["pretrain", "vocab", "data"])
def test_help_names_every_format_of_a_text_and_what_is_read_without_one(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    about = re.search(r" CORPUS (text files.*?\(default: [^)]*\))", text)[1]
    formats = {format_of(Path("text" + suffix)) for suffix in re.findall(r"\.\w+", about)}
    assert formats == {*DOCUMENTS} and about.endswith("(default: the books in the package)")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_a_file_with_a_summary_its_flags_and_what_it_does(command):
    module = importlib.import_module(f"minibert.cli.{command.replace('-', '_')}")
    first = module.__doc__.splitlines()[0]
    assert COMMANDS[command] == first[0].lower() + first[1:].removesuffix(".") and module.add and module.run


def test_help_of_all_commands_opens_none_of_them():
    code = "import sys; from minibert import cli; sys.argv = ['minibert', '--help']; cli.main()"
    more = (
        "finally: print(*sorted(one for one in sys.modules if one == 'numpy' or one[:12] == 'minibert.cli'))"
    )
    done = subprocess.run([sys.executable, "-c", f"try:\n  {code}\n{more}"], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == (
        "minibert.cli minibert.cli.shared minibert.cli.shared.messages minibert.cli.shared.parser"
    )


@pytest.mark.parametrize(
    "words",
    ["evaluate {run}", "fill-mask {run} [MASK]", "score-text {run} a", "tag {run} a", "classify {run} a"],
)
def test_a_model_without_its_flag_is_asked_for(words, run, tmp_path, capsys):
    line = ends_badly(capsys, 2, *words.format(new=tmp_path / "new", run=run).split())
    assert "--model" in line


def test_texts_come_as_words_or_from_files_or_the_standard_input(run, tmp_path, monkeypatch, capsys):
    texts = ["The [MASK] sat.", "A [MASK] slept."]
    (tmp_path / "one.txt").write_text(f"{texts[0]}\n")
    (tmp_path / "two.txt").write_text(texts[1])
    monkeypatch.chdir(tmp_path)

    def printed(*words):
        assert cli.main(["fill-mask", "--model", str(run), *words, "--json"]) == 0
        return capsys.readouterr().out

    expected = printed(*texts)
    answers = [json.loads(line) for line in expected.splitlines()]
    assert [(answer["text"], len(answer["masks"])) for answer in answers] == [(text, 1) for text in texts]
    assert printed("--file", "one.txt", "--file", "two.txt") == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    assert printed("--file", "-") == expected
    both = ends_badly(capsys, 2, "fill-mask", "--model", str(run), "a", "--file", "one.txt")
    assert "Texts and --file were both given" in both
    assert "one.txt' is a file" in ends_badly(capsys, 2, "fill-mask", "--model", str(run), "one.txt")


# What the flags of pretrain mean


def test_every_option_of_a_run_has_a_flag():
    fields = {field.name for field in dataclasses.fields(PretrainOptions)}
    assert fields - set(vars(parse())) == {"bias_correction", "google_decay"}  # both are --optimizer


def test_without_flags_the_recipe_decides_everything():
    assert given_fields(PretrainOptions, parse()) == {}


def test_flags_become_options():
    line = (
        "a.txt --size mini b/ --steps 7 --lr 1e-3 --cased --no-nsp --mask-rates 0,0,1 --optimizer paper "
        "--seq-length 128:0.9,512:0.1 --save-every 5 --whole-word-mask --no-unigram-bias --dropout 0"
    )
    assert PretrainOptions(**given_fields(PretrainOptions, parse(*line.split()))) == PretrainOptions(
        corpus=("a.txt", "b/"),
        size="mini",
        steps=7,
        learning_rate=1e-3,
        lower_case=False,
        next_sentence=False,
        mask_rates=(0, 0, 1),
        bias_correction=False,
        google_decay=True,
        seq_length="128:0.9,512:0.1",
        checkpoint_steps=5,
        whole_word_mask=True,
        unigram_bias=False,
        dropout=0.0,
    )


def test_run_folders_are_named_after_the_text_and_the_latest_one_is_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no run in runs/ to resume"):
        run_folder(None, True, ["books/"])
    assert run_folder(None, False, []) == Path("runs/books")
    assert run_folder(None, False, ["texts/*.txt"]) == Path("runs/texts")
    assert run_folder(None, False, ["texts/letters.txt.gz", "b.txt"]) == Path("runs/letters")
    assert run_folder(None, False, ["."]) == run_folder(None, False, ["*.txt"]) == Path("runs", tmp_path.name)
    for age, name in ((200, "books"), (100, "letters"), (300, "books-2")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        path = tmp_path / "runs" / name / "training.json"
        path.touch()
        os.utime(path, (time.time() - age, time.time() - age))
    assert run_folder(None, False, ["books/"]) == Path("runs/books-3")
    assert run_folder(None, True, []) == Path("runs/letters")
    assert run_folder("elsewhere", True, []) == Path("elsewhere")


# How a command ends


def test_unknown_flag_is_one_line_and_status_2(capsys):
    line = ends_badly(capsys, 2, "pretrain", "--sise", "tiny")
    assert line == (
        "minibert pretrain: --sise is not known here (did you mean --size?); see minibert pretrain --help\n"
    )


def test_flags_are_not_abbreviated(capsys):
    ends_badly(capsys, 2, "pretrain", "--step", "3")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pretrain nowhere.txt --out {new}", "nowhere.txt"),
        ("pretrain --steps 0 --out {new}", "--steps 0"),
        ("pretrain --mask-rates 0.8,0.1 --out {new}", "--mask-rates"),
        ("pretrain --seq-length 16:0.4 --out {new}", "--seq-length 16:0.4"),
        ("pretrain --resume --out {new}", "There is no run in"),
        ("pretrain --threads 0 --out {new}", "--threads 0"),
        ("evaluate --model {new}", "{new}"),
        ("fill-mask --model {new} [MASK]", "{new}"),
        ("data --vocab {new} --out {new}", "{new}"),
        ("vocab {new} --out {new}", "{new}"),
        ("data {corpus} --vocab {run} --out {new} --show -2", "--show -2"),
        ("data {corpus} --vocab {run} --out {new} --show 99999999999999999999", "give 0 to 2,147,483,647"),
        ("data {corpus} --vocab {run} --out {new} --seq-length 3 --show 1", "--seq-length 3"),
        ("vocab {corpus} --out {new} --alphabet-limit 0", "--alphabet-limit 0"),
        ("vocab {corpus} --out {new} --unused -1", "--unused -1"),
        ("vocab {corpus} --out {new} --user-token Whale", "--user-token Whale would never be found"),
        ("vocab {corpus} --out {new} --user-token Whale", "'whale'; learn with --cased, spell it as"),
        ("vocab {corpus} --out {new} --user-token ##Est", "--user-token ##Est would never be found"),
        ("vocab {corpus} --out {new} --cased --user-token e-mail", "becomes 'e - mail'; spell it as"),
        ("vocab {corpus} --out {new} --user-token Éa!", "--user-token Éa! would never be found"),
        (
            "vocab {corpus} --out {new} --user-token [PAD]",
            "--user-token [PAD] is in the vocabulary already",
        ),
        ("vocab {corpus} --out {new} --held-out 0.7", "--held-out 0.7"),
        ("vocab {corpus} --out {new} --held-out 1e-30", "--held-out 1e-30 is not a possible share"),
        ("vocab {corpus} --out {new} --threads 0", "--threads 0"),
        ("vocab {corpus} --report-on {new}", "{new}"),
        (
            "vocab {corpus} --report-on {run} --vocab-size 90",
            "learns no vocabulary, so --vocab-size has no effect",
        ),
        ("vocab {corpus} --report-on {run} --unused 0 --user-token a", "so --unused and --user-token have"),
        ("vocab {corpus} --report-on {run} --objective likelihood", "so --objective has no effect"),
        ("gradcheck --operation nonsense", "nonsense"),
        ("gradcheck --operation gelu --operation nonsense", "nonsense"),
    ],
)
def test_bad_input_is_one_line_and_status_2_and_leaves_nothing(capsys, tmp_path, corpus, run, words, message):
    new = str(tmp_path / "new")
    line = ends_badly(capsys, 2, *words.format(new=new, corpus=corpus, run=run).split())
    assert line.startswith("minibert: ")
    assert message.format(new=new) in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (InputError("given wrongly"), 2, "given wrongly"),
        (RunError("went wrong"), 1, "went wrong"),
        (OSError(5, "Input error", "x.txt"), 1, "x.txt could not be read or written: Input error."),
        (
            OSError(28, "No space left on device"),
            1,
            "The output, or a file, could not be read or written: No space left on device.",
        ),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300),
            2,
            f"{'x' * 300} could not be read or written: File name too long.",
        ),
        (MemoryError(), 1, "there is not enough memory"),
        (
            RuntimeError("can't start new thread"),
            1,
            "another thread could not be started: memory or threads have run out",
        ),
    ],
)
def test_kind_of_error_decides_the_status(capsys, monkeypatch, error, status, told):
    def fail(*_):
        raise error

    monkeypatch.setattr("minibert.cli.info.information", fail)
    line = ends_badly(capsys, status, "info")
    assert line == f"minibert: {told}\n"


@pytest.mark.parametrize("error", [KeyError("a bug"), RuntimeError("a bug")])
def test_a_fault_in_the_program_is_not_disguised(monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr("minibert.cli.info.information", fail)
    with pytest.raises(type(error)):
        cli.main(["info"])


@pytest.mark.thorough
def test_output_cut_short_by_its_reader_makes_no_noise():
    process = start("info")
    process.stdout.close()
    assert process.wait(PATIENCE) == 1
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.parametrize("module", ["minibert.cli", "numpy"])
def test_ctrl_c_while_modules_are_loaded_is_status_130_without_a_word(module):
    code = f"""
import runpy, sys
class Finder:
    def find_spec(name, *more):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder)
runpy.run_module("minibert", run_name="__main__")
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, "info"], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_command_is_the_module():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert scripts == {"minibert": "minibert.__main__:main"}


@pytest.mark.parametrize(("sent", "status"), seldom(STOPS, STOPS[0]))
def test_signals_save_and_say_how_to_go_on_and_the_run_goes_on(corpus, tmp_path, sent, status):
    out, flags = tmp_path / "run", [flag for flag in QUICK if flag != "--quiet"]
    process = start("pretrain", corpus, "--out", out, "--steps", "100000", *flags, "--save-every", "1")
    wait_for_step(process, out, 1)
    process.send_signal(sent)
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == status, errors
    assert output == ""
    assert f"minibert pretrain --resume --out {out}\n" in errors
    assert "Traceback" not in errors
    done = max(int(path.stem.split("-")[1]) for path in (out / "checkpoints").iterdir())
    assert cli.main(["pretrain", "--out", str(out), "--resume", "--steps", str(done + 1), "--quiet"]) == 0
    assert json.loads((out / "report.json").read_text())["steps"] == done + 1


@pytest.mark.thorough
@pytest.mark.skipif(os.name != "posix", reason="such terminals are POSIX")
def test_a_run_whose_terminal_is_closed_saves(corpus, tmp_path):
    import fcntl
    import pty
    import termios

    out, flags = tmp_path / "run", [flag for flag in QUICK if flag != "--quiet"]
    mine, its = pty.openpty()
    process = start(
        *("pretrain", corpus, "--out", out, "--steps", "100000", *flags),
        **{"stdin": its, "stdout": its, "stderr": its, "start_new_session": True},
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(its)
    try:
        wait_for_step(process, out, 1)
        assert process.poll() is None
        os.close(mine)
        assert process.wait(PATIENCE) == 129
    finally:
        process.kill()
    kept = [int(path.stem.split("-")[1]) for path in (out / "checkpoints").iterdir()]
    assert max(kept) == steps_done(out) > 0


# What the commands do


def test_pretrain_prints_its_report_and_leaves_a_run_folder(corpus, tmp_path, capsys):
    out = tmp_path / "run"
    assert cli.main(["pretrain", str(corpus), "--out", str(out), "--steps", "2", *QUICK]) == 0
    text = capsys.readouterr().out
    assert "Held-out loss on [MASK] positions" in text
    assert str(out) in text
    files = {path.name for path in out.iterdir()}
    assert files >= {"config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json", "report.json"}
    assert f"Explorer: {out}/explorer.html" in text and f"Report: {out}/report.html" in text
    assert f"<title>{out.name}</title>" in (out / "explorer.html").read_text()


@pytest.mark.thorough
def test_pretrain_writes_no_explorer_of_a_large_model(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pretrain_command, "MOST_EXPLORED", 100)
    out = tmp_path / "run"
    assert cli.main(["pretrain", str(corpus), "--out", str(out), "--steps", "2", *QUICK]) == 0
    assert "Explorer" not in capsys.readouterr().out and not (out / "explorer.html").exists()


@pytest.mark.thorough
def test_a_model_that_no_page_can_hold_still_has_its_report(corpus, tmp_path, capsys, monkeypatch):
    def refused(*_):
        raise InputError("a weight has numbers beyond float16.")

    monkeypatch.setattr("minibert.explorer.show", refused)
    assert cli.main(["pretrain", str(corpus), "--out", str(tmp_path / "run"), "--steps", "2", *QUICK]) == 0
    printed = capsys.readouterr()
    assert "Held-out loss on [MASK] positions" in printed.out and "Explorer" not in printed.out
    assert "No explorer was written: a weight has numbers beyond float16." in printed.err


def test_pretrain_does_not_write_over_a_run(run, capsys):
    before = (run / "model.safetensors").read_bytes()
    line = ends_badly(capsys, 2, "pretrain", "--out", str(run), "--steps", "1")
    assert "--resume" in line
    assert (run / "model.safetensors").read_bytes() == before


def test_resume_refuses_another_model(run, capsys):
    line = ends_badly(capsys, 2, "pretrain", "--out", str(run), "--resume", "--size", "mini", "--quiet")
    assert "--size mini (the run has tiny)" in line


def test_evaluate_repeats_the_figures_of_the_report(run, capsys):
    few = ["--targets", "500"]  # as so short a run measures
    assert cli.main(["evaluate", "--model", str(run), "--engine", "numpy", "--json", *few]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures == json.loads((run / "report.json").read_text())["held_out"]


def test_evaluate_measures_another_text(run, corpus, capsys):
    assert (
        cli.main(["evaluate", "--model", str(run), str(corpus), "--targets", "50", "--seq-length", "12"]) == 0
    )
    out, err = capsys.readouterr()
    assert "unigram entropy of these targets" in out and "unigram entropy of the whole text" in out
    first, second, *_ = out.splitlines()
    assert first.split() == ["Measured", "on", str(corpus)]  # and not "held out", which it is not
    assert second.startswith("Loss on [MASK] positions  ") and "eld-out" not in out
    assert f"The model was trained on '{corpus}', so its loss there does not tell how it reads new" in err
    assert "; leave out CORPUS to measure the documents that were held out." in err


def test_evaluate_does_not_doubt_a_text_of_another_name(run, corpus, tmp_path, capsys):
    other = shutil.copy(corpus, tmp_path / "other.txt")
    words = ["--targets", "50", "--seq-length", "12", "--json", "--engine", "numpy"]
    assert cli.main(["evaluate", "--model", str(run), str(other), *words]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["corpus"] == [str(other)] and printed.err == ""


def test_evaluate_claims_nothing_of_a_text_that_only_its_name_tells(run, tmp_path, capsys, monkeypatch):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("shards"))
    options = json.loads((copy / "training.json").read_text("utf-8"))
    (copy / "training.json").write_text(json.dumps(options | {"corpus": ["t.txt"]}), "utf-8")
    (tmp_path / "t.txt").write_text("\n".join(words_of(0, 12)), "utf-8")
    monkeypatch.chdir(tmp_path)
    words = ["--targets", "5", "--seq-length", "12", "--engine", "numpy", "--quiet"]
    assert cli.main(["evaluate", "--model", "run", "t.txt", *words]) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "was trained on a text of this name, 't.txt'; if it was this one, its loss there does not" in err
    assert err.endswith("tell how it reads new text.")  # without held-out documents to measure instead


def test_evaluate_refuses_a_second_column_of_text(run, corpus, capsys):
    words = [str(corpus), "--column", "a", "--column", "b"]
    line = ends_badly(capsys, 2, "evaluate", "--model", str(run), *words)
    assert "--column names 2 columns, and the text is in one; name that alone." in line


def test_fill_mask_prints_as_many_guesses_as_asked(run, capsys):
    assert cli.main(["fill-mask", "--model", str(run), "The [MASK] sat by the [MASK].", "--top", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[MASK] 1"
    assert lines[4] == "[MASK] 2"
    assert len(lines) == 8
    assert all(re.fullmatch(r" *\d+\.\d\d%  \S+", line) for line in lines[1:4] + lines[5:])


def test_fill_mask_needs_a_mask(run, capsys):
    assert "has no [MASK]" in ends_badly(capsys, 2, "fill-mask", "--model", str(run), "The cat sat.")


def test_vocab_learns_pieces_that_the_tokenizer_loads(corpus, tmp_path, capsys):
    out = tmp_path / "vocabulary"
    words = ["vocab", str(corpus), "--out", str(out), "--vocab-size", "120", "--cased", "--unused", "2"]
    assert cli.main([*words, "--user-token", "[ANIMAL]", "--user-token", "whale"]) == 0
    tokenizer = Tokenizer.from_pretrained(out)
    assert capsys.readouterr().out.startswith(f"120 pieces in {out / 'vocab.txt'}\n")
    assert tokenizer.vocab_size == 120
    assert tokenizer.tokenize("The cat")[0].startswith("T")
    assert tokenizer.vocab[5:9] == ["[unused0]", "[unused1]", "[ANIMAL]", "whale"]
    assert tokenizer.tokenize("[ANIMAL] whale", special=True) == ["[ANIMAL]", "whale"]
    assert {path.name for path in out.iterdir()} == {
        "vocab.txt",
        "tokenizer_config.json",
        "tokenizer.json",
        "vocab-report.json",
    }


def test_vocab_reports_on_lines_that_were_held_out(corpus, tmp_path, capsys):
    out = tmp_path / "vocabulary"
    words = ["vocab", str(corpus), "--out", str(out), "--vocab-size", "60", "--held-out", "0.1", "--json"]
    assert cli.main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((out / "vocab-report.json").read_text())
    assert (report["objective"], report["vocab_size"]) == ("likelihood", 60)
    counted = report["words"]
    n_words = len(" ".join(corpus.read_text().split()).replace(".", " .").split())
    assert counted["learned_from"] + counted["held_out"] == n_words
    assert 0.05 < counted["held_out"] / n_words < 0.15
    assert report["others"]["frequency"]["vocab_size"] == 60
    assert 0 < report["held_out"]["nats_per_byte"] < 5


def test_vocab_without_comparison_or_held_out_text_learns_once(corpus, tmp_path, capsys, monkeypatch):
    from minibert.pretraining import preparation

    learn_vocab, objectives = preparation.learn_vocab, []

    def learn(*arguments, objective, **options):
        objectives.append(objective)
        return learn_vocab(*arguments, objective=objective, **options)

    monkeypatch.setattr(preparation, "learn_vocab", learn)
    for number, flag in enumerate(("--no-comparison", "--held-out=0", "--unused=0")):
        out = str(tmp_path / str(number))
        assert cli.main(["vocab", str(corpus), "--out", out, "--vocab-size", "60", flag]) == 0
    assert objectives == ["likelihood", "likelihood", "likelihood", "frequency"]
    assert "No line was held out" in capsys.readouterr().out


def test_vocab_is_the_same_by_every_core_and_number_of_threads(corpus, tmp_path):
    found = set()
    for core, threads in (("python", "1"), ("python", "3"), ("auto", "1"), ("auto", "3")):
        out = tmp_path / (core + threads)
        flags = ["--vocab-size", "90", "--core", core, "--threads", threads]
        assert cli.main(["vocab", str(corpus), "--out", str(out), *flags]) == 0
        found.add(tuple(file.read_bytes() for file in sorted(out.iterdir())))
    assert len(found) == 1


@pytest.mark.parametrize(("sent", "status"), STOPS)
def test_vocab_stopped_while_learning_leaves_nothing(corpus, tmp_path, monkeypatch, capsys, sent, status):
    from minibert.pretraining import preparation

    learn_vocab = preparation.learn_vocab

    def learn(*arguments, objective, **options):
        if objective == "frequency":  # the vocabulary itself is learnt, its report is not written
            signal.raise_signal(sent)
        return learn_vocab(*arguments, objective=objective, **options)

    monkeypatch.setattr(preparation, "learn_vocab", learn)
    out = tmp_path / "deep" / "vocabulary"
    assert cli.main(["vocab", str(corpus), "--out", str(out), "--vocab-size", "60"]) == status
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert {signal.getsignal(number) for number, _ in STOPS[1:]} == {signal.SIG_DFL}


@pytest.mark.thorough
@pytest.mark.skipif(os.name != "posix", reason="such signals are POSIX")
def test_sigterm_stops_features_that_wait_for_text_and_nothing_is_left(run, tmp_path):
    out = tmp_path / "new" / "v.npy"
    process = start("features", "--model", run, "--out", out, "--engine", "numpy", stdin=subprocess.PIPE)
    deadline = time.monotonic() + PATIENCE
    while not list(tmp_path.glob("new/.*.tmp")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 143
    assert process.communicate() == ("", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None], ids=["ignored", "their own"])
def test_what_others_do_at_sigterm_is_left_alone(handler, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "minibert.cli.info.information", lambda *_: seen.append(signal.getsignal(signal.SIGTERM)) or {"a": 1}
    )
    before = signal.signal(signal.SIGTERM, handler)
    try:
        assert cli.main(["info"]) == 0
        assert seen == [handler] and signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_vocab_tells_of_bytes_that_are_not_utf8_or_stops_at_them(tmp_path, capsys):
    text = tmp_path / "latin.txt"
    text.write_bytes(b"a cup of tea, a caf\xe9 cup\n" * 50)
    words = ["vocab", str(text), "--out", str(tmp_path / "out"), "--vocab-size", "30", "--held-out", "0"]
    line = ends_badly(capsys, 2, *words, "--strict")
    assert "latin.txt" in line and "19" in line
    assert cli.main(words) == 0
    assert capsys.readouterr().err.startswith("minibert: The text is not UTF-8 in 50 places;")


def test_vocab_reports_on_a_vocabulary_that_exists(corpus, run, capsys):
    assert cli.main(["vocab", "--report-on", str(run), str(corpus), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["vocab_size"] == Tokenizer.from_pretrained(run).vocab_size
    assert report["held_out"]["unknown_words"] == 0
    assert report["others"] == {}
    assert not (run / "vocab-report.json").exists()


def test_vocab_finds_a_file_in_place_of_its_folder_before_it_counts(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("minibert.pretraining.preparation.count_files", None)
    file = tmp_path / "taken"
    file.write_text("mine")
    for out in (file, file / "deeper"):
        line = ends_badly(capsys, 2, "vocab", str(corpus), "--out", str(out))
        assert f"'{file}' is a file, not a folder; choose another --out." in line
    assert file.read_text() == "mine"


def test_vocab_leaves_the_vocabulary_of_a_model_alone(corpus, run, capsys):
    before = (run / "vocab.txt").read_bytes()
    assert "choose another --out" in ends_badly(capsys, 2, "vocab", str(corpus), "--out", str(run))
    assert (run / "vocab.txt").read_bytes() == before


@pytest.mark.parametrize(
    "name", ["vocab.txt", "tokenizer.json", "tokenizer_config.json", "vocab-report.json"]
)
def test_vocab_does_not_write_over_another_vocabulary(name, corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("minibert.pretraining.preparation.count_files", None)  # found before the counting
    (tmp_path / name).write_text("mine")
    line = ends_badly(capsys, 2, "vocab", str(corpus), "--out", str(tmp_path))
    assert f"'{tmp_path}' already holds a vocabulary ({name}); remove it, or choose another --out" in line
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "name",
    ["bert_config.json", "bert_model.ckpt.index", "meta.json", "part.json", "00001-of-00002/part.json"],
)
def test_vocab_leaves_the_vocabulary_of_other_models_and_of_shards_alone(name, corpus, tmp_path, capsys):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    line = ends_badly(capsys, 2, "vocab", str(corpus), "--out", str(tmp_path))
    assert f"holds the {Path(name).name} of a model or of token shards" in line
    assert not (tmp_path / "vocab.txt").exists()


@pytest.mark.parametrize("words", [["vocab"], ["data"], ["data", "--vocab", "{run}"]], ids=" ".join)
def test_a_folder_that_cannot_be_written_is_found_before_the_text_is_read(
    words, corpus, run, tmp_path, monkeypatch, capsys
):
    def closed(**_):
        raise PermissionError(13, "Permission denied")

    for name in ("minibert.pretraining.preparation.count_files", "minibert.data.corpus.text_of"):
        monkeypatch.setattr(name, None)
    monkeypatch.setattr("minibert.base.files.tempfile.mkdtemp", closed)
    words = [word.format(run=run) for word in words]
    line = ends_badly(capsys, 2, *words, str(corpus), "--out", str(tmp_path / "new"))
    assert f"new' can't be made in '{tmp_path}' (Permission denied); choose another --out" in line


@pytest.mark.parametrize(
    ("words", "work", "instead"),
    [
        ("export --model {run} --out {taken}", "minibert.hub.load", "--out"),
        ("show {run} --out {taken}.html", "minibert.explorer.page.read_model", "--out"),
        ("features --model {run} --out {taken}.npy", "minibert.ask.inference.Bert.from_pretrained", "--out"),
        ("gradcheck --html {taken}", "minibert.gradcheck.sheet.proof_sheet", "--html"),
        ("course {taken}", "minibert.cli.course.read_json", "folder"),
    ],
)
@pytest.mark.parametrize("below", ["a", "b/a"])
def test_a_place_that_cannot_be_written_is_found_before_the_work(
    words, work, instead, below, run, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(work, None)
    file = tmp_path / "file"
    file.touch()
    line = ends_badly(capsys, 2, *words.format(run=run, taken=file / below).split())
    assert f"'{file}' is a file, not a folder; choose another {instead}." in line


def test_a_proof_sheet_is_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("minibert.gradcheck.sheet.proof_sheet", None)
    line = ends_badly(capsys, 2, "gradcheck", "--html", str(tmp_path))
    assert f"--html {tmp_path} is a folder; name a file in it." in line


def test_data_writes_shards_and_shows_instances(corpus, run, tmp_path, capsys):
    out = tmp_path / "shards"
    words = ["data", str(corpus), "--vocab", str(run), "--out", str(out), "--show", "2", "--seq-length", "24"]
    assert cli.main(words) == 0
    first, *shown = capsys.readouterr().out.split("\n\n")
    counts, layout = first.splitlines()
    assert counts.startswith("40 documents, 480 sentences, ")
    assert layout == (
        "Read as one sentence a line, a blank line between documents (sentences); "
        "to read it otherwise, choose a layout."
    )
    assert len(shown) == 2
    for text in shown:
        assert text.startswith("[CLS] ")
        assert re.search(r"\S+\{\S+\}", text)
        assert re.search(r"\((B follows A|B is from elsewhere)\)$", text.strip())


def test_data_as_json_has_the_same_counts(corpus, run, tmp_path, capsys):
    words = ["data", str(corpus), "--vocab", str(run), "--out", str(tmp_path / "shards"), "--show", "2"]
    found = []
    for _ in range(2):
        assert cli.main([*words, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    first, again = found
    assert (first["documents"], first["sentences"], first["part"]) == (40, 480, "1/1")
    assert len(first["instances"]) == 2 and first["missing_parts"] == ""
    assert again == first | {"was_there": True} and not first["was_there"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert f"{first['tokens']:,} tokens, {first['bytes'] / first['tokens']:.2f} bytes a token" in shown
    assert all(text in shown for text in first["instances"])


def test_data_refuses_a_seed_that_is_none(corpus, run, tmp_path, capsys):
    words = ["data", str(corpus), "--vocab", str(run), "--out", str(tmp_path / "shards"), "--seed", "-1"]
    assert cli.main(words) == 2
    assert "minibert: --seed -1 is negative; give 0 or more." in capsys.readouterr().err
    assert not (tmp_path / "shards").exists()


@pytest.mark.parametrize("command", ["data", "vocab"])
def test_quiet_shows_no_progress(command, corpus, tmp_path, monkeypatch, capsys):
    from minibert.pretraining import preparation

    shown, bar = [], preparation.bar
    monkeypatch.setattr(preparation, "bar", lambda show, **how: shown.append(show) or bar(show, **how))
    for number, quiet in enumerate(([], ["--quiet"])):
        assert cli.main([command, str(corpus), "--out", str(tmp_path / str(number)), *quiet]) == 0
        assert shown and set(shown) == {not quiet}
        shown.clear()
    assert capsys.readouterr().err == ""


def test_one_document_is_shown_without_next_sentences(run, tmp_path, capsys):
    text, out = tmp_path / "one.txt", tmp_path / "shards"
    text.write_text("The cat sat down.\nIt slept.\n" * 9)
    words = ["data", str(text), "--vocab", str(run), "--out", str(out), "--show", "1"]
    assert cli.main(words) == 2
    assert "give more documents (blank lines divide them) or set --no-nsp" in capsys.readouterr().err
    assert cli.main([*words, "--no-nsp"]) == 0
    assert "\n\n[CLS] " in capsys.readouterr().out


def test_gradcheck_prints_the_sheet_of_one_operation(capsys):
    assert cli.main(["gradcheck", "--operation", "gelu", "--dtype", "float64", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
    assert all(row["error"] <= row["bound"] and row["verdict"] == "ok" for row in rows)


def test_failed_gradcheck_is_status_1(monkeypatch, capsys):
    from minibert.gradcheck import sheet as gradcheck

    failed = gradcheck.Row("gelu", "numpy", "float64", "ugly", 1.0, 1e-12, "FAIL")
    monkeypatch.setattr(gradcheck, "proof_sheet", lambda *_, **__: [failed])
    assert cli.main(["gradcheck"]) == 1
    assert "1 of 1 checks FAIL" in capsys.readouterr().out


def test_info_tells_versions_engines_and_the_matrix_library(capsys):
    assert cli.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["engines"]["numpy"].startswith("ready")
    assert re.match(r"core in (C|Python), Unicode \d+\.\d\.\d", facts["tokenizer"])
    assert re.search(r", (1 thread|\d+ threads)(; |$)", facts["matrix library"])
    assert facts["corpus"].startswith("books.txt.xz")
    assert cli.main(["info"]) == 0
    assert capsys.readouterr().out.startswith("minibert ")


@pytest.mark.parametrize(("count", "said"), [(1, "1 thread"), (2, "2 threads")])
def test_info_counts_the_threads_of_the_matrix_library(monkeypatch, count, said):
    found = {"user_api": "blas", "internal_api": "a library", "version": "1.2", "num_threads": count}
    monkeypatch.setattr(engines, "blas_libraries", lambda: [found])
    assert information("numpy", 1)["matrix library"] == f"a library 1.2 (unknown), {said}"


# Numbers and streams that nothing can be done with


@pytest.mark.parametrize("flag", ["--steps", "--batch-size", "--max-positions", "--max-predictions-per-seq"])
def test_a_count_beyond_any_array_is_refused_before_anything_is_written(corpus, tmp_path, capsys, flag):
    number = "99999999999999999999"
    said = ends_badly(capsys, 2, "pretrain", str(corpus), "--out", str(tmp_path / "run"), flag, number)
    assert f"{flag} {number}" in said and "2,147,483,647" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [["gradcheck"], ["info"]])
def test_more_threads_than_any_machine_has_are_refused(capsys, command):
    assert "4,096" in ends_badly(capsys, 2, *command, "--threads", "99999999999999999999")


def test_a_negative_seed_of_gradcheck_is_refused(capsys):
    assert "--seed -1" in ends_badly(capsys, 2, "gradcheck", "--seed", "-1")


@pytest.mark.parametrize(
    "words",
    [
        ["pretrain", "CORPUS", "--steps", "1", "--out", ""],
        ["vocab", "CORPUS", "--out", ""],
        ["data", "CORPUS", "--vocab", "", "--out", "there"],
        ["predict", "--out", "there", "--model", ""],
        ["predict", "--out", "", "--model", "a"],
        ["pretrain", "CORPUS", "--steps", "1", "--out", "there", "--model", ""],
        ["vocab", "CORPUS", "--report-on", ""],
        ["score", "squad", "gold", "predictions", "--null-odds", ""],
        ["tag", "--model", "run", "--file", ""],
        ["tokenize", "--vocab", "there", "--file", ""],
        ["vocab", "", "--out", "there"],
        ["evaluate", "--model", "run", ""],
        ["score", "conll", "gold", ""],
    ],
    ids=" ".join,
)
def test_a_path_without_a_name_is_refused_and_nothing_is_written(
    words, corpus, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = [str(corpus) if word == "CORPUS" else word for word in words]
    before = words[words.index("") - 1]
    name = before if before.startswith("--") else {"gold": "PREDICTIONS"}.get(before, "CORPUS")
    assert f"{name} '' names no file or folder" in ends_badly(capsys, 2, *words)
    assert not list(tmp_path.iterdir())


def test_an_instruction_set_of_the_environment_that_there_is_not_is_refused(capsys, monkeypatch):
    pytest.importorskip("minibert.engines.cpp._kernels", reason="the kernels in C++ are not built")
    monkeypatch.setenv("MINIBERT_ISA", "mmx")
    assert "MINIBERT_ISA='mmx' can't run here; choose from" in ends_badly(capsys, 2, "info")


@pytest.mark.thorough
def test_closed_streams_are_no_failure(run):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = (
        f"{shlex.quote(sys.executable)} -m minibert fill-mask --model {run} 'the [MASK] sat' --engine numpy"
    )
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        done = subprocess.run(["sh", "-c", f"{words} {closed}"], env=environment, timeout=PATIENCE)
        assert done.returncode == 0
