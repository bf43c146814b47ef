"""Rerun the paper's ablations scaled down: Tables 1 and 5-8, Figure 5.

Pre-trains and fine-tunes what a table of the paper compares, at a chosen scale
and with several seeds, and judges each ordering that the paper reads from it:
yes, no, undecided or at the floor, with a confidence interval. The tables are
printed, and written to tables.txt and index.html; results.jsonl has every
result. A training that several tables need runs once, and the page has every
table in the folder. The same command, given again, continues where it stopped
and runs only what is missing. A training that diverges is marked, and the exit
status is then 1.

examples:
  minibert reproduce all --scale smoke --out runs/smoke
  minibert reproduce table5 figure5 --scale laptop --data data --text enwiki.txt.xz --out runs/laptop
  minibert reproduce table7 --model all-MiniLM-L6-v2 --data conll2003 --scale day --out runs/table7
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from minibert.base.errors import InputError
from minibert.base.terminal import emit, json_text
from minibert.cli.shared import flags

NAMES = ("table1", "table5", "table6", "table7", "table8", "figure5")
SIZES = ("smoke", "laptop", "day")


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage line.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert reproduce TABLE [TABLE ...] --out DIR [--scale NAME] [--seeds N] [...]"
    text = f"{', '.join(NAMES)} or all"
    parser.add_argument("tables", nargs="+", choices=(*NAMES, "all"), metavar="TABLE", help=text)
    flags.add_flag(parser, "--out DIR", "folder of results and models", required=True)
    text = "smoke: minutes, to see that it runs; laptop: a night; day: a day on many cores"
    flags.add_flag(parser, "--scale", text, "smoke", choices=SIZES)
    flags.add_flag(parser, "--seeds N", "trainings for each cell (default: depends on the scale)")
    text = "folder with the files of tasks, directly or in glue, squad, ner or pairs; tasks without files "
    flags.add_flag(parser, "--data DIR", text + "are replaced by others, or by made-up ones")
    text = "text to pre-train on, as pretrain reads it; repeat the flag for more (default: the books)"
    parser.add_argument("--text", metavar="CORPUS", action="append", default=[], help=text)
    text = "a trained BERT, instead of pre-training one (table1, table7)"
    flags.add_flag(parser, "--model MODEL", text)
    flags.add_flag(parser, "--minutes N", "start no training that would take longer", type=float)
    flags.add_switches(parser, quiet=flags.QUIET, json=flags.JSON)


def run(arguments: Namespace) -> int:
    """Run what the tables compare, and print them.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Returns
    -------
    int
        The exit status: 1 when a training failed.

    Raises
    ------
    InputError
        When --seeds, --model or --data can't be used.
    """
    from minibert.experiments import page
    from minibert.experiments.cells import Plan
    from minibert.experiments.judged import Judged, judge_all
    from minibert.experiments.runner import Results, reproduce
    from minibert.experiments.scales import SCALES
    from minibert.experiments.tables import TABLES
    from minibert.training.runlog import logger

    names = list(NAMES) if "all" in arguments.tables else list(dict.fromkeys(arguments.tables))
    scale = SCALES[arguments.scale]
    out = Path(arguments.out)
    data = arguments.data
    if arguments.seeds is not None and arguments.seeds < 1:
        raise InputError(f"--seeds {arguments.seeds} leaves nothing to train; give at least 1.")
    others = sorted(set(names) - {"table1", "table7"})
    if arguments.model and others:
        what = f"--model takes the place of one pre-training, but {', '.join(others)} compares several"
        raise InputError(f"{what}; give it with table1 and table7 only.")
    if data and not Path(data).is_dir():
        raise InputError(f"--data {data} is not a folder; name the folder with the files of the tasks.")
    plan = Plan(out, scale, data and Path(data), tuple(arguments.text), arguments.model)
    seeds = range(arguments.seeds or scale.seeds)
    tables = [TABLES[name] for name in names]
    judged: list[Judged] = []

    def write(results: Results) -> None:
        judged.extend(judge_all(plan, tables, results, seeds))
        page.write(out, plan, results, judged)

    try:
        reproduce(plan, tables, seeds, minutes=arguments.minutes, show=not arguments.quiet, write=write)
    except KeyboardInterrupt:
        if not arguments.quiet:
            logger.info("The same command continues where it was stopped.")
        raise
    requested = [table for table in judged if table.table.name in names]
    if arguments.json:
        emit(json_text([table.to_json() for table in requested]))
    else:
        texts = "\n\n".join(map(page.table_text, requested))
        emit(f"{texts}\n\nPage: {out / page.PAGE}")
    return int(any(table.failed for table in requested))
