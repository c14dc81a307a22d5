"""``python -m headrace``: the command line."""

import sys

from headrace import _headrace


def main() -> int:
    """Runs the command line of this process."""
    return _headrace.main(["headrace", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
