"""Attacks of a semi-honest coalition on PP-TopK and on secure sums, using its members' views.

Each attack is a function of the coalition's joint view: of a real run with watched parties, or of
simulated runs. `leakage` estimates how much can be learned; attacks extract it.

`claim_new`
    The simple attack on PP-TopK: new entries belong to the party that passed them on.
`sandwich_posterior`, `fit_cells`
    The optimal attack: the probability that an entry is the victim's own, exactly for two colluders
    around it, by simulation for others.
`recover_input`, `recover_groups`
    On secure sums: a party's input, and the sums of groups of honest parties.
`recurring`, `find_owners`
    Over repetitions of a query: the values that are real, and their owners.
`attack_table`, `tracing_success`, `expected_hits`
    The success of these attacks.
"""

from veilring.protocols.ring.attacks.posterior import (
    AttackRow,
    CellPosterior,
    Setting,
    attack_table,
    decide_by,
    fit_cells,
    sandwich_posterior,
)
from veilring.protocols.ring.attacks.runs import (
    CoalitionView,
    recover_groups,
    recover_input,
    topk_view,
)
from veilring.protocols.ring.attacks.views import (
    Owners,
    Success,
    TopKView,
    UniformPrior,
    claim_new,
    expected_hits,
    find_owners,
    judge_claims,
    owned,
    recurring,
    simulated_view,
    tracing_success,
)

__all__ = (
    "AttackRow",
    "CellPosterior",
    "CoalitionView",
    "Owners",
    "Setting",
    "Success",
    "TopKView",
    "UniformPrior",
    "attack_table",
    "claim_new",
    "decide_by",
    "expected_hits",
    "find_owners",
    "fit_cells",
    "judge_claims",
    "owned",
    "recover_groups",
    "recover_input",
    "recurring",
    "sandwich_posterior",
    "simulated_view",
    "topk_view",
    "tracing_success",
)
