"""Bad input is refused with a sentence, by its party, before anything is sent."""

import re
from typing import Any

import numpy as np
import pytest
from tests.protocols.ranksearch.worlds import bound
from tests.protocols.ring.cheats import ask_nonsense
from tests.protocols.ring.worlds import culprits, play
from typing_extensions import override

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import InputError, RunFailed
from veilring.nodes.adversary import Alter
from veilring.nodes.party import ForwardingParty, Party
from veilring.protocols.batches import Queries
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch import SearchedRows, rank_search
from veilring.protocols.ranksearch.algorithm.votes import TIED_ROWS, Votes
from veilring.protocols.ranksearch.system import RankSearch
from veilring.testing import ProtocolRunner
from veilring.transport.messages import Message

NAMES = ["ada", "bob", "cyd"]
PUBLIC = bound(2, 2, k=2)
ROWS = Rows(np.array([[0.0, 0.5], [1.0, 0.5]]), np.array([0, 1]))
QUERIES = np.array([[0.25, 0.5]])


class Mute(ForwardingParty):
    """A party that must not send anything."""

    @override
    async def send(self, to: str, message: Message) -> None:
        raise AssertionError(f"{message.kind} was sent to {to}")


async def refuse(party: Party, *, rows: Rows, queries: Floats | None) -> str:
    """Play the client, and return its error about its own input, without its name."""
    own = SearchedRows(rows)
    with pytest.raises(InputError) as caught:
        await rank_search(Mute(party), own, client=party.me, parameters=PUBLIC, queries=queries)
    return str(caught.value).replace(party.me, "the asker")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"queries": np.zeros((1, 3))},
            r"queries has the shape \(1, 3\); it must be \(queries, 2\)",
        ),
        ({"queries": np.zeros(2)}, r"queries has the shape \(2,\)"),
        ({"queries": np.zeros((0, 2))}, "queries is 0; allowed: 1 to"),
        ({"queries": np.zeros((70_000, 2))}, "queries is 70000; allowed: 1 to"),
        ({"queries": np.full((1, 2), 2.0)}, "queries must be numbers from 0 to 1"),
        ({"queries": np.full((1, 2), -0.1)}, "queries must be numbers from 0 to 1"),
        ({"queries": np.full((1, 2), np.nan)}, "queries must be numbers from 0 to 1"),
        ({"queries": np.full((1, 2), np.inf)}, "queries must be numbers from 0 to 1"),
        ({"queries": None}, "the asker is the client and needs a batch of queries"),
        (
            {"rows": Rows(np.zeros((1, 3)), np.array([0]))},
            "the rows have 3 features; the parameters have 2",
        ),
        (
            {"rows": Rows(np.zeros((1, 2)), np.array([2]))},
            "labels must be below 2, the number of classes",
        ),
        (
            {"rows": Rows(np.zeros((4, 2)), np.zeros(4, int))},
            "rows is 4; allowed: at most 3 among 3 parties",
        ),
        ({"parties": NAMES[:2]}, "parties is 2; allowed: 3 to"),
    ],
    ids=str,
)
async def test_invalid_input(
    changed: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each party that asks is told its mistake, and nothing is sent.

    If too many rows tied, their votes would not fit a word. Two parties know each other's counts
    from the total.
    """
    monkeypatch.setattr("veilring.protocols.ranksearch.parameters.TIED_ROWS", 9)
    parties = changed.pop("parties", NAMES)
    run = await play(refuse, names=parties, **{"rows": ROWS, "queries": QUERIES, **changed})
    (error,) = set(run.results.values())
    assert re.search(said, error)
    assert run.cost.setup.messages == run.cost.messages == 0


@pytest.mark.parametrize("parties", [3, 4, 8])
def test_the_maximum_number_of_tied_rows_fits_a_word(parties: int) -> None:
    """All rows of all parties may tie and have one class: their total is below 2^32."""
    each = np.array([[TIED_ROWS // parties]], dtype=np.uint64)
    tied = np.array([True])
    arrays = zip(*(Votes(each).arrays(tied, 1) for _ in range(parties)), strict=True)
    total = Votes.of([np.add.reduce(words, dtype=words[0].dtype) for words in arrays], tied)
    assert total.counts.tolist() == (each * parties).tolist()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"features": 0}, "features is 0; allowed: at least 1"),
        ({"classes": 0}, "classes is 0; allowed: at least 1"),
        (
            {"k": 21_840, "reveal": "votes"},
            'k is 21840; allowed: 1 to 21,839 with reveal = "votes"',
        ),
        (
            {"reveal": "label", "weights": "distance"},
            'weights = "distance" needs reveal = "totals" or "votes"',
        ),
        ({"k": 65_534, "parties": 65_538}, "parties is 65538; allowed: 3 to 65,537"),
        ({"reveal": "votes", "parties": 10_921}, "parties is 10921; allowed: 3 to 10,920"),
    ],
    ids=str,
)
def test_parameters_out_of_range(changed: dict[str, Any], said: str) -> None:
    """The error names the parameter and the allowed values; totals must fit a word or a field."""
    parties = changed.pop("parties", 3)
    with pytest.raises(InputError, match=said):
        bound(**{"features": 2, "classes": 2, **changed}).check_parties(parties)


def test_a_setup_refuses_invalid_parties() -> None:
    """Too few parties, and rows of another schema, are refused before any party starts."""
    with pytest.raises(InputError, match="parties is 2"):
        RankSearch().setup({"ada": ROWS, "bob": ROWS}, Facts(2, 2, 2))
    with pytest.raises(InputError, match="the rows have 2 features"):
        RankSearch().setup(dict.fromkeys(NAMES, ROWS), Facts(3, 3, 2))


def test_a_client_with_invalid_queries_is_named(run_protocol: ProtocolRunner) -> None:
    """All others end the run with its name, and none of them has sent a count."""
    with pytest.raises(RunFailed) as caught:
        run_protocol(
            rank_search,
            NAMES,
            own=[SearchedRows(ROWS) for _ in NAMES],
            adversaries={"bob": Alter(ask_nonsense, only=(Queries,))},
            only={"bob": {"queries": QUERIES}},
            client="bob",
            parameters=PUBLIC,
        )
    assert culprits(caught.value) == {"bob"}
