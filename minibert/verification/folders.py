"""Check the folder of a run or a model: what its files state about themselves and about each other."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import numpy as np

from minibert import hub
from minibert.api.runs import Run
from minibert.base import bundled_models
from minibert.base.bundled_models import DIGESTS_FILE, listed_digests
from minibert.base.errors import InputError
from minibert.base.files import crc32_of, sha256_of
from minibert.base.json_files import fits, read_json
from minibert.base.model_names import (
    CHECKPOINTS,
    CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
    config_in,
    locate,
)
from minibert.base.options import PRETRAINING_FILE
from minibert.base.terminal import counted
from minibert.core.config import BertConfig
from minibert.data.shards.joined import ELSEWHERE, open_shards
from minibert.finetuning.best import BEST, best_epoch, stored_epoch
from minibert.finetuning.foreign import is_foreign
from minibert.finetuning.frozen.feature_tagger import WEIGHTS_FILE as TAGGER_WEIGHTS_FILE
from minibert.finetuning.models import is_finetuned, open_model
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.sweep import FAILED
from minibert.hub.checkpoint import Checkpoint, checkpoints, load_checkpoint
from minibert.hub.loading import config_of, read_config
from minibert.hub.pytorch.listing import list_names
from minibert.hub.vocabularies import check_vocabulary, read_tokenizer
from minibert.model.params import Parameters
from minibert.pretraining.options import PretrainOptions
from minibert.reports.results import REPORT
from minibert.tasks.stored import OPTIONS_FILE, TAGGER_FILE, TASK_FILE
from minibert.tokenizer import Tokenizer
from minibert.training.runlog import METRICS
from minibert.verification.findings import Verification
from minibert.verification.logs import check_log

NO_LIMIT = 1e20  # some libraries write such a number for a tokenizer without a longest text
COPY = "restore it from a copy"
AGAIN = "copy the folder again"
LINKED = "folder with links out of it"  # of which nothing is read
LONGEST_NAME = 200  # characters that are shown


def check_folder(found: Verification) -> None:
    """Check a folder, and note in `found` what it is, what is right and what is wrong.

    Parameters
    ----------
    found : Verification
        Of the folder, without findings so far.

    Raises
    ------
    InputError
        When the folder holds neither a run nor a model.
    """
    folder = found.folder
    has = {name for name in os.listdir(folder) if not name.startswith(".")}
    if _leads_out(found):
        found.kind = LINKED
        return
    if DIGESTS_FILE in has or folder.parent == bundled_models.FOLDER:
        with found.reading(DIGESTS_FILE):
            _check_digests(found, DIGESTS_FILE, listed_digests(folder / DIGESTS_FILE), sha256_of)
    if PRETRAINING_FILE in has:
        found.kind = "pre-training run"
        _check_pretraining(found)
    elif OPTIONS_FILE in has:
        found.kind = "fine-tuning run"
        _check_finetuning(found)
    elif has & {TASK_FILE, TAGGER_FILE, CONFIG_FILE} or hub.weights_of(folder):
        found.kind = "model"
        _check_model(found)
        options = OPTIONS_FILE if is_finetuned(folder) else PRETRAINING_FILE
        for name in sorted(has & {CHECKPOINTS, METRICS}):
            found.wrong(name, f"belongs to a run, whose options, {options}, are missing; {COPY}.")
    else:
        raise InputError(f"'{folder}' holds neither a run nor a model; name the folder of one.")


def _leads_out(found: Verification) -> bool:
    """Note links that lead out of the folder, where nothing is read; return whether there are any."""
    home = Path(os.path.realpath(found.folder))
    homes = [home]
    model = home.parent.parent
    if home.parent.name == "snapshots" and model.name.startswith("models--"):  # in Hugging Face's cache
        homes.append(model / "blobs")
    leads_out = False
    for place, folders, files in os.walk(found.folder):
        for name in sorted((*folders, *files)):
            path = Path(place, name)
            target = Path(os.path.realpath(path))
            if path.is_symlink() and not any(target.is_relative_to(one) for one in homes):
                leads_out = True
                link = str(path.relative_to(found.folder))
                found.wrong(link, "is a link out of the folder, so nothing was read; put a copy there.")
    return leads_out


# Digests


def _check_digests(
    found: Verification, source: str, digests: Mapping[str, Any], digest_of: Callable[[Path], Any]
) -> None:
    """Compare files with the digests that another file of the folder, `source`, has of them."""
    n_right = 0
    for name, expected in digests.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            found.wrong(source, f"names {name!r}, which is not a file of the folder; {COPY}.")
        elif not os.path.isfile(found.folder / name):
            found.wrong(name, f"is missing, and {source} has its digest; {COPY}.")
        else:
            with found.reading(name):
                is_right = digest_of(found.folder / name) == expected
                n_right += is_right
                if not is_right:
                    found.wrong(name, f"was changed: its digest is another than in {source}; {COPY}.")
    if digests:
        found.right(f"digests: {n_right} of {counted(len(digests), 'file')} as in {source}")


# Models


def _check_model(found: Verification) -> Parameters | None:
    """Check weights, configuration, vocabulary and task of a model; return its parameters, if readable."""
    folder = found.folder
    config = params = tokenizer = None
    with found.reading(CONFIG_FILE):
        weights = hub.weights_of(folder)
        config = config_of(read_config(config_in(locate(folder).folder)))
        with found.reading(weights.name if weights else WEIGHTS_FILE):
            _, params, _ = hub.load(folder)
    for path in sorted(folder.glob("pytorch_model*.bin")):
        with found.reading(path.name):
            check_pickle(found, path)
    with found.reading(VOCABULARY_FILE):
        tokenizer = read_tokenizer(folder)
    if config is not None and tokenizer is not None:
        with found.reading(VOCABULARY_FILE):
            check_vocabulary(config, tokenizer)
        _check_tokenizer(found, tokenizer, config)
    if params is not None:
        found.right(f"model: {params.count():,} parameters, finite and of the shapes in {CONFIG_FILE}")
    if tokenizer is not None:
        found.right(f"vocabulary: {tokenizer.vocab_size:,} pieces")
    if params is not None and tokenizer is not None:
        with found.reading(CONFIG_FILE):
            if is_finetuned(folder) or is_foreign(folder):
                _check_task(found)
    return params


def _check_tokenizer(found: Verification, tokenizer: Tokenizer, config: BertConfig) -> None:
    """Compare the files of a tokenizer with each other, and its longest text with the model's positions."""
    folder = found.folder
    if (folder / VOCABULARY_FILE).is_file() and (folder / TOKENIZER_FILE).is_file():
        with found.reading(TOKENIZER_FILE):
            other = Tokenizer.from_pretrained(folder / TOKENIZER_FILE)
            first, second = ({**one.ids, "": None} for one in (tokenizer, other))
            if first != second:
                counts = f"{tokenizer.vocab_size:,} and {other.vocab_size:,}, and the model has {config.V:,}"
                what = f"has other pieces than {TOKENIZER_FILE} ({counts})"
                found.wrong(VOCABULARY_FILE, f"{what}; {AGAIN}.")
    if (folder / TOKENIZER_CONFIG_FILE).is_file():
        with found.reading(TOKENIZER_CONFIG_FILE):
            longest: Any = read_json(folder / TOKENIZER_CONFIG_FILE).get("model_max_length")
            if fits(longest, float) and config.P < longest < NO_LIMIT:
                what = f"model_max_length={longest} is more than the {config.P} positions of {CONFIG_FILE}"
                found.wrong(TOKENIZER_CONFIG_FILE, f"{what}; set it to {config.P}.")


