"""Compare runs: their metrics, curves, and the options that differ.

Compares several runs of pretrain, or several runs of finetune for one task:
their final metrics, and the options that differ. If the runs have predictions
for the same examples, it adds the differences from the first run, with 95%
intervals from a paired bootstrap over the examples. --out writes a page with
the same content, and with the curves of the loss and of the metric. For a run
that is still training, the curves show what there is so far.

examples:
  minibert compare runs/books runs/books-2 --out books.html
  minibert compare runs/tiny runs/mini --by minutes --out sizes.html
  minibert compare runs/rte-*/ --json
"""

from argparse import ArgumentParser, Namespace

from minibert.base.errors import InputError
from minibert.base.terminal import emit, json_text
from minibert.cli.shared import flags


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage line.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert compare RUN RUN [RUN ...] [--by NAME] [--out FILE] [--json]"
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run; give 2 to 8")
    text = "horizontal axis of the curves on the page (default: step)"
    flags.add_flag(parser, "--by", text, choices=("step", "tokens", "minutes"))
    flags.add_flag(parser, "--out FILE", "the page to write, such as comparison.html")
    flags.add_switches(parser, json=flags.JSON)


def run(arguments: Namespace) -> None:
    """Print the comparison, and write the page.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When --by is given without a page, or a run can't be read.
    """
    from minibert.base.files import page_path, require_folder
    from minibert.experiments.comparison import compare

    if arguments.by and not arguments.out:
        raise InputError("--by is for the curves, which are only on the page; name the page with --out.")
    if arguments.out:  # before the work
        require_folder(page_path(arguments.out).parent)
    comparison = compare(arguments.runs, arguments.by or "step")
    page = comparison.write(arguments.out) if arguments.out else None
    if arguments.json:
        emit(json_text(comparison.to_json() | {"page": page and str(page)}))
    elif page:
        emit(f"{comparison.text()}\n\nPage: {page}")
    else:
        emit(comparison.text())
