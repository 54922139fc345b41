"""An example of a deployment: its options, which a command offers, and the files that it writes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from veilring.config import Section
from veilring.data.table import TEST_SHARE, Table, TrainTestSplit, split
from veilring.deployment.config import STATE_SUFFIX
from veilring.errors import InputError
from veilring.randomness import Streams

TermsSettings = Mapping[str, Any]
"""Keys of terms: a value, or a table of keys."""
NO_SETTINGS: Final[TermsSettings] = {}

IN_PRODUCTION: Final = (
    "In production each party makes its own key (`veilring keys new`), and the ranges in terms.toml"
    " come from the possible values of each column, never from rows."
)
"""The last paragraph of a command's help."""
# The number of batches that a budget pays for: the second shows that answers add up, the third is
# refused.
BATCHES: Final = 2


def hold_out(table: Table, seed: int, *, clients: int, option: str) -> TrainTestSplit:
    """Return the rows to serve, and the queries of the clients.

    Args:
        table: The table; a quarter of its rows become queries.
    """
    held_out = split(table, TEST_SHARE, Streams(seed).generator("split"))
    if not 1 <= clients <= len(held_out.held_out):
        raise InputError(option, clients, f"1 to {len(held_out.held_out)}, as queries")
    return held_out


class NewDeployment(NamedTuple):
    """The destination and the settings of a new example.

    Attributes:
        folder: The folder, which must not exist.
        port: The port of the first party that listens; the others get the following ports.
    """

    folder: Path
    seed: int
    port: int
    settings: TermsSettings = NO_SETTINGS

    def serve(self, name: str) -> str:
        """Return the command that starts a party."""
        return f"serve {self.folder / name}.toml"

    def send(self, command: str, name: str, ending: str = ".csv") -> str:
        """Return the command with which a client sends a file of rows, such as `ask`."""
        return f"{command} {self.folder / name}.toml {self.folder / name}{ending}"

    def show(self, name: str) -> str:
        """Return the command that shows the spent budget."""
        return f"ledger show {self.folder / name}{STATE_SUFFIX}"


def numbered(kind: str, count: int) -> list[str]:
    """Return the names of members of one kind: client-0, client-1 and so on."""
    return [f"{kind}-{number}" for number in range(count)]


class Example(Section, ABC):
    """A small deployment of one system. A subclass adds the options of its command as fields."""

    section: ClassVar[type[Section] | None] = None
    """The model of the terms' table `protocol`, whose keys are options, too."""
    in_production: ClassVar[str] = IN_PRODUCTION
    """The difference of a real deployment, for the command's help."""
    source: ClassVar[str] = "Data set, such as wine, or a path to a .csv file."
    """The source of the rows, for the command's help."""
    metavar: ClassVar[str] = "SOURCE"
    """The name of the argument with the source."""
    draws: ClassVar[str] = "Seed of the split."
    """The use of the seed, for the command's help; empty if the example needs no seed."""
    ports: ClassVar[str] = "Port of the server."
    """The parties that listen, for the command's help."""

    @property
    def needs_label(self) -> bool:
        """Whether a file needs a column besides the label."""
        return True

    @abstractmethod
    def write(self, source: Any, to: NewDeployment) -> tuple[str, ...]:  # noqa: ANN401  (a subclass's own kind)
        """Write keys, roster, terms, rows, queries and configurations into a new folder.

        Args:
            source: A `Table` with all rows; for places, the path of a CSV file.

        Returns:
            The commands to try, without the word `veilring`.
        """

    def tables(self, settings: TermsSettings, **usual: object) -> dict[str, Any]:
        """Return the tables of the terms: the defaults, overridden by settings."""
        protocol = {k: v for k, v in usual.items() if v is not None}
        return override_tables({"protocol": protocol}, settings)


def override_tables(usual: Mapping[str, Any], settings: TermsSettings) -> dict[str, Any]:
    """Return the usual tables of terms, overridden by settings."""
    tables = dict(usual)
    for name, value in settings.items():
        both = isinstance(value, Mapping) and isinstance(tables.get(name), dict)
        tables[name] = {**tables[name], **value} if both else value
    return tables
