"""The command line.

`veilring.cli.app` builds it from one module per command. This module imports nothing slow, because
a party's process imports the module that its launcher was started from.
"""

__all__ = ("main",)


def main() -> None:
    """Run the command line on `sys.argv` and exit."""
    from veilring.cli.app import app

    app()