def _check_task(found: Verification) -> None:
    """Check task and labels of a fine-tuned model, which have to fit its head."""
    is_tagger = (found.folder / TAGGER_FILE).is_file()
    with found.reading(TAGGER_FILE if is_tagger else TASK_FILE):
        model = open_model(found.folder, "numpy")
        named = hub.load_labels(found.folder)
        if not is_tagger and model.labels and model.head.kind in hub.LABELLED and named != model.labels:
            both = f"{list(model.labels)} in {TASK_FILE}, {list(named)} in {CONFIG_FILE}"
            found.wrong(TASK_FILE, f"the labels differ or have another order: {both}; {AGAIN}.")
        found.right(f"task: {model.task.name}, {counted(len(model.labels), 'label')}")


def check_pickle(found: Verification, path: Path) -> None:
    """List what a pickle asks for; whatever stored tensors do not need is a finding.

    Parameters
    ----------
    found : Verification
        Receives the findings.
    path : Path
        The pickle, which is not loaded.

    Raises
    ------
    InputError
        When the file can't be read, or is not a pickle.
    """
    listing = list_names(path)
    for name in listing.foreign:
        what = f"imports {name[:LONGEST_NAME]}, and may call it, which stored tensors do not need"
        found.wrong(path.name, f"{what}; don't load it unless you trust its author.")
    if listing.unread:
        found.wrong(path.name, f"can't be listed to its end ({listing.unread}); get it again.")
    own = [name for name in listing.names if name not in listing.foreign]
    if own:
        found.right(f"{path.name}: imports {', '.join(own)}, which stored tensors need")
    elif not listing.foreign and not listing.unread:
        found.right(f"{path.name}: imports nothing")


