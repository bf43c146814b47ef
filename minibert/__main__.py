"""`python -m minibert` is the command `minibert`."""

import os
import sys

INTERRUPTED = 130  # as minibert.cli has it, which is not loaded yet


def main() -> int:
    """Run the command of this process; Ctrl-C ends it without a traceback even while modules are loaded."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started this: nothing to read, nobody who reads
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    try:
        from minibert import cli

        return cli.main()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
