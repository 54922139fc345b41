"""`veilring serve`: one party of noisy votes, with a ledger of its own."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from veilring.deployment.config import AnAddress, FilePath, TermsConfig, load_credentials
from veilring.deployment.connecting import meeting
from veilring.deployment.ranges import OUTSIDE_MAX, OutsideMax
from veilring.deployment.votes_terms import VotesTerms, load_votes_terms
from veilring.errors import InputError, ScenarioError
from veilring.nodes.party import Parties
from veilring.nodes.service import Service
from veilring.privacy.ledger import Budgets, open_ledger
from veilring.protocols.noisyvotes.member import VotesMember
from veilring.transport.roster import Roster
from veilring.transport.tls import LOOPBACK

_log = logging.getLogger("veilring.votes")

_AN_AMOUNT: Final = "a number of at least 0"
_Amount = Annotated[float, Field(ge=0, description=_AN_AMOUNT)]


class VotesMemberConfig(TermsConfig):
    """A party that labels queries together with all others, by noisy votes.

    Attributes:
        role: `votes-member`.
        rows: The CSV file with this party's own rows; the label is its last column.
        ledger: The file that remembers what was spent, and the labels of each batch that was asked
            here.
        amend: Whether another budget than before is meant; what was spent stays spent.
        outside_max: The share of a column's values that may lie outside of its public range. With
            more the party does not start.
        listen: The address to listen at; loopback unless it says otherwise.
    """

    role: Literal["votes-member"] = Field(description="votes-member")
    rows: FilePath
    ledger: FilePath = "votes.db"
    client: _Amount | None = Field(None, description=_AN_AMOUNT)
    clients: Mapping[str, _Amount] = Field({}, description="a table of names and numbers")
    amend: bool = Field(default=False, description="true or false")
    outside_max: OutsideMax = OUTSIDE_MAX
    listen: AnAddress = LOOPBACK


async def serve_votes(
    config: VotesMemberConfig, *, on_ready: Callable[[VotesMember], None] | None = None
) -> None:
    """Vote until cancelled.

    All files are read and checked first; then the member waits for the others, and answers. Until
    all are there it refuses requests, and names the parties it waits for. A member that was lost is
    dialled again, and takes part again in what is asked after that.

    Args:
        config: Which files to read, and where to listen.
        on_ready: Called once all members are connected.

    Raises:
        ScenarioError: If a file does not fit.
        InputError: If another process writes the ledger, or it was begun with other budgets.
        HandshakeError: If a member is missing after a day.
        StoreFailed: If the disk fails. What was answered until then is on it.
    """
    identity, roster = load_credentials(config)
    terms = load_votes_terms(Path(config.terms), len(roster.parties))
    rows = terms.read_own_rows(Path(config.rows), config.outside_max, _log)
    budgets = _budgets(config, terms, roster)
    with open_ledger(Path(config.ledger), budgets, amend=config.amend) as ledger:
        place = (config.listen, _log, config.limits, terms.keys)
        async with meeting(identity, roster, *place) as met:
            parties, limits = Parties(roster.parties), config.limits
            member = VotesMember(
                met.node, rows, parties, terms.parameters, ledger, terms.digest, limits
            )
            async with Service(met.node, member.offers()):
                await met.all_here()
                _log.info("%s is ready", met.node.name)
                if on_ready is not None:
                    on_ready(member)
                await met.stay(member.failure())


def _budgets(config: VotesMemberConfig, terms: VotesTerms, roster: Roster) -> Budgets:
    strangers = sorted(set(config.clients) - (set(roster.names) - set(roster.parties)))
    if strangers:
        raise ScenarioError("clients", ", ".join(strangers), "clients of the roster")
    total, each = terms.votes.budget, dict(config.clients)
    if config.client is not None:  # which limits clients, not the parties that they ask
        each |= dict.fromkeys(roster.parties, total)
    try:
        return Budgets("epsilon", total, config.client, each)
    except InputError as error:
        key = error.field.replace("analyst", "client", 1)
        raise ScenarioError(key, error.value, error.allowed) from error