# Runs


def _check_pretraining(found: Verification) -> None:
    """Check a pre-training run, finished or not."""
    folder = found.folder
    options = params = tokenizer = config = None
    with found.reading(PRETRAINING_FILE):
        options = PretrainOptions.load(folder / PRETRAINING_FILE).resolved()
    report = _report_of(found)
    if report or (folder / WEIGHTS_FILE).exists():
        params = _check_model(found)
    if (folder / TOKENIZER_CONFIG_FILE).is_file():
        with found.reading(VOCABULARY_FILE):
            tokenizer = Tokenizer.from_pretrained(folder)
    has_vocabulary = tokenizer is not None and not found.names(VOCABULARY_FILE)
    if options and tokenizer and not options.model:
        config = options.model_config(params.config.V if params else tokenizer.vocab_size)
        if has_vocabulary and config.V != tokenizer.vocab_size:
            has_vocabulary = False
            what = f"has {tokenizer.vocab_size:,} pieces, and the model {config.V:,}"
            found.wrong(VOCABULARY_FILE, f"{what}; {COPY}.")
    _check_shards(found, tokenizer if has_vocabulary else None)
    last = _check_training(found, report, config, 4)
    step = last.state["step"] if last else 0
    if not report or step > report["steps"]:
        return  # a run that goes on replaces its model before its report
    _check_digests(found, REPORT, report.get("crc32", {}), crc32_of)
    if params is None or last is None or step < report["steps"]:
        return
    if not np.array_equal(params.flat, last.params.flat.astype(np.float32)):
        found.wrong(WEIGHTS_FILE, f"is not the model of the last checkpoint; {COPY}, or resume the run.")


def _check_finetuning(found: Verification) -> None:
    """Check a fine-tuning run or a sweep, finished or not."""
    folder = found.folder
    options = None
    with found.reading(OPTIONS_FILE):
        options = FinetuneOptions.load(folder / OPTIONS_FILE).resolved()
    report = _report_of(found)
    runs = list(options.runs()) if options else []
    if report:
        _check_model(found)
        _check_digests(found, REPORT, report.get("crc32", {}), crc32_of)
    if len(runs) > 1:
        found.kind = "sweep"
        _check_runs(found, runs, is_finished=bool(report))
        return
    last = _check_training(found, report, None, 2)
    plan = last.state.get("plan", {}) if last else {}
    if last and options and not report and "best" in plan:
        with found.reading(BEST):
            # The checkpoint does not know yet of an epoch that is later.
            if stored_epoch(folder)["step"] <= last.state["step"]:
                files = (TAGGER_WEIGHTS_FILE,) if options.feature_based else (CONFIG_FILE, WEIGHTS_FILE)
                state: Any = SimpleNamespace(plan=plan)
                best_epoch(folder, state, files)


