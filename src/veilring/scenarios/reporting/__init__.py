"""What a run leaves behind: its folder, the page made of it, and the same for a terminal."""

from veilring.scenarios.reporting.folder import (
    RunFolder,
    open_folder,
    read_folder,
    write_failure,
    write_report,
)

__all__ = ("RunFolder", "open_folder", "read_folder", "write_failure", "write_report")
