"""Many processes as one training, by JAX's own distributed runtime.

Each process has some devices and makes its own stretch of every batch; the first one coordinates the others
and writes. This file is imported before anything else of JAX: devices are looked for once.
"""

import jax

from minibert.errors import InputError, RunError

HEARTBEAT = 20  # seconds without a sign of life after which a process counts as gone
WAIT = 120  # seconds in which all processes have to come


def join(coordinator: str, processes: int | None = None, process_id: int | None = None) -> None:
    """Wait for the other processes of a training, and be one of them from here on.

    Parameters
    ----------
    coordinator : HOST:PORT of the first process, the same for all; "auto" where SLURM, Kubernetes, Open MPI
        or another cluster that JAX knows says all this in the environment.
    processes : how many there are; None with "auto".
    process_id : which one this is, from 0; None with "auto".

    Raises
    ------
    InputError
        When the environment does not say it, or the address can't be used.
    RunError
        When the others do not come.
    """
    auto = coordinator == "auto"
    try:
        jax.distributed.initialize(
            None if auto else coordinator,
            processes,
            process_id,
            initialization_timeout=WAIT,
            heartbeat_timeout_seconds=HEARTBEAT,
        )
    except ValueError as error:
        what = "the environment says too little" if auto else "it can't be used"
        raise InputError(
            f"coordinator={coordinator!r}: {what} ({error}); give --coordinator HOST:PORT --processes N "
            "--process-id I to every process."
        ) from error
    except RuntimeError as error:  # what XLA's own errors are
        raise RunError(
            f"Not all {processes} processes came to {coordinator} within {WAIT} seconds "
            f"({str(error).splitlines()[0]}); start them all, and see that they reach that address."
        ) from error
