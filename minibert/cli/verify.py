"""Check that the folder of a run or a model is whole.

Compares what the files in a folder state about themselves and about each other:
checksums, shapes, vocabulary, positions, labels, stored options, checkpoints,
token shards, and the log, which has a line for every step. Each finding is one
line that says what is wrong and what to do; the exit status is 1 if there is
any. Unfinished runs, sweeps and models of other libraries can be checked as
well. Nothing is written, and nothing outside of the folder is read.

--replay computes a step of a pre-training run again, from the last checkpoint
before it or from the beginning, and compares it with the log bit by bit. It
reads what the run would read, such as token shards in another folder.

For a pickle, such as pytorch_model.bin, it lists what loading the file would
import and may call, without loading it.

examples:
  minibert verify runs/books
  minibert verify runs/books --replay 100
  minibert verify pytorch_model.bin
"""

from argparse import ArgumentParser, Namespace

from minibert.base.terminal import emit, json_text
from minibert.cli.shared.flags import JSON, add_flag, add_switches


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    text = "folder of a run or a model, or a pickle, such as pytorch_model.bin"
    parser.add_argument("folder", metavar="PATH", help=text)
    add_flag(parser, "--replay N", "step of a pre-training run to compute again")
    add_switches(parser, json=JSON)


def run(arguments: Namespace) -> int:
    """Print what is right and what is wrong.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Returns
    -------
    int
        1 if something is wrong, otherwise 0.
    """
    from minibert.verification import verify

    found = verify(arguments.folder, replay=arguments.replay)
    emit(json_text(found.to_json()) if arguments.json else str(found))
    return int(bool(found.findings))
