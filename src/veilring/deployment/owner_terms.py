"""The terms of a data owner: what it answers, how, and how a row is read."""

from functools import cached_property
from pathlib import Path
from typing import Literal, Self

from pydantic import Field
from typing_extensions import override

from veilring.config import Section, as_scenario_errors, read_toml
from veilring.data import Table
from veilring.deployment.schema import Schema, features_of_table
from veilring.protocols.radius.algorithm.allocation import AllocationRule
from veilring.protocols.radius.algorithm.conversion import (
    GRID_FEATURES_MAX,
    ByCandidates,
    ByGrid,
    Conversion,
)
from veilring.protocols.radius.algorithm.voting import Mechanism
from veilring.protocols.radius.rules import Accounting, OwnerRules


class LabellingSection(Section):
    """How a data owner labels: see `veilring.protocols.radius.rules.OwnerRules`.

    Attributes:
        accounting: Who pays for an answer.
        allocation: By what a query's share of a batch's budget is divided.
        mechanism: How a label is chosen.
        conversion: How k becomes radii. `auto` is `grid` with up to six features, `candidates` with
            more, and `none` where rows have budgets of their own.
        rows: How many rows there are, if that is public; 0 if it is not, and has to be paid for.
        count_share: Which share of a request with k counts the rows then.
        conversion_share: Which share of the rest turns k into radii.
        epsilon_max: What a request may spend.
        batch_max: How many queries it may have.
    """

    accounting: Accounting = Field("batch", description="batch or record")
    allocation: AllocationRule = Field("clique", description="clique, component or batch")
    mechanism: Mechanism = Field(
        "permute-and-flip", description="permute-and-flip, exponential or laplace"
    )
    conversion: Literal["auto", "grid", "candidates", "none"] = Field(
        "auto", description="auto, grid, candidates or none"
    )
    rows: int = Field(0, ge=0, description="a whole number of at least 0")
    count_share: float = Field(0.1, description="a number from 0.01 to 0.99")
    conversion_share: float = Field(0.5, description="a number from 0.01 to 0.99")
    epsilon_max: float = Field(1.0, description="a number above 0")
    batch_max: int = Field(1000, description="a whole number of at least 1")


class OwnerTerms(Schema):
    """What a data owner answers, and how a row is read.

    Attributes:
        labelling: How it labels.
    """

    labelling: LabellingSection = LabellingSection()

    @cached_property
    def rules(self) -> OwnerRules:
        """The protocol's public rules."""
        chosen = self.labelling
        return OwnerRules(
            features=self.width,
            classes=len(self.classes),
            accounting=chosen.accounting,
            allocation=chosen.allocation,
            mechanism=chosen.mechanism,
            conversion=self._conversion(),
            rows=chosen.rows or None,
            count_share=chosen.count_share,
            conversion_share=chosen.conversion_share,
            epsilon_max=chosen.epsilon_max,
            batch_max=chosen.batch_max,
        )

    @override
    def checked(self) -> Self:
        super().checked()
        with as_scenario_errors({}, "labelling"):
            _ = self.rules  # which checks what it is made of
        return self

    def _conversion(self) -> Conversion | None:
        chosen = self.labelling.conversion
        if chosen == "auto" and self.labelling.accounting == "record":
            return None
        if chosen == "auto":
            return ByGrid() if self.width <= GRID_FEATURES_MAX else ByCandidates()
        named: dict[str, Conversion | None] = {"grid": ByGrid(), "candidates": ByCandidates()}
        return named.get(chosen)


def load_owner_terms(path: Path) -> OwnerTerms:
    """Read a file of terms and check it.

    Raises:
        ScenarioError: With all mistakes: the key, its value and what is allowed.
    """
    return read_toml(path, OwnerTerms).checked()


def owner_terms_of_table(table: Table, labelling: LabellingSection) -> OwnerTerms:
    """Return terms that fit a table: for trials, where one holds all rows.

    Raises:
        ScenarioError: If they do not fit together.
    """
    return OwnerTerms(
        labelling=labelling, classes=table.class_names, features=features_of_table(table)
    ).checked()
