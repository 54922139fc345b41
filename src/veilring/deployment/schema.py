"""The schema shared by all parties; the terms of a system add its parameters."""

from typing import Any, Self

from typing_extensions import override

from veilring.data.schema import RowSchema, feature_terms
from veilring.data.table import Table
from veilring.deployment.config import Terms
from veilring.protocols.promise import Facts


class Schema(RowSchema, Terms):
    """How to read a row. The terms of a system add its parameters."""

    def facts(self, parties: int, rows: int | None = None) -> Facts:
        """Return the public facts about the data of the given number of parties."""
        return Facts(parties, self.width, len(self.classes), rows, schema=self.encoded)

    @classmethod
    def of_table(cls, table: Table, **tables: Any) -> Self:
        """Return terms that fit a table, for examples in which one process has all rows.

        Args:
            table: All rows; the ranges are the table's own, see `feature_terms`.
        """
        columns = {"classes": table.features.classes, "features": feature_terms(table.features)}
        return cls.of(**columns | tables)

    @override
    def checked(self, parties: int | None = None) -> Self:
        self.require_sound()
        return self
