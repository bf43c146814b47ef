"""Flags of the engine JAX: the devices that compute a step, what they keep, and runs of many processes."""

import argparse
from typing import Any

from minibert import engines
from minibert.base.errors import InputError
from minibert.base.options import RunOptions
from minibert.cli.shared.flags import add_flag, add_options, flag_of

CLUSTER = "auto"  # value of --coordinator: JAX asks the cluster
HELP = """
accelerators, --engine jax:
  The same model and the same steps, compiled by XLA for the devices that JAX
  finds: NVIDIA GPUs (pip install 'jax[cuda13]'), TPUs, or else the processor.
  --dtype auto is bfloat16 on a GPU or TPU. The first batch of each shape makes
  JAX compile a step, for up to a minute, which the speeds shown don't include;
  JAX_COMPILATION_CACHE_DIR=FOLDER keeps the result for the next run. When
  memory is short, --accumulate costs least, then --recompute, then --fsdp over
  several devices. Checkpoints are the same for every engine: --resume with
  another --engine or other --devices continues where the run stopped.
"""
MANY = "  On several machines, run the same command on each, with its own --process-id.\n"


def add_accelerators(parser: Any, options: type[RunOptions]) -> Any:
    """Add the group of flags about devices.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of the command.
    options : type
        The options of the command's runs, which describe the flags.

    Returns
    -------
    argument group
        The group, for more flags, such as those of `add_processes`.
    """
    group = parser.add_argument_group("devices, with --engine jax")
    add_options(group, options, "devices fsdp recompute")
    return group


def add_processes(group: Any) -> None:
    """Add the flags of a run on several machines.

    Parameters
    ----------
    group : argument group
        The group that `add_accelerators` returned.
    """
    text = "address at which process 0 of a run on several machines listens; auto: SLURM, Kubernetes, "
    text += "Open MPI or the TPUs supply it and the two flags below"
    add_flag(group, "--coordinator HOST:PORT", text)
    add_flag(group, "--processes N", "number of processes")
    add_flag(group, "--process-id I", "index of this process, from 0", type=int)


def join_processes(arguments: argparse.Namespace, engine: str) -> None:
    """Make this process one of several, if the command line says so.

    Parameters
    ----------
    arguments : Namespace
        Has `coordinator`, `processes` and `process_id`; each None if not given.
    engine : str
        The name of the run's engine.

    Raises
    ------
    InputError
        When the engine is not jax, one of the three flags is missing, or one can't be used.
    """
    names = ("coordinator", "processes", "process_id")
    flags = {flag_of(name): getattr(arguments, name) for name in names}
    given = [flag for flag, value in flags.items() if value is not None]
    if not given:
        return
    shown = " and ".join(f"{flag} {flags[flag]}" for flag in given)
    if engine != "jax":
        raise InputError(f"{shown} is for --engine jax; leave it out, or choose that engine.")
    if given == ["--coordinator"] and arguments.coordinator == CLUSTER:
        engines.join(CLUSTER)
        return
    missing = " and ".join(flag for flag in flags if flag not in given)
    if missing:
        raise InputError(f"{shown} needs {missing} too; give all three, or --coordinator auto.")
    coordinator, processes, process_id = flags.values()
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        advice = "name the machine of process 0 and a free port on it, as in node0:9876."
        raise InputError(f"--coordinator {coordinator} is not HOST:PORT; {advice}")
    if processes < 1:
        raise InputError(f"--processes {processes} is not a positive number; give the number of processes.")
    if not 0 <= process_id < processes:
        advice = f"count them from 0 to {processes - 1}."
        raise InputError(f"--process-id {process_id} is not one of the {processes} processes; {advice}")
    engines.join(coordinator, processes, process_id)
