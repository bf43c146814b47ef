"""`python -m minibert` is the command `minibert`."""

import sys

INTERRUPTED = 130  # as minibert.cli has it, which is not loaded yet


def main() -> int:
    """Run the command of this process; Ctrl-C ends it without a traceback even while modules are loaded."""
    try:
        from minibert import cli

        return cli.main()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
