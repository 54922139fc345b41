"""What a collection asks of each client: the part of its terms that is about no column."""

from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, Field

from veilring.config import Section
from veilring.protocols.ldp.algorithm.means import Approach
from veilring.protocols.ldp.algorithm.oracle import REPORT_EPSILON_MAX, FrequencyOracle
from veilring.protocols.ldp.algorithm.planner import ORACLES, recommend_oracle

# More bins than this tell nothing that noise would not drown.
BINS_MAX: Final = 1024


class SurveySection(Section):
    """What is asked of each client, and how its answer is hidden.

    Attributes:
        kind: `frequency` of the values of one column, `means` of columns, or naive Bayes.
        epsilon: What a client's one report may spend.
        oracle: How values are hidden; `auto` takes the best for each domain.
        approach: How means are hidden.
        bins: Into how many parts a range is cut where values are asked for.
        minimum: How many reports there must be before anything is estimated.
        closes: After this no new report is taken.
    """

    kind: Literal["frequency", "means", "discrete-bayes", "gaussian-bayes"] = Field(
        description="frequency, means, discrete-bayes or gaussian-bayes"
    )
    epsilon: float = Field(
        gt=0,
        le=REPORT_EPSILON_MAX,
        description=f"a number above 0 and up to {REPORT_EPSILON_MAX:g}",
    )
    oracle: str = Field("auto", description=f"auto, {', '.join(ORACLES)}")
    approach: Approach = Field("one-feature", description="all-features, one-bit or one-feature")
    bins: int = Field(8, ge=2, le=BINS_MAX, description=f"a whole number from 2 to {BINS_MAX}")
    minimum: int = Field(1000, ge=1, description="a whole number of at least 1")
    closes: Annotated[AwareDatetime, Field(strict=False)] | None = Field(
        None, description="a date and time with its zone, such as 2027-01-31T00:00:00Z"
    )

    def oracle_for(self, values: int) -> FrequencyOracle:
        """Return the oracle for a domain of so many values."""
        if self.oracle == "auto":
            return recommend_oracle(values, self.epsilon).oracle
        return ORACLES[self.oracle](values, self.epsilon)
