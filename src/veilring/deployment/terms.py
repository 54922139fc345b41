"""The terms: what all parties of a deployment have agreed to run, and on which schema."""

from functools import cached_property
from pathlib import Path

from veilring.config import as_scenario_errors, read_toml
from veilring.data import Table
from veilring.deployment.schema import Schema, features_of_table
from veilring.protocols.ring import KNNParameters
from veilring.scenarios.prepare import KNN_KEYS, knn_parameters
from veilring.scenarios.schema import ProtocolSection


class Terms(Schema):
    """What a ring runs, and how a row is read.

    Attributes:
        protocol: As in a scenario.
    """

    protocol: ProtocolSection = ProtocolSection()

    @cached_property
    def parameters(self) -> KNNParameters:
        """The protocol's public parameters."""
        return knn_parameters(self.protocol, self.width, len(self.classes))


def load_terms(path: Path, parties: int | None = None) -> Terms:
    """Read a file of terms and check it.

    Args:
        path: The file.
        parties: How many there are, if that is known: some ways to sum need more than others.

    Raises:
        ScenarioError: With all mistakes: the key, its value and what is allowed.
    """
    terms = read_toml(path, Terms).checked()
    with as_scenario_errors({**KNN_KEYS, "parties": "roster"}, "protocol"):
        parameters = terms.parameters
        if parties is not None:
            parameters.sum.check(parties)
    return terms


def terms_of_table(table: Table, protocol: ProtocolSection) -> Terms:
    """Return terms that fit a table: for trials, where one holds all rows.

    The ranges are the table's own: see `features_of_table`.
    """
    return Terms(protocol=protocol, classes=table.class_names, features=features_of_table(table))
