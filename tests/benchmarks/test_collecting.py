"""A benchmarked collection: real processes, with every report on disk."""

import os

import pytest
from benchmarks.collecting import Drive, drive_collection


@pytest.mark.slow
def test_every_report_of_a_driven_collection_is_durable() -> None:
    """One collector stores a survey client's reports over TLS; bytes and memory include both."""
    seen = list[int]()

    def spent(process: int) -> float:
        seen.append(process)
        return 10.0 * len(seen)

    found = drive_collection(200, Drive(survey_clients=1, at_once=64, spent=spent))
    assert found.reports == 200
    assert found.seconds > 0
    # An id of 16 bytes each, and its report.
    assert found.wire_bytes > 200 * 16 < found.disk_bytes
    assert found.mib > 10
    assert found.spent == 10.0
    assert seen[0] == seen[1] != os.getpid()
