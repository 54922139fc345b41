"""The command line.

`veilring.cli.app` builds it; each command is a module of its own. This module stays light, because
a party's process imports what its launcher was started from.
"""

__all__ = ("main",)


def main() -> None:
    """Run the command line on `sys.argv` and exit."""
    from veilring.cli.app import app

    app()