def _check_runs(found: Verification, names: list[str], is_finished: bool) -> None:
    """Check the runs of a sweep; those that were given up have a note only."""
    whole = 0
    for name in names:
        place = found.folder / name
        if (place / OPTIONS_FILE).is_file() and not (place / FAILED).is_file():
            part = Verification(place)
            check_folder(part)
            found.include(part)
            whole += not part.findings
        elif is_finished and not (place / FAILED).is_file():
            found.wrong(name, f"the folder of this run of the sweep is missing; {COPY}.")
    found.right(f"{whole} of {counted(len(names), 'run')} of the sweep are whole")


def _report_of(found: Verification) -> Mapping[str, Any] | None:
    """Return the report of a run; None if it has none, or one that can't be read."""
    with found.reading(REPORT):
        if (found.folder / REPORT).exists():
            report: Mapping[str, Any] = Run.open(found.folder).report
            return report
    return None


def _check_shards(found: Verification, tokenizer: Tokenizer | None) -> None:
    """Check the token shards of a run, and that they are of its vocabulary; others elsewhere are not read."""
    shards = found.folder / "shards"
    if (shards / ELSEWHERE).exists():
        found.right("shards: in another folder, which is not read")
        return
    if not shards.exists():
        return
    with found.reading("shards"):
        opened = open_shards(shards, tokenizer)
        found.right(f"shards: {opened.n_tokens:,} tokens of {counted(opened.n_documents, 'document')}")


def load_kept(path: Path, config: Any, numbers: int) -> Checkpoint | None:
    """Load a checkpoint; None if the run, which may be going on, has removed it in the meantime.

    Parameters
    ----------
    path : Path
        The checkpoint, which was there when the folder was listed.
    config : BertConfig, BilstmConfig or None
        The configuration that it must have; None for any.
    numbers : int
        How many numbers a position in the data has.

    Returns
    -------
    Checkpoint or None

    Raises
    ------
    InputError
        When it is damaged, or has another configuration.
    """
    try:
        return load_checkpoint(path, config, numbers)
    except InputError:
        if os.path.lexists(path):
            raise
        return None


def _check_training(
    found: Verification, report: Mapping[str, Any] | None, config: Any, numbers: int
) -> Checkpoint | None:
    """Check checkpoints and log of a run; return the last checkpoint that can be read.

    `config` is what checkpoints must have, or None; `numbers` counts those of a position in the data.
    """
    kept = {}
    last = None
    for path in checkpoints(found.folder / CHECKPOINTS):
        with found.reading(f"{CHECKPOINTS}/{path.name}"):
            if checkpoint := load_kept(path, config, numbers):
                last = checkpoint
                kept[last.state["step"]] = last.state.get("tokens", 0)
    end = report["steps"] if report else None
    newest = max(kept, default=0)
    is_ahead = end is not None and newest > end  # of the report, which is of an earlier end
    reached = 0
    if os.path.lexists(found.folder / METRICS) or newest or end:
        with found.reading(METRICS):
            reached = check_log(found, kept, None if is_ahead else end)
    if found.kind == "pre-training run" and end is not None and newest < end:
        what = f"there is no checkpoint of the last step, {end:,}, so that the run can't be resumed"
        found.wrong(CHECKPOINTS, f"{what}; {COPY}.")
    state = "unfinished" if end is None or max(newest, reached) > end else "finished"
    if kept:
        state += f", {counted(len(kept), 'checkpoint')} up to step {newest:,}"
    found.right(f"run: {state}; log up to step {reached:,}")
    return last
