"""`export`: write a model into a folder to share, with a model card."""

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from minibert import hub
from minibert.api.base import ESTIMATOR_FILE
from minibert.base.errors import InputError
from minibert.base.files import require_folder, write_folder_atomically
from minibert.base.foreign_names import explains_foreign_arguments
from minibert.base.json_files import read_json
from minibert.base.model_names import (
    MODULES_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    folder_of,
    on_disk,
)
from minibert.base.options import STORED
from minibert.base.paths import path_of
from minibert.base.reading import byte_pieces
from minibert.finetuning.frozen.feature_tagger import WEIGHTS_FILE as TAGGER_WEIGHTS_FILE
from minibert.hub.names import MASKED_LM
from minibert.hub.onnx import require_libraries, write_onnx
from minibert.hub.sentence_transformers import module_files, write_modules
from minibert.model.pools import WRITTEN
from minibert.reports.card import CARD, Exported, is_minibert_card, model_card, renewed
from minibert.reports.contents import ExportReport
from minibert.tasks.stored import TAGGER_FILE, TASK_FILE, TaskFile
from minibert.tokenizer.formats import is_cased

# The files of a tokenizer.
TOKENIZER_FILES = (
    VOCABULARY_FILE,
    TOKENIZER_FILE,
    TOKENIZER_CONFIG_FILE,
    "special_tokens_map.json",
    "added_tokens.json",
)
# What minibert needs for answers: the task, or the LSTMs on top of the model.
TASK_FILES = (TASK_FILE, TAGGER_FILE, TAGGER_WEIGHTS_FILE, ESTIMATOR_FILE)
# Fields of tokenizer_config.json in which other tools note where they read it from.
ORIGINS = ("name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file")


@explains_foreign_arguments
def export(
    model: str | Path = "english",
    *,
    out: str | Path,
    dtype: str = "float32",
    sentence_transformers: str | None = None,
    onnx: bool = False,
) -> ExportReport:
    """Write a model into a folder to share, as the command `minibert export` does.

    The folder has the weights, the configuration, the tokenizer, the task that the model was fine-tuned for,
    and a model card. Checkpoints, shards and paths of this machine are left out; tensors that the model lacks
    are not made up. The folder is written completely or not at all.

    Parameters
    ----------
    model : str or path, default "english"
        As for `load`; or Google's checkpoint, such as `DIR/bert_model.ckpt`.
    out : str or path
        A folder that does not exist yet, or is empty.
    dtype : {"float32", "float16", "bfloat16"}, default "float32"
        The precision of the weights in the file.
    sentence_transformers : {"mean", "cls"}, optional
        Write files for sentence-transformers as well: the vector of a text is the mean of its hidden states,
        or that of [CLS].
    onnx : bool, default False
        Write `model.onnx` as well, with transformers and PyTorch, and compare what it computes in
        onnxruntime. This needs the extra minibert-scratch[onnx].

    Returns
    -------
    ExportReport
        A dictionary: what was read, what is missing or was changed, and the size of each file.

    Raises
    ------
    InputError
        When an argument is not valid or contradicts the model, the folder is not free, the model can't be
        read, or a library for `onnx` is missing.
    RunError
        When the folder can't be written, or onnxruntime computes something else than transformers.
    """
    dest = path_of(out, "out")
    _require_free(dest)
    if onnx:
        require_libraries()
    source = _Source(on_disk(model, "model"))
    _require_possible(source, sentence_transformers, onnx)
    # Read before writing begins, so that an error of reading is not taken for one of writing.
    files = source.accompanying_files()
    modules = module_files(source.named)
    if not sentence_transformers:
        files |= modules
    notes = _complete_tokenizer(files, source.folder)
    notes += source.differences()
    if modules and sentence_transformers:
        what = f"the modules of sentence-transformers in {source.named}"
        notes.append(f"{what} are replaced by the pool {sentence_transformers}")
    about = source.described(dest.resolve().name, sentence_transformers)
    _add_card(files, source, about)

    def fill(temporary: Path) -> None:
        hub.save_hf(temporary, source.config, source.params, about.labels, dtype=dtype, omit=source.missing)
        for name, data in files.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).write_bytes(data)
        if onnx:
            error = write_onnx(temporary, source.has_pooler)
            notes.append(f"model.onnx differs from transformers by {error:.1e} at most, in onnxruntime")
        if sentence_transformers:
            length = source.config.trained_length or source.config.P
            write_modules(temporary, length, sentence_transformers)

    write_folder_atomically(dest, fill)
    return {
        "source": str(source.weights),
        "layers": source.config.L,
        "hidden_size": source.config.H,
        "heads": source.config.A,
        "vocab_size": source.config.V,
        "head": about.head,
        "labels": list(about.labels),
        "missing": source.missing,
        "unused": list(source.report.unused),
        "notes": [*source.report.changed, *notes],
        "written": _sizes(dest),
    }


