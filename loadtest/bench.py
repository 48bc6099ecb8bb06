"""`make bench`, or `python -m loadtest.bench`: the way into `loadtest.load.bench`."""

import sys

from loadtest.load.bench import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
