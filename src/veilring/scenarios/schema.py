"""What a scenario says: its tables and keys, their defaults, and what each may be.

The description of a field is the text of what is allowed, as errors show it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny

from veilring.config import Section
from veilring.data import PartitionKind
from veilring.data.csv import SEPARATORS_ALLOWED, Separator
from veilring.data.table import ALPHA_MAX, ALPHA_MIN
from veilring.nodes.ring import PARTIES_MIN
from veilring.protocols.registry import find_system
from veilring.protocols.system import PARTIES, System

PROTOCOL_DEFAULT: Final = "private-knn"

_Whole = Annotated[int, Field(ge=1)]


class DataSection(Section):
    """Which rows there are, and which of them are held out and labelled.

    Attributes:
        source: A data set: see `veilring.data.load`. In a scenario file, a relative path is
            relative to that file.
        label: In a CSV file: the column with the class of each row; the last one if empty.
        separator: In a CSV file: what stands between the cells of a line.
        test_share: The share of the rows that is held out.
        queries: At most how many of the held-out rows are labelled.
    """

    source: str = Field(
        description="wine, breast-cancer, digits, iris, openml:NAME, or a path to a .csv or an .npz"
    )
    label: str = Field("", description="the header of a column, or nothing for the last one")
    separator: Separator = Field(",", description=SEPARATORS_ALLOWED)
    test_share: float = Field(0.25, gt=0, lt=1, description="a number above 0 and below 1")
    queries: _Whole | Literal["all"] = Field(
        "all", description='a whole number of at least 1, or "all"'
    )


class PartitionSection(Section):
    """Who holds which of the other rows: see `veilring.data.table`.

    Attributes:
        kind: How they are dealt.
        alpha: For `dirichlet`: the smaller, the more uneven.
        sizes: For `sizes`: the rows of each party.
    """

    kind: PartitionKind = Field("iid", description="iid, dirichlet, by-label or sizes")
    alpha: float = Field(
        1.0,
        ge=ALPHA_MIN,
        le=ALPHA_MAX,
        description=f"a number from {ALPHA_MIN:g} to {ALPHA_MAX:g}",
    )
    sizes: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)] = Field(
        (), description="a list of whole numbers of at least 0, one for each party"
    )


class PartiesSection(Section):
    """Who takes part: a number of parties, or their names; and who of them colludes.

    Attributes:
        count: `party-0`, `party-1`, … this many.
        names: Instead of a count.
        coalition: Parties that follow the protocol and pool what they see. The attacks that they
            make of it are run, and held against the truth.
    """

    count: int | None = Field(
        None, ge=PARTIES_MIN, description=f"a whole number of at least {PARTIES_MIN}"
    )
    names: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        (), description=f"a list of at least {PARTIES_MIN} different names, or none"
    )
    coalition: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        (), description="a list of names of parties, or none"
    )

    @property
    def all(self) -> tuple[str, ...]:
        """The names of all parties."""
        return self.names or tuple(f"party-{n}" for n in range(self.count or PARTIES))


def _as_system(value: object) -> object:
    """Make the system that a table of parameters names."""
    if not isinstance(value, Mapping):
        return value
    return find_system(str(value.get("name", PROTOCOL_DEFAULT))).model_validate(value)


def _default_system() -> System:
    return find_system(PROTOCOL_DEFAULT)()


Protocol = Annotated[SerializeAsAny[System], BeforeValidator(_as_system)]
"""What the parties run: a system, or the table of its parameters with its `name`."""


class NetworkSection(Section):
    """Where the parties live, and what the links between them are like on the simulated clock.

    Attributes:
        runtime: `processes` and `tls` use real sockets; `memory` and `simulated` none.
        latency: A law of durations, such as `{ law = "constant", seconds = 0.02 }`.
        jitter: A law of durations that are added to the latency.
        bandwidth_bytes_per_second: Of each link, each way; without it bytes take no time.
        graph: Which parties have a link; others' messages are forwarded.
    """

    runtime: Literal["memory", "tls", "processes", "simulated"] = Field(
        "processes", description="memory, tls, processes or simulated"
    )
    latency: dict[str, Any] = Field(
        {"law": "constant", "seconds": 0.0},
        description='a law, such as { law = "constant", seconds = 0.02 }',
    )
    jitter: dict[str, Any] = Field(
        {"law": "constant", "seconds": 0.0},
        description='a law, such as { law = "exponential", mean_seconds = 0.002 }',
    )
    bandwidth_bytes_per_second: float | None = Field(
        None, gt=0, description="a number above 0; leave it out for no limit"
    )
    graph: str = Field(
        "complete", description="complete, cycle, path, star, or a path to a .graphml"
    )


class RunSection(Section):
    """How the run is repeated and what is estimated beside it.

    Attributes:
        seed: Makes every draw the same again, the parties' secrets among them: for experiments.
        leakage_trials: How many runs the estimate of what a hop leaks is made of; 0 for none. A
            coalition simulates as many at most.
        retries: How often a batch is run again without the parties that were lost; with 0, a
            party that is lost ends the run.
        session_seconds: The limit on one attempt at a batch; the runtime's own unless given.
        fault_seconds: On the simulated clock, faults of all classes are drawn from the seed and
            strike in this time from the start; none unless given.
    """

    seed: int | None = Field(None, ge=0, description="a whole number of at least 0")
    leakage_trials: Annotated[int, Field(ge=2)] | Literal[0] = Field(
        5_000, description="0, or a whole number of at least 2"
    )
    retries: int = Field(0, ge=0, description="a whole number of at least 0")
    session_seconds: float | None = Field(
        None, gt=0, description="a number above 0; leave it out for the runtime's own"
    )
    fault_seconds: float | None = Field(
        None, gt=0, description="a number above 0; leave it out for no drawn faults"
    )


class Scenario(Section):
    """An experiment, completely described.

    Attributes:
        name: What it is called; that of its file unless it says otherwise.
        description: One line on what it shows.
        data: Which rows.
        partition: Who holds them.
        parties: Who takes part.
        protocol: What they run.
        network: Where they live.
        run: How it is repeated.
        adversaries: Which parties are malicious, and how: see
            `veilring.protocols.ring.adversaries`.
        faults: What goes wrong on the simulated clock, and when: see `veilring.scenarios.faults`.
    """

    name: str = Field("scenario", description="a name")
    description: str = Field("", description="one line of text")
    data: DataSection
    partition: PartitionSection = PartitionSection()
    parties: PartiesSection = PartiesSection()
    protocol: Protocol = Field(default_factory=_default_system)
    network: NetworkSection = NetworkSection()
    run: RunSection = RunSection()
    adversaries: dict[str, dict[str, Any]] = Field(
        {}, description='a table for each malicious party, such as { kind = "inflate-topk" }'
    )
    faults: Annotated[tuple[dict[str, Any], ...], Field(strict=False)] = Field(
        (),
        description='a list of tables, such as { kind = "crash", party = "party-1",'
        " start_seconds = 1.0 }",
    )
