"""What reads files, each with a genuine one: for tests/test_readers.py and `make fuzz-readers`."""

import bz2
import gzip
import json
import lzma
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from hashlib import sha256
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import google_folder
import numpy as np
import pytest
import small_entities
from paths import TESTS
from safetensors.numpy import save_file
from small_corpus import write_corpus
from small_tasks import write_model, write_table

from minibert import cli, hub
from minibert.api.loading import load
from minibert.api.runs import Run
from minibert.api.texts import TextClassifier
from minibert.ask.inference import Bert
from minibert.base.model_names import MODULES_FILE
from minibert.base.options import other_command
from minibert.data import choice, glue, ner, squad, stand_ins as pairs, tables, trivia
from minibert.data.corpus import sentences
from minibert.data.shards.joined import link_shards, open_shards, vocabulary_of
from minibert.experiments.cells import Cell, Plan
from minibert.experiments.comparison import read_run
from minibert.experiments.runner import Results, _check_folder
from minibert.experiments.scales import SCALES
from minibert.experiments.verdicts import Outcomes
from minibert.finetuning import sweep
from minibert.finetuning.best import stored_epoch
from minibert.finetuning.examples import trained_texts
from minibert.finetuning.foreign import read_foreign
from minibert.finetuning.frozen.activations import stored_vectors
from minibert.finetuning.frozen.feature_tagger import FeatureTagger
from minibert.finetuning.models import Finetuned
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.hub.checkpoint import checkpoint_path, latest, save_checkpoint
from minibert.hub.sentence_transformers import ENCODER_FILE, module_files, read_modules, write_modules
from minibert.model.params import Head, initialise
from minibert.pretraining import evaluation
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain
from minibert.reports import doctor
from minibert.reports.doctor import Record, examine
from minibert.reports.results import report_text
from minibert.tasks.stored import TaskFile
from minibert.tasks.submissions import pack
from minibert.tasks.tagging import Tagging, sentence_bounds
from minibert.tokenizer import SPECIAL_TOKENS, BasicTokenizer, Tokenizer
from minibert.tokenizer.counting import count_files
from minibert.training.runlog import read_metrics
from minibert.verification import verify

SHARDS = ("meta.json", "part.json", "tokens.bin", "sentences.bin", "documents.bin")
GLUE = ("SST-2", "QQP", "QNLI")
try:
    from compression import zstd
except ImportError:
    zstd = pytest.importorskip("backports.zstd")
PACKED = ("txt.xz", "txt.bz2", "txt.zst")


class Reader(NamedTuple):
    """A file of the folder of genuine ones, and what reads it."""

    file: str
    read: Callable[[Path], Any]  # called with the folder


# The genuine files


def write_genuine(at: Path, run: Path) -> Path:
    """Make a folder with one of everything; `run` is that of a finished fine-tuning."""
    shutil.copytree(TESTS / "fixtures" / "tasks", at)
    write_texts(at)
    prepare_experiment(at)
    write_models(at)
    write_tasks(at)
    shutil.copytree(run, at / "tuned")
    command("export", "--model", at / "tuned", "--out", at / "handed")
    write_runs(at)
    write_estimators(at)
    write_verified(at)
    (at / "rte.toml").write_text('# for RTE\ntask = "rte"\nepochs = 4.0\nlearning_rates = [3e-5, 2e-5]\n')
    for name, other in (("tuned", "again"), ("pretrained", "other")):
        shutil.copytree(at / name, at / other)
    return at


def prepare_experiment(at: Path) -> None:
    """Make the text of an experiment ready, or see that it is."""
    _check_folder(at / "experiment")
    Plan(at / "experiment", SCALES["smoke"], text=(str(at / "animals.txt"),)).prepare_text(show=False)


def run_shown(folder: Path) -> tuple[str, str, Any]:
    """All that a finished run says of itself."""
    run = Run.open(folder)
    return repr(run), str(run), run._repr_html_()


