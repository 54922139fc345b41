"""The role of a party in statistics among peers: one masked sum in each round of a plan.

Parties with different plans have different hashes, and nothing is opened. A last round confirms the
totals, so that no two honest parties end with different results.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from veilring.nodes.party import Party
from veilring.privacy.checks import require_that
from veilring.protocols.digests import digest_of, digest_of_names
from veilring.protocols.masks import MaskedSums, agree_keys
from veilring.protocols.release.algorithm.noise import Account
from veilring.protocols.statistics.algorithm.columns import Encoded
from veilring.protocols.statistics.plan import Heard, Plan


async def sum_statistics(
    party: Party,
    table: Mapping[str, ArrayLike],
    *,
    plan: Plan,
    charge: Callable[[Account | None], object] | None = None,
) -> tuple[Any, ...]:
    """Compute the statistics of a plan from the rows of all parties.

    Args:
        table: The party's private columns by name, each of shape (rows,); it may have no rows.
        charge: Called with the guarantee of the plan, none for an exact one, before this party
            sends any message about its rows. From then on others may obtain the totals, so the
            budget is spent even if the run fails. If it raises an error, nothing is sent.

    Returns:
        The result of each statistic, equal at all parties.

    Raises:
        InputError: If the table does not fit the plan. Nothing was sent then, and the other parties
            learn only that this one gave up.
        ProtocolViolation: If a peer sent something that no honest party sends.
        Tampered: If parties have different plans or totals.
    """
    encoded = plan.encode(table)
    return plan.estimate(plan.publish(await sum_totals(party, encoded, plan=plan, charge=charge)))


async def sum_totals(
    party: Party,
    encoded: Encoded,
    *,
    plan: Plan,
    charge: Callable[[Account | None], object] | None = None,
) -> Heard:
    """Return the totals of a plan, which readers of its results may not see: see `Plan.publish`.

    Args:
        encoded: The result of `Plan.encode`.
        charge: As in `sum_statistics`.
    """
    require_that(
        len(party.parties) == plan.parties,
        "parties",
        f"the plan is for {plan.parties} parties, but {len(party.parties)} take part",
    )
    sums = MaskedSums(party, await agree_keys(party))
    sums.bind(digest_of(digest_of_names(party.parties), plan.digest))
    if charge is not None:
        charge(plan.account)
    heard = plan.silence
    for _ in range(plan.rounds):
        (total,) = await sums.add((plan.tally(encoded, heard, party.rng),))
        heard = plan.read(np.asarray(total, np.int64), heard)
    await sums.confirm()
    return heard
