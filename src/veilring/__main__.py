"""`python -m veilring`: the command line."""

from veilring.cli import main

__all__ = ()

if __name__ == "__main__":
    main()
