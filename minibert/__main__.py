"""`python -m minibert` is the command `minibert`."""

import sys

from minibert.cli import main

if __name__ == "__main__":
    sys.exit(main())
