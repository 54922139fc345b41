"""The outputs of a run: its folder, the HTML page made from it, and the diagram for a terminal."""

from veilring.scenarios.reporting.folder import (
    RunFolder,
    open_folder,
    read_folder,
    write_failure,
    write_report,
)

__all__ = ("RunFolder", "open_folder", "read_folder", "write_failure", "write_report")
