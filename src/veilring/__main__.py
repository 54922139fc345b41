"""`python -m veilring` is the same as `veilring`."""

from veilring.cli import main

if __name__ == "__main__":
    main()
