"""Runs the command line with `python -m veilring`."""

from veilring.cli import main

if __name__ == "__main__":
    main()
