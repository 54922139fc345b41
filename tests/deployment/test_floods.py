"""Floods by one member: their effect on a deployed server and on other members.

No assertion depends on the speed of the machine; `benchmarks/flood.py` measures times.
"""

from collections.abc import Iterator

import pytest
from benchmarks.flood import RawMember, Server, idle, let_in, start_flood

pytestmark = pytest.mark.slow

FRAMES = 100_000
SECONDS = 1.0  # the maximum duration of an attack after it is cut off
MIB_MAX = 64.0
LINES_MAX = 100
HONEST, NEWCOMER = "survey-client-0", "survey-client-1"
CUT_OFF = ("garbage", "opens", "unread")
HEARD = ("tiny", "early", "large", "stragglers", "offered")
FLOODERS = {kind: f"survey-client-{number}" for number, kind in enumerate((*CUT_OFF, *HEARD), 2)}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Serve a collection whose roster has a member for each flood."""
    with Server(2 + len(FLOODERS)) as serving:
        yield serving


@pytest.mark.parametrize("kind", FLOODERS)
def test_a_flood_is_withstood(server: Server, kind: str) -> None:
    """Others are served meanwhile; memory and log stay small, and the culprit is named."""
    mib, lines = server.resident_mib(), len(server.lines())
    peak, asked = mib, 0
    with let_in(server, HONEST) as honest:
        frames = 100 if kind == "large" else FRAMES
        flood = start_flood(server.folder, FLOODERS[kind], kind, frames, SECONDS)
        try:
            while flood.poll() is None or asked < 20:
                honest.ask()
                asked += 1
                peak = max(peak, server.resident_mib())
                if asked == 20:
                    RawMember(server.folder, NEWCOMER).socket.close()
        finally:
            flood.kill()
            sent = flood.communicate()[0]
        honest.ask()
    assert int(sent) > 0
    assert max(peak, server.resident_mib()) - mib <= MIB_MAX
    written = server.lines()[lines:]
    assert len(written) <= LINES_MAX
    cut = [line for line in written if f"has cut off {FLOODERS[kind]} and refuses it" in line]
    if kind == "offered":  # it reads all answers, but on a busy machine perhaps too slowly
        cut = [line for line in cut if "did not read the reasons" not in line]
    assert bool(cut) == (kind in CUT_OFF), written


def test_members_connect_despite_idle_connections(server: Server) -> None:
    """Two hundred silent connections from one address block no member."""
    lines = len(server.lines())
    with let_in(server, HONEST) as honest, idle(server.address, 200):
        for _ in range(3):
            with RawMember(server.folder, NEWCOMER) as newcomer:
                newcomer.ask()
            honest.ask()
    assert len(server.lines()) - lines <= LINES_MAX
