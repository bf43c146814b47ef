"""Check every hand-written gradient: the proof sheet.

Checks the forward and backward pass of every operation of an engine, at awkward
sizes: in float64 against the complex-step derivative of the reference, which is
exact up to rounding, and in float32 against float64. Prints a line for each
operation, precision and size, with its error, the bound and the verdict. The
exit status is 1 if one of them fails. --html also writes a page with a plot of
errors and bounds, and the source line of each operation.

examples:
  minibert gradcheck
  minibert gradcheck --engine numpy --engine cpp --html proof.html
  minibert gradcheck --operation attention --operation layer_norm --json
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from minibert import engines
from minibert.base.errors import InputError
from minibert.base.files import atomic_text, require_folder
from minibert.base.terminal import emit, json_text
from minibert.cli.shared.flags import JSON, add_engine, add_flag, add_switches
from minibert.training.runlog import logger


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    text = "only this operation; repeat the flag for more (default: all)"
    add_flag(parser, "--operation NAME", text, action="append")
    add_flag(parser, "--dtype", "only this precision (default: both)", choices=("float64", "float32"))
    add_flag(parser, "--seed N", "seed of inputs and directions", 0)
    add_flag(parser, "--html FILE", "also write the sheet as a page")
    text = "an engine to check; repeat the flag for more (default: auto)"
    add_engine(parser, default=None, action="append", help=text)
    add_switches(parser, json=JSON)


def run(arguments: Namespace) -> int:
    """Check the gradients, and print the sheet.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Returns
    -------
    int
        The exit status: 1 when a gradient is wrong.

    Raises
    ------
    InputError
        When --seed is negative, or the page can't be written.
    """
    from minibert.gradcheck import sheet as gradcheck

    if arguments.seed < 0:
        raise InputError(f"--seed {arguments.seed} is negative; give 0 or more.")
    if arguments.html:  # before the work
        if Path(arguments.html).is_dir():
            raise InputError(f"--html {arguments.html} is a folder; name a file in it.")
        require_folder(Path(arguments.html).parent, "another --html")
    engines.limited_threads(arguments.threads or 1)  # more threads only slow down small matrices
    by_name = {}
    for name in arguments.engine or ["auto"]:
        engine = engines.create(name, arguments.threads)
        by_name[engine.name] = engine
    checked = by_name.values()
    dtypes = (arguments.dtype,) if arguments.dtype else ("float64", "float32")
    rows = gradcheck.proof_sheet(checked, dtypes=dtypes, operations=arguments.operation, seed=arguments.seed)
    if arguments.html:
        from minibert.gradcheck.page import proof_page

        atomic_text(arguments.html, proof_page(rows, checked))
        logger.info(f"The proof sheet is in {arguments.html}.")
    if arguments.json:
        emit(json_text([row._asdict() for row in rows]))
    else:
        emit(gradcheck.format_sheet(rows))
    return int(any(row.verdict != "ok" for row in rows))
