"""What a run leaves behind: its folder, the page made of it, and the same for a terminal."""

from veilring.scenarios.reporting.folder import (
    Failure,
    RunFolder,
    open_folder,
    read_folder,
    write_failure,
    write_report,
)

__all__ = ("Failure", "RunFolder", "open_folder", "read_folder", "write_failure", "write_report")