class _Source:
    """The model that is exported, as it was read.

    Attributes
    ----------
    weights : path of the weights.
    folder : the folder with its vocabulary.
    named : the folder that the user named: in older sentence-transformers, the parent of `folder`.
    config, params, report : as `hub.load` returns them.
    missing : names of the tensors that are not written, as they only have their initial values.
    """

    def __init__(self, path: Path) -> None:
        weights = hub.weights_of(path)
        self.config, self.params, self.report = hub.load(path)
        assert weights is not None  # they have been read
        self.weights = weights
        self.folder = folder_of(path)
        self.named = path if path.is_dir() else self.folder
        self.missing = list(self.report.missing)
        if self.params.decoder is not None:  # it stands for the masked-LM head, whose tensors are written
            self.missing = [name for name in self.missing if not name.startswith(MASKED_LM)]

    @property
    def reads_last_token(self) -> bool:
        """Whether the head reads the last token, as with a model that reads from left to right."""
        head = self.params.head
        return self.config.is_decoder and head.pooled and head.kind != "pretraining"

    @property
    def has_pooler(self) -> bool:
        """Whether the pooler was trained."""
        return not any("pooler" in name for name in self.missing)

    @property
    def kind(self) -> str:
        """The kind of the head; "none" if all heads of pre-training are missing."""
        heads = {name for name in hub.to_hf(self.params) if name.startswith("cls.")}
        if heads and heads <= set(self.missing):
            return "none"
        return self.params.head.kind

    def differences(self) -> list[str]:
        """Return sentences about what other libraries read differently."""
        sentences = []
        if self.params.decoder is not None:
            what = "the decoder of the masked LM is not the word embeddings"
            sentences.append(f"{what}; only Bert guesses with it here")
        if self.reads_last_token:
            sentences.append("transformers pools [CLS], this model its last token: only minibert can ask it")
        return sentences

    def described(self, name: str, pool: str | None) -> Exported:
        """Return what a card says of the model, in a folder of this name."""
        is_labelled = self.params.head.kind in hub.LABELLED
        return Exported(
            name=name,
            config=self.config,
            parameters=self.params.count(),
            head=self.kind,
            labels=hub.load_labels(self.folder) if is_labelled else (),
            for_transformers=not self.reads_last_token,
            is_step=self.folder != self.weights.parent,
            pool=pool,
        )

    def accompanying_files(self) -> dict[str, bytes]:
        """Read the files that accompany the model, by name."""
        wanted = [self.folder / name for name in (*TOKENIZER_FILES, *TASK_FILES)]
        is_run = any((self.folder / name).exists() for name in STORED)  # whose card is written anew
        if not is_run:
            wanted.append(self.named / CARD)
        files = {path.name: b"".join(byte_pieces(path)) for path in wanted if path.is_file()}
        if TOKENIZER_CONFIG_FILE in files:
            fields = read_json(self.folder / TOKENIZER_CONFIG_FILE)
            if not fields.keys().isdisjoint(ORIGINS):
                files[TOKENIZER_CONFIG_FILE] = _json_file(_without(fields, ORIGINS))
        if ESTIMATOR_FILE in files:
            fields = read_json(self.folder / ESTIMATOR_FILE, {"parameters": {}}, "save it again")
            parameters = _without(fields["parameters"], ("model", "out"))
            files[ESTIMATOR_FILE] = _json_file(fields | {"parameters": parameters})
        return files


def _require_free(dest: Path) -> None:
    """Raise InputError if a folder has contents, or can't be made."""
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise InputError(f"out='{dest}' exists and is not empty; choose another.", out=str(dest))
    require_folder(dest)


def _require_possible(source: _Source, pool: str | None, onnx: bool) -> None:
    """Raise InputError if another library can't compute what the model does."""
    if pool not in (None, *WRITTEN):
        what = f"sentence_transformers={pool!r} is not a pool that the library has"
        raise InputError(f"{what}; choose {' or '.join(WRITTEN)}.", sentence_transformers=pool)
    if source.config.is_decoder and pool == "cls":
        what = "sentence_transformers='cls': left to right [CLS] sees only itself"
        raise InputError(f"{what}; choose mean.", sentence_transformers=pool)
    head = source.params.head
    if onnx and (source.reads_last_token or head.lstm or head.pool):
        what = "its last token, LSTMs or windows, which transformers does not know"
        message = f"onnx=True: the head of '{source.named}' reads {what}; leave it out."
        raise InputError(message, onnx=True)


def _complete_tokenizer(files: dict[str, bytes], folder: Path) -> list[str]:
    """Add what the vocabulary lacks; return sentences about what had to be guessed."""
    if VOCABULARY_FILE not in files:
        return [] if TOKENIZER_FILE in files else [f"{folder} has no vocabulary"]
    if TOKENIZER_CONFIG_FILE in files or TOKENIZER_FILE in files:
        return []
    # In Google's models, only the name of the folder says whether text is lower-cased.
    cased = is_cased(files[VOCABULARY_FILE].decode(errors="replace").split("\n"))
    options = {"tokenizer_class": "BertTokenizer", "do_lower_case": not cased}
    files[TOKENIZER_CONFIG_FILE] = _json_file(options)
    case = "capital letters: text keeps its case" if cased else "no capital letters: text is lower-cased"
    return [f"{TOKENIZER_CONFIG_FILE} is new; the vocabulary has {case}"]


def _add_card(files: dict[str, bytes], source: _Source, about: Exported) -> None:
    """Add the model card to the files, which complete `about`, unless another author has written one."""
    before = files.get(CARD, b"").decode(errors="replace")
    if CARD in files and not is_minibert_card(before):
        return
    if not about.pool and MODULES_FILE in files:
        about = replace(about, pool="mean")
    if TAGGER_FILE in files:  # LSTMs on top, which only minibert knows
        about = replace(about, head="tag", for_transformers=False)
    if about.head == "pretraining" and any(name.startswith(MASKED_LM) for name in source.missing):
        about = replace(about, head="none")  # a head for the next sentence alone guesses no words
    if TASK_FILE in files:
        about = replace(about, pair=TaskFile.load(source.folder).pair)
    elif about.head == "choice":
        about = replace(about, choices="swag")
    has_vocabulary = VOCABULARY_FILE in files or TOKENIZER_FILE in files
    card = model_card(source.folder, replace(about, vocabulary=has_vocabulary))
    files[CARD] = (renewed(before, card) if before else card).encode()


def _sizes(folder: Path) -> dict[str, int]:
    """Return the sizes in bytes of all files in a folder, by their paths in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}


def _without(fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _json_file(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
