"""What the commands have in common: hints, completion, options from a file, --json and --quiet."""

import argparse
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import PATIENCE, ends_badly, environment, notice  # noqa: F401 (a fixture)
from paths import ROOT

from minibert import cli
from minibert.base.errors import InputError
from minibert.cli import finetune, pretrain
from minibert.cli.shared.flags import given_fields
from minibert.cli.shared.parser import commands, parse_arguments
from minibert.finetuning.options import FinetuneOptions
from minibert.pretraining.options import PretrainOptions
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer

COMMANDS = commands()
# What answers at once, or whose results are its progress.
NO_PROGRESS = "classify compare export fill-mask gradcheck info score score-text show tag tokenize".split()
NO_PROGRESS += ["doctor", "verify"]
# Those with many flags, of which the usage shows the ones that one begins with; `course` has four lines.
SHORT_USAGE = (
    "answer compare data export extend features finetune pretrain reproduce show tag tokenize vocab".split()
)


def printed(capsys, *words):
    """What a command prints that ends in the parser, with status 0."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(words))
    captured = capsys.readouterr()
    assert stop.value.code == 0 and captured.err == ""
    return captured.out


# What is typed


def test_without_a_word_it_prints_its_help(capsys):
    assert printed(capsys) == printed(capsys, "--help")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("pretrian", "minibert: 'pretrian' is not a command (did you mean pretrain?); see minibert --help\n"),
        (
            "fillmask",
            "minibert: 'fillmask' is not a command (did you mean fill-mask?); see minibert --help\n",
        ),
        ("sing", "minibert: 'sing' is not a command; see minibert --help\n"),
        ("convert", "minibert: 'convert' is not a command (did you mean export?); see minibert --help\n"),
        (
            "score sqad",
            "minibert score: 'sqad' is not a kind (did you mean squad?); see minibert score --help\n",
        ),
        ("encode x", "minibert: 'encode' is not a command (did you mean features?); see minibert --help\n"),
        ("fit x", "'fit' is not a command (did you mean finetune?)"),
        ("train x", "'train' is not a command (did you mean pretrain or finetune?)"),
        ("info --model x", "minibert info: --model is not known here; see"),
        ("-- vocab a", "minibert: -- is not known here; see"),
        ("-v", "minibert: -v is not known here (did you mean --version?); see minibert --help\n"),
        (
            "finetune rte -o x -e 3 --lr -1e-3",
            "finetune: -o and -e are not known here (did you mean --out? Did you",
        ),
        (
            "export --to tf",
            "export: --to is not known here (--onnx writes model.onnx as well; the model itself",
        ),
        ("--verison", "--verison is not known here (did you mean --version?)"),
        ("--model m classify x", "the command comes first, and --model after it: minibert classify --model"),
        ("score squad a b --treshold=1", "--treshold is not known here (did you mean --threshold?)"),
        ("pretrain --learning_rate 1e-4", "--learning_rate is not known here (did you mean --lr?); see"),
        (
            "pretrain --hidden-size 128 --num-hidden-layers 2",
            "--hidden-size and --num-hidden-layers are not known here (did you mean --size? Such as "
            "2-128-2.)",
        ),
        (
            "finetune sst2 --out x --learning_rate 1 --max_seq_length 9 --xyzzy",
            "--learning_rate, --max_seq_length and --xyzzy are not known here (did you mean --lr? "
            "Did you mean --max-length?)",
        ),
        ("pretrain --lower-case", "minibert pretrain: --lower-case is not known here; see"),
        ("pretrain --bf16", "(did you mean --dtype bfloat16?)"),
        (
            "pretrain --epochs 3 --bf16",
            "say; give one of them. Did you mean --dtype bfloat16?)",
        ),
        (
            "classify --model m --data films.csv --engin numpy",
            "--data FILE --out DIR. Did you mean --engine?)",
        ),
        (
            "pretrain --epochs 3",
            "--epochs is not known here (did you mean --minutes? A run is as long as --steps or --minutes "
            "say; give one of them.)",
        ),
        (
            "classify --model m --data films.csv",
            "--data is not known here (for a table: minibert predict --model MODEL --data FILE --out DIR)",
        ),
        (
            "answer --model m --question Q --context C",
            "--question and --context are not known here (give the question and the text without flags: "
            "minibert answer --model MODEL QUESTION TEXT)",
        ),
        ("pretrain --batchsize 3", "--batchsize is not known here (did you mean --batch-size?)"),
        ("pretrain a.txt --xyzzy", "minibert pretrain: --xyzzy is not known here; see"),
    ],
)
def test_what_is_not_known_is_answered_with_what_may_be_meant(words, told, capsys):
    assert told in ends_badly(capsys, 2, *words.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("pretrain --steps 1e4", "--steps 1e4 is not a whole number; give one, such as 10000; see"),
        ("pretrain --steps many", "--steps many is not a whole number; give one; see"),
        ("pretrain --lr fast", "--lr fast is not a number; give one; see"),
        ("pretrain --lr -1e-3", "minibert: --lr -1e-3 is not valid; give a finite number above 0."),
        (
            "finetune rte --data d --model m --out x --lr -.1,-2e-3",
            "minibert: --lr -.1,-2e-3 is not valid; give finite numbers above 0.",
        ),
        (
            "finetune --out x --lr fast",
            "minibert finetune: --lr: 'fast' is not a learning rate; give a number",
        ),
        (
            "pretrain --engine cuda",
            "--engine cuda is not valid (did you mean jax?); choose from auto, numpy, cpp, numba, jax; see",
        ),
        ("pretrain --device cuda", "--device cuda is not valid (did you mean gpu?); choose from cpu, gpu"),
        ("features --model m --out x --pool median", "--pool median is not valid; choose from cls, mean,"),
        ("reproduce table9 --out x", "'table9' is not a table; choose from table1, table5,"),
        ("pretrain --optimizer adam", "--optimizer adam is not valid (did you mean adamw?)"),
        ("pretrain --dtype fp16", "--dtype fp16 is not valid (did you mean bfloat16?)"),
        ("export --model m --out x --dtype fp16", "--dtype fp16 is not valid (did you mean float16?)"),
        ("finetune --out x --sampling even", "--sampling even is not valid; give balanced; see"),
        (
            "pretrain --steps 3 --minutes 4",
            "minibert pretrain: --steps and --minutes can't be given together; leave one out; see",
        ),
        ("vocab", "minibert vocab: --out and --report-on are missing; give one of them; see"),
        ("predict", "minibert predict: --model and --out are missing; see"),
        ("classify -- --bert", "minibert classify: --model is missing; see"),
        ("export --model m", "minibert export: --out is missing; see"),
        ("show m --out", "minibert show: --out needs a value; see"),
        ("show m --out x --json=1", "minibert show: --json takes no value; give --json alone; see"),
        ("pretrain --fsdp=1", "--fsdp takes no value; give --fsdp or --no-fsdp alone; see"),
        ("extend --model m --out x --learn-from", "--learn-from needs a value, or more; see"),
    ],
)
def test_a_value_that_cannot_be_is_answered_with_those_that_can(words, told, capsys):
    assert told in ends_badly(capsys, 2, *words.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("finetune classify --lr 1e-3 1e-4 --out x", "put commas between several values: --lr 1e-3,1e-4)"),
        ("finetune classify --out my runs", "spaces: --out 'my runs')"),
        (
            "predict --data my data.csv --model m --out y",
            "(put quotation marks around a value with spaces: --data 'my data.csv'); see",
        ),
        (
            "predict --data=my data.csv --model m --out y",
            "'data.csv' is not expected here (put quotation marks around a value with spaces: --data "
            "'my data.csv')",
        ),
        ("predict --data d --out y --model=my model", "around a value with spaces: --model 'my model')"),
        (
            "finetune classify films.csv --out x",
            "'films.csv' is not expected here (did you mean --data films.csv?)",
        ),
        ("predict --model m --out x films.csv", "(did you mean --data films.csv?)"),
        (
            "predict --model m --out x warm",
            "'warm' is not expected here (predict reads a file; for one text: minibert classify --model "
            "MODEL TEXT)",
        ),
        ("gradcheck films.csv", "minibert gradcheck: 'films.csv' is not expected here (leave it out); see"),
        (
            "finetune films.csv --out x --model m",
            "'films.csv' is a file or folder, not a task; for a table of your own: minibert finetune "
            "classify --data films.csv.",
        ),
        (
            "finetune squad --out x --data d --model m",
            "TASK 'squad' is not known; did you mean squad1 or squad2?",
        ),
        (
            "finetune sentiment --out x --data d --model m",
            "TASK 'sentiment' is not known; did you mean classify?",
        ),
        (
            "finetune mrpc.csv --out x --data d --model m",
            "TASK 'mrpc.csv' is not known; for a table of your own give classify and --data mrpc.csv; for "
            "official files give mrpc.\n",
        ),
        (
            "finetune books.csv --out x --data d --model m",
            "'books.csv' is not known; for a table of your own give classify and --data books.csv.\n",
        ),
        (
            "classify --model m a fine film",
            "3 texts are not a pair; put quotation marks around a text with spaces, or give many texts with",
        ),
    ],
)
def test_a_word_that_does_not_belong_is_answered_with_where_it_does(
    words, told, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("films.csv").write_text("text,label\n")
    assert told in ends_badly(capsys, 2, *words.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("score conll ''", "FILE '' names no file or folder; give one; see"),
        ("evaluate --model ''", "--model '' names no file or folder; give one, or leave it out; see"),
        ("finetune rte --out ''", "--out '' names no file or folder; give one; see"),
        ("pretrain --out ''", "--out '' names no file or folder; give one, or leave it out; see"),
        ("pretrain ''", "CORPUS '' names no file or folder; give one, or leave it out; see"),
        ("course grade ''", "DIR|CHAPTER '' names no file or folder; give one, or leave it out; see"),
    ],
)
def test_an_empty_path_may_be_left_out_where_none_is_required(words, told, capsys):
    assert told in ends_badly(capsys, 2, *shlex.split(words))


def test_pages_of_models_take_those_after_a_flag_too():
    arguments = parse_arguments(["show", "a", "--out", "x.html", "b", "c"])
    assert arguments.models == ["a", "b", "c"]


@pytest.mark.parametrize(("command", "before"), [(pretrain, "--lr"), (finetune, "--optimizer")])
def test_options_have_their_place_in_the_help_and_the_optimizer_s_the_last(command, before):
    parser = argparse.ArgumentParser()
    command.add(parser)
    group = re.split(r"batches and optimizer:\n", parser.format_help())[1].partition("\n\n")[0]
    flags = re.findall(r"^  (--[a-z0-9-]+)", group, re.MULTILINE)
    last = "--warmup --weight-decay --clip-norm --beta1 --beta2 --adam-eps".split()
    assert flags[flags.index(before) + 1 :] == last


def test_there_are_few_enough_commands_to_find_one():
    assert len(COMMANDS) <= 24


def flags_of(parser):
    """The flags of a command, or of each kind that it has."""
    kinds = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if kinds:
        return set.intersection(*map(flags_of, kinds[0].choices.values()))
    return {flag for one in parser._actions for flag in one.option_strings}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_prints_has_json_and_what_shows_progress_has_quiet(command):
    from minibert.cli.shared.parser import build_parser

    (choices,) = (one for one in build_parser(command)._actions if one.metavar == "COMMAND")
    flags = flags_of(choices.choices[command])
    assert "--json" in flags
    assert "--quiet" in flags or command in NO_PROGRESS


@pytest.mark.parametrize("command", SHORT_USAGE)
def test_short_usage_fits_a_line_or_two_and_names_what_is_required(command):
    from minibert.cli.shared.parser import build_parser

    (choices,) = (one for one in build_parser(command)._actions if one.metavar == "COMMAND")
    parser = choices.choices[command]
    usage = parser.format_usage()
    assert usage.startswith(f"usage: minibert {command} ") and len(usage.splitlines()) <= 2
    always = re.sub(r"\[[^][]*\]", "", usage)
    required = [one.option_strings[0] for one in parser._actions if one.required and one.option_strings]
    assert [flag for flag in required if flag not in always] == []
    flags = {flag for one in parser._actions for flag in one.option_strings}
    shown = set(re.findall(r"--[a-z0-9-]+", usage))
    assert shown <= flags and usage.endswith("[...]\n" if flags - shown - {"-h", "--help"} else "]\n")


# What a shell completes


def completed(script, *words):
    """What bash offers for the last of some words."""
    code = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_minibert; echo "${COMPREPLY[*]}"'
    command = ["bash", "-c", code, script, "minibert", *words]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="a shell that not every machine has")
def test_bash_completes_commands_flags_choices_tasks_and_folders(tmp_path, monkeypatch, capsys):
    script = tmp_path / "completion.bash"
    script.write_text(printed(capsys, "--print-completion", "bash"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    assert completed(script, "") == {*COMMANDS}
    assert completed(script, "pre") == {"predict", "pretrain"}
    assert completed(script, "pretrain", "--siz") == {"--size"}
    assert completed(script, "pretrain", "--engine", "num") == {"numpy", "numba"}
    assert completed(script, "finetune", "hella") == {"hellaswag", "hellaswag-dev"}
    assert completed(script, "score", "sq") == {"squad"}
    assert completed(script, "fill-mask", "--model", "b") == {"books"}
    assert completed(script, "fill-mask", "--model", "c") == set()  # a file, and a model is a folder
    assert completed(script, "vocab", "--report-on", "c") == {"completion.bash"}


def test_zsh_has_a_script_of_its_own_that_it_can_read(tmp_path, capsys):
    text = printed(capsys, "--print-completion", "zsh")
    assert text.startswith("#compdef minibert\n") and "--next-sentence" not in text
    assert "'--learning-rate" not in text and "--lr" in text
    if shell := shutil.which("zsh"):
        (tmp_path / "_minibert").write_text(text)
        subprocess.run([shell, "-n", tmp_path / "_minibert"], check=True)


FULL = "/dev/full"
# Every way out: help, a version, a completion, a result, words that are refused, a file that is not there.
WAYS_OUT = [
    ("", 0),
    ("--help", 0),
    ("--version", 0),
    ("show -h", 0),
    ("--print-completion bash", 0),
    ("info --json", 0),
    ("pretrain --nope", 2),
    ("fill-mask --model nowhere text", 2),
]
has_full_disk = pytest.mark.skipif(not Path(FULL).exists(), reason="a disk that is full without being so")


def ended(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **variables):
    """The status of a command in a process of its own, and what its error stream has."""
    command = [sys.executable, "-m", "minibert", *words.split()]
    process = {"env": environment() | variables, "stdin": subprocess.DEVNULL, "text": True}
    done = subprocess.run(command, stdout=stdout, stderr=stderr, timeout=PATIENCE, **process)
    return done.returncode, done.stderr


@pytest.mark.representatives(words=["--help", "fill-mask --model nowhere text"])
@has_full_disk
@pytest.mark.parametrize(("words", "status"), WAYS_OUT)
def test_full_disk_is_reported_in_one_line(words, status):
    with open(FULL, "w") as full:
        found, errors = ended(words, stdout=full)
    assert found == (status or 1)
    assert errors.startswith("minibert") and errors.count("\n") == 1
    assert ("No space left on device" in errors) == (status == 0)


@has_full_disk
def test_full_disk_is_reported_without_buffering():
    with open(FULL, "w") as full:
        status, errors = ended("--help", stdout=full, PYTHONUNBUFFERED="1")
    assert status == 1
    assert errors.startswith("minibert: ") and errors.count("\n") == 1


@pytest.mark.representatives(words="--help")
@has_full_disk
@pytest.mark.parametrize(("words", "status"), WAYS_OUT)
def test_full_error_stream_changes_no_status(words, status):
    with open(FULL, "w") as full:
        if status:
            assert ended(words, stderr=full) == (status, None)
        else:
            assert ended(words, stdout=full, stderr=full) == (1, None)


@pytest.mark.representatives(words=["--help", "fill-mask --model nowhere text"])
@pytest.mark.parametrize(("words", "status"), WAYS_OUT)
def test_closed_pipe_is_no_error_to_tell(words, status):
    reading, writing = os.pipe()
    os.close(reading)
    found, errors = ended(words, stdout=writing)
    os.close(writing)
    assert found == (status or 1)
    assert errors == "" or status == 2


@pytest.mark.thorough
def test_commands_need_no_environment(tmp_path):
    """Neither a locale nor a terminal, nor a home that can be written to, nor `PATH`."""
    command = [sys.executable, "-m", "minibert", "info", "--json"]
    bare = {"PYTHONPATH": str(ROOT)}
    for variables in ({}, {"HOME": "/nowhere", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        done = subprocess.run(command, env=bare | variables, capture_output=True, timeout=PATIENCE)
        assert (done.returncode, done.stderr) == (0, b"")
        assert json.loads(done.stdout)["minibert"]


def test_there_is_no_completion_for_other_shells(capsys):
    assert "--print-completion fish is not valid; choose from bash, zsh;" in ends_badly(
        capsys, 2, "--print-completion", "fish"
    )


# --quiet


@pytest.mark.parametrize(
    ("words", "function"),
    [
        ("extend --model m --out x --n 3", "pretraining.extension.extend"),
        ("evaluate --model m", "pretraining.predict.evaluate"),
        ("predict --model m --out x", "finetuning.run.predict"),
    ],
)
def test_progress_is_shown_unless_it_should_be_quiet(words, function, tmp_path, monkeypatch):
    class Enough(Exception):
        pass

    def note(*_, show, **__):
        shown.append(show)
        raise Enough

    shown = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"minibert.{function}", note)
    for flags in ([], ["--quiet"], ["--quiet", "--json"]):
        with pytest.raises(Enough):
            cli.main([*words.split(), *flags])
    assert shown == [True, False, False]
    if "predict" not in words:  # which shows its progress beside JSON
        with pytest.raises(Enough):
            cli.main([*words.split(), "--json"])
        assert shown[-1] is False


# --config


def configured(tmp_path, command, options, fields, *words):
    """The options of a run that --config begins."""
    (tmp_path / "mine.json").write_text(json.dumps(fields))
    arguments = cli.parse_arguments([command, "--config", str(tmp_path / "mine.json"), *words])
    return options(**given_fields(options, arguments))


def test_the_options_of_a_run_are_those_of_another_with_flags_on_top(tmp_path):
    stored = PretrainOptions(
        ("a.txt",), size="mini", steps=70, seq_length="64", mask_rates=(0, 0, 1)
    ).resolved()
    stored.save(tmp_path / "training.json")
    fields = json.loads((tmp_path / "training.json").read_text())
    assert configured(tmp_path, "pretrain", PretrainOptions, fields).resolved() == stored
    words = ("b.txt", "--minutes", "3", "--optimizer", "paper")
    found = configured(tmp_path, "pretrain", PretrainOptions, fields, *words)
    assert (found.corpus, found.minutes, found.steps, found.size) == (("b.txt",), 3.0, None, "mini")
    assert found.google_decay and not found.bias_correction and found.seq_length == "64"


def test_a_config_file_may_have_some_of_them(tmp_path):
    fields = {"task": "rte", "engine": "numpy", "learning_rates": [1e-5], "data": "x"}
    words = ("--data", "glue", "--model", "m", "--out", "o")
    found = configured(tmp_path, "finetune", FinetuneOptions, fields, *words)
    expected = FinetuneOptions("rte", "glue", "m", engine="numpy", learning_rates=(1e-5,))
    assert found == expected


def test_a_file_in_toml_has_the_same_options(tmp_path):
    (tmp_path / "mine.toml").write_text(
        '# for RTE\ntask = "rte"\nengine = "numpy"\nlearning_rates = [1e-5]\nmax_length = 64\n'
    )
    words = ("--data", "glue", "--model", "m", "--out", "o")
    arguments = cli.parse_arguments(["finetune", "--config", str(tmp_path / "mine.toml"), *words])
    found = FinetuneOptions(**given_fields(FinetuneOptions, arguments))
    assert found == FinetuneOptions("rte", "glue", "m", engine="numpy", learning_rates=(1e-5,), max_length=64)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("steps = 3\nsteps = 4", "mine.toml can't be read as TOML (Cannot overwrite a value"),
        ("steps: 3", "mine.toml can't be read as TOML (Expected '=' after a key"),
        ("stpes = 3", "mine.toml: 'stpes' is not an option of this command; did you mean 'steps'?"),
        ("steps = 2020-01-01", "mine.toml: 'steps' is datetime.date(2020, 1, 1), expected a whole number"),
        ("[steps]\na = 3", "mine.toml: 'steps' is {'a': 3}, expected a whole number or null; correct it."),
        ("# " + "x" * (1 << 20), "mine.toml has more than 1 MiB, too many for such a file; correct it."),
    ],
)
def test_a_file_in_toml_that_can_not_be_used_is_refused(text, told, tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(text)
    words = ("pretrain", "--config", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "run"))
    assert told in ends_badly(capsys, 2, *words)
    assert not (tmp_path / "run").exists()


def test_what_has_its_default_value_is_as_if_it_was_not_given(tmp_path):
    FinetuneOptions("rte", "glue", "m").save(tmp_path / "finetune.json")
    arguments = cli.parse_arguments(["finetune", "--config", str(tmp_path / "finetune.json"), "--out", "o"])
    assert {"width", "span_weight", "engine"}.isdisjoint(given_fields(FinetuneOptions, arguments))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"stpes": 3}, "mine.json: 'stpes' is not an option of this command; did you mean 'steps'?"),
        ({"lr": 3}, "mine.json: 'lr' is not an option of this command; did you mean 'learning_rate'?"),
        (
            {"batch-size": 3},
            "mine.json: 'batch-size' is not an option of this command; did you mean 'batch_size'?",
        ),
        ({"xyzzy": 3}, "mine.json: 'xyzzy' is not an option of this command; leave it out."),
        ({"steps": "3"}, "mine.json: 'steps' is '3', expected a whole number or null; correct it."),
        ({"steps": 0}, "--steps 0 is not valid; give a whole number of at least 1."),
    ],
)
def test_what_is_no_option_is_refused_with_what_may_be_meant(fields, told, tmp_path, capsys):
    (tmp_path / "mine.json").write_text(json.dumps(fields))
    words = ("pretrain", "--config", str(tmp_path / "mine.json"), "--out", str(tmp_path / "run"))
    assert ends_badly(capsys, 2, *words).endswith(f"{told}\n")
    assert not (tmp_path / "run").exists()


def test_a_missing_config_or_one_beside_resume_is_refused(tmp_path, capsys):
    words = ("pretrain", "--config", str(tmp_path / "no.json"), "--out", str(tmp_path / "run"))
    assert f"There is no file '{tmp_path / 'no.json'}'; check its name." in ends_badly(capsys, 2, *words)
    line = ends_badly(capsys, 2, *words, "--resume")
    assert "--config is for a new run, and --resume keeps the old ones; leave one of them out." in line


def test_options_in_python_come_from_a_file_as_well(tmp_path):
    (tmp_path / "x.json").write_text('{"steps": 3}')
    assert PretrainOptions.configured(tmp_path / "x.json", {"minutes": 1.0}) == {
        "steps": None,
        "minutes": 1.0,
    }
    (tmp_path / "x.json").write_text('["steps"]')
    with pytest.raises(InputError, match="x.json"):
        PretrainOptions.configured(tmp_path / "x.json", {})


# What waits for somebody to type


class Bytes(io.BytesIO):
    """What stands behind a standard input."""

    terminal = True

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_a_waiting_command_says_so_at_a_terminal_only(terminal, tmp_path, monkeypatch, capsys):
    Tokenizer([*SPECIAL_TOKENS, "a", "b"]).save_pretrained(tmp_path)
    given = Bytes(b"a b\n")
    given.terminal = terminal
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(given))
    assert cli.main(["tokenize", "--vocab", str(tmp_path), "--ids"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "2 5 6 3\n"
    hint = "minibert: reading texts from the terminal, one per line; end with Ctrl-D\n"
    assert captured.err == hint * terminal


@pytest.mark.parametrize("command", ["fill-mask", "answer"])
def test_other_commands_say_so_too(command, tmp_path, monkeypatch, capsys):
    from minibert.cli.answer import _text
    from minibert.cli.shared.texts import text_lines

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Bytes(b"a b\n")))
    if command == "answer":
        assert _text("-") == "a b\n"
        assert capsys.readouterr().err == "minibert: reading the text from the terminal; end with Ctrl-D\n"
    else:
        assert list(text_lines("-")) == ["a b"]
        assert "one per line; end with Ctrl-D" in capsys.readouterr().err
