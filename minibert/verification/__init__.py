"""Verify that the folder of a run or a model is whole, and recompute a step that its log has recorded.

`findings` has the result, `folders` what is compared, `logs` the log of a run, `replay` a step computed
again. Nothing is written or unpickled, and nothing outside of the folder is read; only `replay` reads all
that the run would read.
"""

from pathlib import Path

from minibert.base.errors import InputError
from minibert.base.model_names import no_such_model, on_disk
from minibert.tokenizer import native
from minibert.verification.findings import Finding, Verification
from minibert.verification.folders import LINKED, check_folder, check_pickle
from minibert.verification.replay import replay_step

__all__ = ["Finding", "Verification", "verify"]


def verify(folder: str | Path, *, replay: int | None = None) -> Verification:
    """Check that the folder of a run or a model is whole.

    Parameters
    ----------
    folder : str or path
        The folder of a run, finished or not, of a sweep or a model; the name of a model on the Hub that is in
        Hugging Face's cache; or a pickle, whose imports are listed without loading it.
    replay : int, optional
        Compute this step of a pre-training run again, from the last checkpoint before it or from the
        beginning, and compare the result with the log bit by bit.

    Returns
    -------
    Verification
        Its `findings` are [] if nothing is wrong.

    Raises
    ------
    InputError
        When there is no run or model of that name, a file is not a pickle, or the step to replay is not in
        the log of a pre-training.

    Examples
    --------
    >>> print(minibert.verify("runs/books"))  # doctest: +SKIP
    OK     model: 1,286,466 parameters, finite and of the shapes in config.json
    OK     vocabulary: 8,192 pieces
    OK     run: finished, 1 checkpoint up to step 1,000; log up to step 1,000
    """
    path = on_disk(folder, is_checked=False)  # a damaged file of a model in the package is a finding
    found = Verification(path)
    native.load()  # if it warns, it does so here, where no warning is taken for a finding
    if path.is_dir():
        check_folder(found)
    elif not path.exists():
        raise no_such_model(folder)
    else:
        found.kind = "pickle"
        check_pickle(found, path)
    if replay is not None and found.kind != LINKED:
        if found.kind != "pre-training run":
            message = f"{replay=} is for a pre-training run, and '{folder}' is a {found.kind}; leave it out."
            raise InputError(message, replay=replay)
        replay_step(found, replay)
    return found
