"""How long pre-training BERT takes on 1 to 1,024 devices: a plan to think with, nothing is measured.

    python benchmarks/scale_plan.py [--device h200] [--link ib-400] [--size base large] [--devices 1 8 64]
        [--batch 256] [--mfu 0.4 | --measured FILE] [--fsdp] [--recompute] [--overlap 0.5] [--json]
        [--tflops N] [--memory GB] [--bandwidth GB/s]

Three rates decide. A device multiplies at its peak times the MFU, the model FLOP utilisation: the operations
that the mathematics needs, over those it could have done in that time. It updates parameters as fast as its
memory is read and written. And it sends gradients through its link. With twice the devices the first takes
half the time; the second stays as it is, unless --fsdp divides it; the third even grows a little, until a
device waits longer than it computes. Then only a larger batch helps: more to compute for every byte sent.

Some to try:
    --link nvlink --devices 1 2 4 8         one node of eight GPUs
    --link 400                              nodes of eight GPUs, with eight adapters of 400 Gb/s used at once
    --link eth-10                           when the network is the slowest
    --batch 65536 --devices 256 1024        batches that LAMB is for (You et al. 2020)
    --device a100 --memory 12               what has to change on a small device
    --device this --size base --devices 1   this machine: its multiply-adds, copies and memory
    --device h200 --measured rows.json      the MFU that `benchmarks/step.py --engine jax --json` has found
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

from peers import scale_report
from peers.bench import require, say
from peers.hardware import BATCH, DEVICES, GB, LENGTHS, LINKS, THIS, this_machine
from peers.scale_report import Case
from peers.scaling import Device, Plan, parameters, updating_seconds

from minibert.config import SIZES, BertConfig
from minibert.errors import InputError

COUNTS = tuple(2**n for n in range(11))
MFU = 0.4


class Measured(NamedTuple):
    """What `benchmarks/step.py` found of one size."""

    peak: float  # operations a second, the highest of the rows
    mfu: dict[int, float]
    how: str


def measured(path: str, size: str, bandwidth: float) -> Measured:
    """MFU from the rows of `benchmarks/step.py --json`: the fastest of this size and length, or the nearest.

    Those are whole steps; the updating in them is taken off, as the plan counts it by itself.

    Raises
    ------
    InputError
        When the file has no such rows, or a step took no longer than updating does at this bandwidth.
    """
    try:
        rows = json.loads(Path(path).read_text("utf-8"))
        rows = [row for row in rows if row["peak_gflops"] and row["lengths"] == "full"]
        keyed = {
            seq: max(rows, key=lambda row: (row["size"] == size, row["seq"] == seq, row["useful_gflops"]))
            for seq, _ in LENGTHS
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--measured {path} has no rows of benchmarks/step.py with full sequences and a peak "
            f"({type(error).__name__}: {error}); write them with its --json."
        ) from None
    peak, rates, names = max(row["peak_gflops"] for row in rows) * 1e9, {}, []
    for seq, row in keyed.items():
        whole = statistics.median(row["seconds"])
        updating = updating_seconds(parameters(BertConfig.from_size(row["size"])), bandwidth)
        if updating >= whole:
            raise InputError(
                f"A step in {path} took {whole:.3g} s, but at {bandwidth / GB:g} GB/s updating alone takes "
                f"{updating:.3g} s; give --device or --bandwidth of the device that was measured."
            )
        rates[seq] = row["useful_gflops"] * 1e9 * whole / (whole - updating) / peak
        names.append(
            f"{seq} by {row['engine']}, {row['dtype']}, {row['size']}, {row['batch']} × {row['seq']}"
        )
    return Measured(peak, rates, "measured: " + "; ".join(names))


def parser() -> argparse.ArgumentParser:
    """The options."""
    first, rest = __doc__.split("\n\n", 1)
    found = argparse.ArgumentParser(
        description=first,
        epilog=rest.split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    devices, links = (
        ", ".join([*DEVICES, THIS]),
        ", ".join(f"{name} {rate:g}" for name, rate in LINKS.items()),
    )
    found.add_argument("--device", default="h200", metavar="NAME", help=f"{devices} (measured now)")
    found.add_argument(
        "--tflops", type=float, metavar="N", help="instead of the device's: 10^12 operations/s"
    )
    found.add_argument("--memory", type=float, metavar="GB", help="instead of the device's")
    found.add_argument("--bandwidth", type=float, metavar="GB/s", help="of memory, instead of the device's")
    found.add_argument(
        "--link", default="ib-400", metavar="NAME", help=f"GB/s that a device sends, or: {links}"
    )
    found.add_argument("--size", nargs="+", default=["base", "large"], metavar="NAME", help="default: both")
    found.add_argument("--devices", nargs="+", type=int, default=list(COUNTS), metavar="N", help="how many")
    found.add_argument(
        "--batch",
        type=int,
        default=BATCH,
        metavar="N",
        help="sequences of 512 a step, or four times as many of 128",
    )
    found.add_argument("--mfu", type=float, metavar="SHARE", help=f"of the peak; default: {MFU}")
    found.add_argument("--measured", metavar="FILE", help="the MFU from what step.py --json has printed")
    found.add_argument("--fsdp", action="store_true", help="divide parameters, gradients and moments")
    found.add_argument("--recompute", action="store_true", help="keep less for backward, compute more")
    found.add_argument(
        "--overlap", type=float, default=0.0, metavar="SHARE", help="of the traffic; default: 0"
    )
    found.add_argument("--json", action="store_true", help="print rows and assumptions")
    found.add_argument("--quick", action="store_true", help="for `make bench`; a plan takes no time anyway")
    return found


def check(options: argparse.Namespace) -> None:
    """Raise InputError for what cannot be."""
    require("--device", [options.device], [*DEVICES, THIS])
    require("--size", options.size, SIZES)
    for name in ("tflops", "memory", "bandwidth"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise InputError(f"--{name} {value:g} is not a positive number; give one.")
    for name, least in (("mfu", 1e-6), ("overlap", 0.0)):
        value = getattr(options, name)
        if value is not None and not least <= value <= 1:
            raise InputError(f"--{name} {value:g} is not a share; give a number between 0 and 1.")
    if options.mfu is not None and options.measured:
        raise InputError("--mfu and --measured are both given; give one of them.")
    if min([*options.devices, options.batch]) < 1:
        raise InputError("--devices and --batch are counts; give whole numbers of at least 1.")


def link_rate(name: str) -> float:
    """Bytes a second."""
    try:
        rate = LINKS[name] if name in LINKS else float(name)
    except ValueError:
        rate = 0.0
    if not rate > 0:
        raise InputError(f"--link {name} is none of {', '.join(LINKS)}; give one of them, or GB/s.")
    return rate * GB


def chosen_device(options: argparse.Namespace) -> Device:
    """By name, with the figures that are given instead of its own."""
    device = this_machine() if options.device == THIS else DEVICES[options.device]
    given = {"flops": options.tflops, "memory": options.memory, "bandwidth": options.bandwidth}
    unit = {"flops": 1e12, "memory": GB, "bandwidth": GB}
    changed = {name: value * unit[name] for name, value in given.items() if value is not None}
    if changed:
        device = device._replace(**changed, source=f"{device.source}, and as given")
    return device


def case_of(options: argparse.Namespace, size: str) -> Case:
    """Everything about one size."""
    device = chosen_device(options)
    mfu, how = dict.fromkeys((seq for seq, _ in LENGTHS), options.mfu or MFU), "which is assumed"
    if options.measured:
        peak, mfu, how = measured(options.measured, size, device.bandwidth)
        device = device._replace(flops=peak, source=f"{device.source}, the first figure as measured")
    plan = Plan(
        BertConfig.from_size(size),
        device,
        link_rate(options.link),
        mfu,
        fsdp=options.fsdp,
        recompute=options.recompute,
        overlap=options.overlap,
    )
    return Case(size, plan, how, options.batch, options.devices)


def main(arguments: list[str] | None = None) -> int:
    """Print a plan; the exit status."""
    options = parser().parse_args(arguments)
    try:
        check(options)
        cases = [case_of(options, size) for size in options.size]
    except InputError as error:
        say(str(error))
        return 2
    if options.json:
        print(json.dumps([case.record() for case in cases], indent=1))
    else:
        print(scale_report.text(cases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
