"""Say what is wrong with a training, from its log and its folder.

Reads the folder of a run of pretrain or finetune, finished or not, and names
what is wrong with the training, the likeliest cause first: a line of evidence,
and a line on what to do. The rules look at the losses, gradients, rates and
speeds of the steps, at what was measured beside the simple baselines, at the
text and the labels as far as the report describes them, and at the weights.

Exit status: 0 if nothing was found or there are too few steps to judge, 1 if
something was found, 2 if there is no run, or none that has begun to train.

examples:
  minibert doctor runs/books
  minibert doctor runs/sst2 --json
"""

from argparse import ArgumentParser, Namespace

from minibert.base.terminal import counted, emit, json_text, printable
from minibert.cli.shared.flags import JSON, add_switches


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.add_argument("folder", metavar="RUN", help="folder of a run, which may still be training")
    add_switches(parser, json=JSON)


def run(arguments: Namespace) -> int:
    """Print the findings; return 1 if there are any.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Returns
    -------
    int
        The exit status.

    Raises
    ------
    InputError
        When the folder holds no run, or one that can't be read.
    """
    from pathlib import Path

    from minibert.base.files import is_in_use
    from minibert.experiments.comparison import read_run
    from minibert.reports.doctor import LEAST_STEPS, Record, examine, resolved

    folder = Path(arguments.folder)
    compared = read_run(folder)
    in_use = is_in_use(folder) or is_in_use(folder.absolute().parent)  # as a run of a sweep
    options = resolved(compared.options, folder)
    record = Record(folder, options, compared.lines, compared.report or {}, in_use)
    findings = examine(record)
    steps = len(record.steps)
    if arguments.json:
        found = [finding._asdict() for finding in findings]
        emit(json_text({"folder": str(folder), "judged": record.can_be_judged, "findings": found}))
    elif findings:
        for finding in findings:
            for line in finding.text().splitlines():
                emit(printable(line))
    elif not record.can_be_judged:
        verb = "is" if steps == 1 else "are"
        emit(f"{counted(steps, 'step')} {verb} too few to judge; at least {LEAST_STEPS} are needed.")
    else:
        emit(f"Nothing was found in {counted(steps, 'step')}.")
    return int(bool(findings))