def write_estimators(at: Path) -> None:
    """A classifier that was saved, and one whose fit was interrupted."""
    config, _, _ = hub.load(at / "model")
    params = initialise(config, 0, head=Head("classify", 2))
    TextClassifier.of(params, Tokenizer.from_pretrained(at / "model"), [0, 1], 16).save(at / "saved")
    (at / "begun" / "examples").mkdir(parents=True)
    (at / "begun" / "finetune.json").write_text("{}")
    (at / "begun" / "examples" / "train.jsonl").write_text('{"text": "a", "label": "x"}\n')


def write_texts(at: Path) -> None:
    text = write_corpus(at / "animals.txt", 6, 4).read_bytes()
    (at / "animals.txt.gz").write_bytes(gzip.compress(text))
    (at / "animals.txt.xz").write_bytes(lzma.compress(text))
    (at / "animals.txt.bz2").write_bytes(bz2.compress(text))
    (at / "animals.txt.zst").write_bytes(zstd.compress(text))
    shutil.copy(TESTS / "fixtures/corpora/wiki.xml", at)


def write_models(at: Path) -> None:
    folder = write_model(at / "model")
    config, params, _ = hub.load(folder)
    google_folder.write(at / "tf", config, params)
    shutil.copy(at / "tf/bert_model.ckpt.index", at / "tf/other.index")
    (at / "tf/bert_model.ckpt.index").rename(at / "tf/some.index")
    (at / "tf/bert_model.ckpt.data-00000-of-00001").rename(at / "tf/some.data-00000-of-00001")
    (at / "tf/checkpoint").write_text('model_checkpoint_path: "some"\n')
    hub.save_hf(at / "half", config, params, dtype="bfloat16")
    (at / "divided").mkdir()
    shutil.copy(folder / "config.json", at / "divided")
    shutil.copy(folder / "model.safetensors", at / "divided/model-1.safetensors")
    names = list(hub.to_hf(params))
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "model-1.safetensors")}
    (at / "divided/model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("hf_tiny.bin", "hf_tiny_older.bin"):
        (at / name).mkdir()
        shutil.copy(TESTS / "golden/hf_tiny/config.json", at / name)
        shutil.copy(TESTS / "golden" / name, at / name / "pytorch_model.bin")
    write_model(at / "asked", Head("span", 2))
    TaskFile("squad1", (), 24).save(at / "asked")
    write_model(at / "theirs", Head("classify", 2))
    write_sentence_models(at)
    write_vocabularies(at, folder)
    save_checkpoint(
        checkpoint_path(at / "checkpoints", 12),
        params,
        SimpleNamespace(m=params.flat, v=params.flat, updates=12),
        {"step": 12, "position": [16, 0, 3], "seconds": 1.25, "plan": {"total_steps": 40}},
    )


def write_sentence_models(at: Path) -> None:
    """As sentence-transformers leaves them: with a dense layer, and with a mix of layers and no lengths."""
    for name, kind in (("sentences", "Dense"), ("layered", "WeightedLayerPooling")):
        folder = write_model(at / name)
        write_modules(folder, 16)
        modules = json.loads((folder / MODULES_FILE).read_text())
        added = {"idx": 2, "name": "2", "path": f"2_{kind}", "type": f"sentence_transformers.models.{kind}"}
        (folder / MODULES_FILE).write_text(json.dumps([*modules, added]))
        (folder / f"2_{kind}").mkdir()
    (at / "layered" / ENCODER_FILE).unlink()
    width = hub.load(at / "sentences")[0].H
    fields = {"activation_function": "torch.nn.modules.activation.Tanh", "bias": True}
    (at / "sentences/2_Dense/config.json").write_text(json.dumps(fields))
    tensors = {"linear.weight": np.ones((3, width), np.float32), "linear.bias": np.zeros(3, np.float32)}
    save_file(tensors, at / "sentences/2_Dense/model.safetensors")


def write_vocabularies(at: Path, folder: Path) -> None:
    """As other libraries leave them: without `vocab.txt`, with tokens that were added later in two ways."""
    (at / "fast").mkdir()
    shutil.copy(folder / "tokenizer.json", at / "fast")
    vocab = "\n".join([*SPECIAL_TOKENS, "a", "b", ""])
    for name in ("slow", "slower"):
        (at / name).mkdir()
        (at / name / "vocab.txt").write_text(vocab)
    token = {"content": "[X]", "special": True, "single_word": False}
    added = {"added_tokens_decoder": {"7": token}, "additional_special_tokens": ["[X]"]}
    (at / "slow/tokenizer_config.json").write_text(json.dumps(added | {"do_lower_case": False}))
    (at / "slower/added_tokens.json").write_text(json.dumps({"[X]": 7}))
    special = {"additional_special_tokens": ["[X]"], "unk_token": {"content": "[UNK]"}}
    (at / "slower/special_tokens_map.json").write_text(json.dumps(special))


def write_tasks(at: Path) -> None:
    rows = [("a good film", "1"), ("a dull film", "0"), ("a warm one", "1")]
    write_table(at / "SST-2/dev.tsv", ("sentence", "label"), rows)
    (at / "own.csv").write_text('text,label\n"a film, good",1\na dull one,0\n')
    (at / "own.jsonl").write_text("".join(json.dumps({"text": a, "label": b}) + "\n" for a, b in rows))
    words = [{"words": ["a", "b"], "tags": ["O", "B-X"]}, {"words": ["c"], "tags": ["O"]}]
    (at / "tags.jsonl").write_text("".join(json.dumps(row) + "\n" for row in words))
    answers = {"text": ["Ann"], "answer_start": [0]}
    question = {"id": "q", "question": "who?", "context": "Ann is here.", "answer": answers}
    (at / "questions.jsonl").write_text(json.dumps(question) + "\n")
    swag = {"ind": 1, "ctx_a": "He runs.", "ctx_b": "he", "endings": list("abcd"), "label": 2}
    (at / "hellaswag.jsonl").write_text(json.dumps(swag) + "\n")
    copa = {"premise": "It rains.", "choice1": "wet", "choice2": "dry", "question": "effect", "idx": 0}
    (at / "copa.jsonl").write_text(json.dumps(copa) + "\n")
    choices = [{"label": label, "text": label.lower()} for label in "ABCDE"]
    csqa = {"id": "1", "question": {"stem": "what?", "choices": choices}, "answerKey": "A"}
    (at / "csqa.jsonl").write_text(json.dumps(csqa) + "\n")
    (at / "SST-2.tsv").write_text("index\tprediction\n0\t1\n1\t0\n2\t0\n")
    (at / "answers.json").write_text(json.dumps(dict.fromkeys(("5001", "5002", "5003"), "the ferry")))
    (at / "odds.json").write_text(json.dumps(dict.fromkeys(("5001", "5002", "5003"), 0.5)))
    (at / "tagged.txt").write_text("Ann B-PER B-PER\nis O O\n\nhere O B-LOC\n")
    (at / "msr").mkdir()
    header = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
    write_table(at / "msr/msr_paraphrase_train.txt", header, [(1, 10, 11, "a", "b"), (0, 12, 13, "c", "d")])
    (at / "msr/dev_ids.tsv").write_text("10\t11\n")
    rows = [("a", "b", "0"), ("c", "d", "1")]
    write_table(at / "scitail/dev.txt", rows[0], rows[1:])


def write_runs(at: Path) -> None:
    corpus = write_corpus(at / "corpus.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "PASSES", 1)
        options = PretrainOptions(
            corpus=(str(corpus),), vocab_size=90, seq_length="8:0.5,16:0.5", batch_size=8, max_positions=16,
            steps=4, evaluations=1, held_out=0.2, engine="numpy", threads=1,
        )  # fmt: skip
        pretrain(options, at / "pretrained", show=False)
    words = ["data", str(at / "corpus.txt"), str(at / "animals.txt"), "--vocab", str(at / "pretrained")]
    for part in ("1/2", "2/2"):
        with redirect_stdout(StringIO()):
            assert cli.main([*words, "--out", str(at / "parts"), "--part", part]) == 0
    link_shards(at / "linked", open_shards(at / "parts"))
    write_frozen_run(at)


def write_verified(at: Path) -> None:
    """A model with a list of digests, and a fine-tuning that was stopped after its third step."""
    shutil.copytree(at / "model", at / "packed")
    sums = [f"{sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in (at / "packed").iterdir()]
    (at / "packed/SHA256SUMS").write_text("\n".join(sums) + "\n")
    (at / "stopped").mkdir()
    shutil.copy(at / "tuned/finetune.json", at / "stopped")
    shutil.copytree(at / "run/best", at / "stopped/best")
    _, params, _ = hub.load(at / "model")
    optimizer = SimpleNamespace(m=params.flat, v=params.flat, updates=3)
    state = {"step": 3, "position": [0, 3], "seconds": 1.25, "plan": {"best": 0.5}}
    save_checkpoint(checkpoint_path(at / "stopped/checkpoints", 3), params, optimizer, state)
    shutil.copytree(at / "pretrained", at / "altered")
    lines = [json.loads(line) for line in (at / "altered/metrics.jsonl").read_text().splitlines()]
    altered = [{name: value + (name == "gradient_norm") for name, value in line.items()} for line in lines]
    (at / "altered/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in altered))


def write_frozen_run(at: Path) -> None:
    """A feature-based run, finished, and what it leaves while it is on its way."""
    data, model = small_entities.write_data(at / "conll"), small_entities.write_model(at / "encoder")
    options = FinetuneOptions(
        task="ner", data=data, model=model, feature_based="last", width=4, epochs=1.0, batch_size=4,
        learning_rates=(1e-2,), engine="numpy", threads=1, max_length=16,
    ).resolved()  # fmt: skip
    finetune(options, at / "frozen", show=False)
    features, bounds = asked_words(at)
    stored_vectors(Bert.from_pretrained(model, "numpy"), features, bounds, [1], at / "layers")
    note = {"learning_rate": 1e-2, "seed": 0, "folder": "failed", "failed": "The loss is nan."}
    (at / "failed").mkdir()
    (at / "failed" / sweep.FAILED).write_text(json.dumps(note))
    found = {"step": 3, "epoch": 1.0, "scores": {"f1": 0.5}, "tuned": {}, "predictions": [["O", "B-PER"]]}
    (at / "run/best").mkdir(parents=True)
    (at / "run/best/dev.json").write_text(json.dumps(found))
    kept = Results(at / "cells", [])
    for seed in (0, 1):
        result = {"dev": Outcomes("mean", np.ones(9)).to_json()}
        kept.add(Cell(f"bert/pair/seed{seed}", "fine-tuning", dict, 1e9, dict), result, 1.5)


# What reads them
def asked_words(at: Path) -> tuple:
    """What `stored_vectors` is asked, of the model in `encoder`."""
    task, tokenizer = Tagging(), Tokenizer.from_pretrained(at / "encoder")
    examples = task.read(at / "conll", "dev")
    features = list(task.features(examples, tokenizer, task.labels(examples), 16, training=False))
    return features, sentence_bounds(examples)


def command(*words: Any) -> None:
    """Run `minibert`; what it says of a bad file is one line, and the status is that of bad input."""
    said = StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(said):
        status = cli.main(list(map(str, words)))
    assert status in (0, 2), said.getvalue()
    assert status == 0 or said.getvalue().count("\n") == 1, said.getvalue()


def hand_on(at: Path, model: str) -> None:
    shutil.rmtree(at / "exported", ignore_errors=True)
    words = ("--model", at / model, "--out", at / "exported", "--sentence-transformers", "mean")
    command("export", *words)


def modules(at: Path, name: str) -> Any:
    config, *_ = hub.load(at / "model")
    return read_modules(at / name, config), module_files(at / name)


def whole_run(at: Path) -> Any:
    """A fine-tuning that is finished, asked to go on."""
    report = finetune(
        FinetuneOptions.resumed(at / "tuned/finetune.json"), at / "tuned", resume=True, show=False
    )
    return report_text(report), read_metrics(at / "tuned")


def compared(at: Path, *names: str) -> None:
    command("compare", *(at / name for name in names), "--by", "minutes", "--out", at / "compared.html")


def found_in(at: Path, name: str, **more: Any) -> None:
    """Verify a folder or file; every finding is one line."""
    verified = verify(at / name, **more)
    assert len(str(verified).splitlines()) == len(verified.checked) + len(verified.findings)


def cells(at: Path) -> Any:
    kept = Results(at / "cells", [])
    return kept.lines, kept.times


def layers(at: Path, name: str = "layers") -> Any:
    model = Bert.from_pretrained(at / "encoder", "numpy")
    return stored_vectors(model, *asked_words(at), [1], at / name)


def answered(at: Path) -> None:
    command(
        "score", "squad", at / "squad/dev-v2.0.json", at / "answers.json", "--null-odds", at / "odds.json"
    )


def doctored(folder: Path) -> None:
    """Let the doctor see a run, however few its steps are."""
    with patch.object(doctor, "LEAST_STEPS", 2):
        read = read_run(folder)
        examine(Record(folder, doctor.resolved(read.options, folder), read.lines, read.report or {}))


def every_document(at: Path) -> list:
    shards = open_shards(at)
    return [shards.document(number) for number in range(shards.n_documents)]


def words_in(file: Path) -> Any:
    return count_files([file], BasicTokenizer())


def text_in(file: Path) -> Any:
    return list(sentences(file)), words_in(file)


VERIFIED = {
    "pretrained": (
        "config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json",
        "training.json", "report.json", "metrics.jsonl", "shards/meta.json", "shards/documents.bin",
        "checkpoints/step-000000004.safetensors",
    ),
    "tuned": ("finetune.json", "task.json", "report.json", "metrics.jsonl"),
    "frozen": ("tagger.json", "tagger.safetensors"),
    "packed": ("SHA256SUMS",),
    "stopped": ("best/dev.json", "finetune.json"),
    "sentences": ("modules.json",),
}  # fmt: skip
ENCODER = ("modules.json", "config.json", "tokenizer_config.json")
MODULES = (
    "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json",
    "2_Dense/config.json", "2_Dense/model.safetensors",
)  # fmt: skip
CARD_OF = {"pretrained": ("training.json", "report.json"), "tuned": ("finetune.json", "report.json")}
COMPARED = {
    "pretrained": ("training.json", "report.json", "metrics.jsonl"),
    "tuned": ("finetune.json", "report.json", "metrics.jsonl", "dev_predictions.json"),
}
READERS = [
    # models and their tokenizers
    Reader("model/config.json", lambda at: (hub.load(at / "model"), hub.load_labels(at / "model"))),
    Reader("model/model.safetensors", lambda at: hub.load(at / "model")),
    Reader("half/model.safetensors", lambda at: hub.load(at / "half")),
    Reader("divided/model.safetensors.index.json", lambda at: hub.load(at / "divided")),
    Reader("hf_tiny.bin/pytorch_model.bin", lambda at: hub.load(at / "hf_tiny.bin")),
    Reader("hf_tiny_older.bin/pytorch_model.bin", lambda at: hub.load(at / "hf_tiny_older.bin")),
    Reader("tf/checkpoint", lambda at: hub.load(at / "tf")),
    Reader("tf/bert_config.json", lambda at: hub.load(at / "tf/some.index")),
    Reader("tf/some.index", lambda at: hub.load(at / "tf/some.index")),
    Reader("tf/some.data-00000-of-00001", lambda at: hub.load(at / "tf/some.index")),
    Reader("model/vocab.txt", lambda at: Tokenizer.from_pretrained(at / "model")),
    Reader("model/tokenizer_config.json", lambda at: Tokenizer.from_pretrained(at / "model")),
    Reader("fast/tokenizer.json", lambda at: Tokenizer.from_pretrained(at / "fast")),
    Reader("slow/tokenizer_config.json", lambda at: Tokenizer.from_pretrained(at / "slow")),
    Reader("slower/added_tokens.json", lambda at: Tokenizer.from_pretrained(at / "slower")),
    Reader("slower/special_tokens_map.json", lambda at: Tokenizer.from_pretrained(at / "slower")),
    Reader("model/tokenizer.json", lambda at: hand_on(at, "model")),
    Reader("model/tokenizer_config.json", lambda at: hand_on(at, "model")),
    Reader("handed/README.md", lambda at: hand_on(at, "handed")),
    # of others
    Reader("theirs/config.json", lambda at: read_foreign(at / "theirs")),
    Reader("theirs/tokenizer_config.json", lambda at: read_foreign(at / "theirs")),
    *(Reader(f"sentences/{name}", lambda at: modules(at, "sentences")) for name in MODULES),
    *(Reader(f"layered/{name}", lambda at: modules(at, "layered")) for name in ENCODER),
    # runs
    Reader("pretrained/training.json", lambda at: PretrainOptions.resumed(at / "pretrained/training.json")),
    Reader("checkpoints/step-000000012.safetensors", lambda at: latest(at / "checkpoints", warn=str)),
    Reader("tuned/finetune.json", whole_run),
    Reader("tuned/report.json", whole_run),
    Reader("tuned/metrics.jsonl", whole_run),
    *(Reader(f"pretrained/{name}", lambda at: hand_on(at, "pretrained")) for name in CARD_OF["pretrained"]),
    *(Reader(f"tuned/{name}", lambda at: hand_on(at, "tuned")) for name in CARD_OF["tuned"]),
    Reader("tuned/finetune.json", lambda at: FinetuneOptions.configured(at / "tuned/finetune.json", {})),
    Reader("tuned/finetune.json", lambda at: other_command(at / "tuned/training.json")),
    Reader("rte.toml", lambda at: FinetuneOptions.configured(at / "rte.toml", {})),
    Reader(
        "pretrained/metrics.jsonl", lambda at: command("show", at / "pretrained", "--out", at / "shown.html")
    ),
    *(Reader(f"tuned/{name}", lambda at: compared(at, "tuned", "again")) for name in COMPARED["tuned"]),
    *(
        Reader(f"pretrained/{name}", lambda at: compared(at, "pretrained", "other"))
        for name in COMPARED["pretrained"]
    ),
    *(
        Reader(f"{folder}/{name}", lambda at, folder=folder: doctored(at / folder))
        for folder in ("tuned", "pretrained")
        for name in COMPARED[folder][:3]
    ),
    *(
        Reader(f"{folder}/{name}", lambda at, folder=folder: found_in(at, folder))
        for folder, names in VERIFIED.items()
        for name in names
    ),
    *(
        Reader(f"altered/{name}", lambda at: found_in(at, "altered", replay=1))
        for name in ("report.json", "metrics.jsonl", "training.json")
    ),
    *(
        Reader(f"{name}/pytorch_model.bin", lambda at, name=name: found_in(at, f"{name}/pytorch_model.bin"))
        for name in ("hf_tiny.bin", "hf_tiny_older.bin")
    ),
    Reader("tuned/report.html", lambda at: run_shown(at / "tuned")),
    Reader("tuned/trained_texts.json", lambda at: trained_texts(at / "tuned")),
    Reader("tuned/task.json", lambda at: Finetuned.from_pretrained(at / "tuned", "numpy")),
    Reader("tuned/report.json", lambda at: run_shown(at / "tuned")),
    Reader("pretrained/report.json", lambda at: run_shown(at / "pretrained")),
    Reader("saved/estimator.json", lambda at: load(at / "saved", "numpy")),
    Reader(
        "begun/examples/train.jsonl",
        lambda at: TextClassifier("", out=at / "begun")._folder({"train": '{"text": "a", "label": "x"}\n'}),
    ),
    Reader("frozen/tagger.json", lambda at: FeatureTagger.from_pretrained(at / "frozen", "numpy")),
    Reader("frozen/tagger.safetensors", lambda at: FeatureTagger.from_pretrained(at / "frozen", "numpy")),
    Reader("layers/layer-01.npy", layers),
    Reader("layers/crc32.json", layers),
    Reader("run/best/dev.json", lambda at: stored_epoch(at / "run")),
    Reader("failed/failed.json", lambda at: sweep._failure(at / "failed")),
    Reader("cells/results.jsonl", cells),
    Reader("experiment/vocabulary.json", prepare_experiment),
    Reader("cells/times.jsonl", cells),
    # token shards
    *(Reader(f"parts/00001-of-00002/{name}", lambda at: every_document(at / "parts")) for name in SHARDS),
    Reader("parts/00002-of-00002/part.json", lambda at: vocabulary_of(at / "parts")),
    Reader("linked/elsewhere.json", lambda at: every_document(at / "linked")),
    # texts
    Reader("animals.txt", lambda at: text_in(at / "animals.txt")),
    Reader("animals.txt.gz", lambda at: text_in(at / "animals.txt.gz")),
    *(Reader(f"animals.{end}", lambda at, end=end: text_in(at / f"animals.{end}")) for end in PACKED),
    Reader("own.jsonl", lambda at: list(sentences(at / "own.jsonl"))),
    Reader("wiki.xml", lambda at: list(sentences(at / "wiki.xml"))),
    Reader(
        "animals.txt", lambda at: command("tokenize", "--vocab", at / "model", "--file", at / "animals.txt")
    ),
    Reader(
        "animals.txt",
        lambda at: command("answer", "--model", at / "asked", "who?", "--file", at / "animals.txt"),
    ),
    Reader("animals.txt", lambda at: command("tag", "--model", at / "frozen", "--file", at / "animals.txt")),
    # tasks
    *(
        Reader(f"{name}/dev.tsv", lambda at, name=name: glue.read(name.lower().replace("-", ""), at, "dev"))
        for name in GLUE
    ),
    Reader("MNLI/dev_matched.tsv", lambda at: glue.read("mnli", at, "dev")),
    Reader("AX/diagnostic.tsv", lambda at: glue.read("ax", at, "test")),
    Reader("msr/dev_ids.tsv", lambda at: glue.read("mrpc", at / "msr", "dev")),
    Reader("msr/msr_paraphrase_train.txt", lambda at: glue.read("mrpc", at / "msr", "train")),
    Reader("scitail/dev.txt", lambda at: pairs.read("scitail", at, "dev")),
    Reader("swag/val.csv", lambda at: choice.read_swag(at / "swag/val.csv")),
    Reader("hellaswag.jsonl", lambda at: choice.read_hellaswag(at / "hellaswag.jsonl")),
    Reader("copa.jsonl", lambda at: choice.read_copa(at / "copa.jsonl")),
    Reader("csqa.jsonl", lambda at: choice.read_commonsense_qa(at / "csqa.jsonl")),
    Reader("ner/eng.train", lambda at: ner.read(at / "ner/eng.train")),
    Reader("squad/dev-v2.0.json", lambda at: squad.read(at / "squad/dev-v2.0.json")),
    Reader("triviaqa/squad-like.json", lambda at: trivia.read(at / "triviaqa/squad-like.json")),
    Reader(
        "triviaqa/qa/wikipedia-train.json", lambda at: trivia.read(at / "triviaqa/qa/wikipedia-train.json")
    ),
    Reader(
        "triviaqa/evidence/wikipedia/River_Willow.txt",
        lambda at: trivia.read(at / "triviaqa/qa/wikipedia-train.json"),
    ),
    Reader("own.csv", lambda at: tables.read_texts(at / "own.csv", "text", label="label")),
    Reader("own.jsonl", lambda at: tables.read_texts(at / "own.jsonl", "text", label="label")),
    Reader("tags.jsonl", lambda at: tables.read_tags(at / "tags.jsonl")),
    Reader("questions.jsonl", lambda at: tables.read_questions(at / "questions.jsonl")),
    # predictions
    Reader("answers.json", answered),
    Reader("odds.json", answered),
    Reader("tagged.txt", lambda at: command("score", "conll", at / "tagged.txt")),
    Reader("SST-2.tsv", lambda at: pack(at, [at / "SST-2.tsv"])),
    Reader("SST-2.tsv", lambda at: command("score", "glue", "sst2", at / "SST-2/dev.tsv", at / "SST-2.tsv")),
]


def numbered(reader: Reader) -> str:
    """The name of a reader: that of its file, with a number where a file has several."""
    same = [one for one in READERS if one.file == reader.file]
    return reader.file + f"-{same.index(reader)}" * (len(same) > 1)
