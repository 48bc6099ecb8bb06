import sys

from loadtest.inspector.start import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
