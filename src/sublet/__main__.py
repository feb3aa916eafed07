"""``python -m sublet`` is the console script."""

import sys

from sublet.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
