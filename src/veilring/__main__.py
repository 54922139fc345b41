"""`python -m veilring`: the command line."""

from veilring.cli import main

if __name__ == "__main__":
    main()
