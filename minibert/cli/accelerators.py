"""Flags of the engine JAX: how many devices compute a step, what they keep, and many processes as one run."""

import argparse
from typing import Any

from minibert import backends
from minibert.cli.flags import BOTH_WAYS
from minibert.errors import InputError

CLUSTER = "auto"  # as --coordinator: JAX asks the cluster
HELP = """
accelerators, --backend jax:
  The same model and the same steps, compiled by XLA for the devices that JAX
  finds: NVIDIA's GPUs (pip install 'jax[cuda13]'), TPUs, otherwise the
  processor. --dtype auto is bfloat16 on a GPU or TPU. A step is compiled when
  the first batch of its shape comes: up to a minute, left out of the speeds
  that are shown; JAX_COMPILATION_CACHE_DIR=FOLDER keeps the result for the next
  run. Where memory is short, --accumulate costs least, then --recompute, then
  --fsdp over several devices. Checkpoints are the same for every engine:
  --resume with another --backend or other --devices continues where the run
  stopped.
  On many machines, start the same command on each, with its own --process-id.
"""


def add_accelerators(parser: Any) -> None:
    """Their group of flags."""
    group = parser.add_argument_group("devices, with --backend jax")
    group.add_argument(
        "--devices",
        type=int,
        metavar="N",
        help="number of devices, each of which computes a part of the batch; the result is that of one "
        "(default: all that JAX finds)",
    )
    group.add_argument(
        "--fsdp",
        action=BOTH_WAYS,
        help="keep only a part of the parameters and moments on each device, for models that are too large "
        "for one",
    )
    group.add_argument(
        "--recompute",
        action=BOTH_WAYS,
        help="keep only the input of each layer and compute the rest again in the backward pass: much less "
        "memory for a third more arithmetic",
    )
    group.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="address at which process 0 of a run on many machines listens; auto, without the two flags "
        "below: SLURM, Kubernetes, Open MPI or the TPUs supply all three",
    )
    group.add_argument("--processes", type=int, metavar="N", help="number of processes")
    group.add_argument("--process-id", type=int, metavar="I", help="number of this process, from 0")


def join_processes(arguments: argparse.Namespace, backend: str) -> None:
    """Make this process one of many, if the command line says so.

    Raises
    ------
    InputError
        When it says so in part, something impossible, or of another engine than JAX.
    """
    names = ("coordinator", "processes", "process_id")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    if not given:
        return
    said = " and ".join(f"{name}={value!r}" for name, value in given.items())
    if backend != "jax":
        raise InputError(f"{said} is for backend='jax'; leave it out or choose that.")
    if given == {"coordinator": CLUSTER}:
        backends.join(CLUSTER)
        return
    lacking = [name for name in names if name not in given]
    if lacking:
        raise InputError(f"{said} needs {' and '.join(lacking)} too; give all three, or coordinator='auto'.")
    host, _, port = arguments.coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(
            f"coordinator={arguments.coordinator!r} is not HOST:PORT; name the machine of process 0 and a "
            "free port on it, as in node0:9876."
        )
    if arguments.processes < 1:
        raise InputError(f"processes={arguments.processes} is not a positive number; say how many there are.")
    if not 0 <= arguments.process_id < arguments.processes:
        raise InputError(
            f"process_id={arguments.process_id} is not one of {arguments.processes}; count them from 0 to "
            f"{arguments.processes - 1}."
        )
    backends.join(arguments.coordinator, arguments.processes, arguments.process_id)
