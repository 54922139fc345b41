"""A comparison: its lines, and the decision from them."""

from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Final

from veilring.measures import CONFIDENCE
from veilring.protocols.promise import delta_warning
from veilring.scenarios.comparison.decision import Decision
from veilring.scenarios.comparison.lines import MAJORITY, POOLED, Left, Line, as_plain, find_line
from veilring.scenarios.comparison.question import Question, TableFacts
from veilring.scenarios.comparison.tuning import INTERVAL

if TYPE_CHECKING:
    import polars as pl

_KEYS: Final = ("system", "form", "epsilon")
_SEEDED: Final = (
    "All noise here was drawn from the seed: no ε holds against someone who knows it. Deployed"
    " parties draw their noise in secret."
)
_UNPROTECTED: Final = (
    "A comparison reads all rows in one place and no ε covers it. Run it on public or synthetic"
    " rows of the same shape, or on your own part."
)


@dataclass(frozen=True, slots=True)
class SystemComparison:
    """The results of a comparison.

    Attributes:
        lines: The baselines, then one line for each system, form and ε, in the order of the
            registry.
    """

    question: Question
    facts: TableFacts
    lines: tuple[Line, ...]
    decision: Decision
    left_out: tuple[Left, ...]
    rules: tuple[tuple[str, str], ...]
    versions: dict[str, str] = field(default_factory=dict)
    interval: str = INTERVAL
    seeded: str = _SEEDED
    unprotected: str = _UNPROTECTED

    @property
    def pooled(self) -> Line:
        """The line of the pooled classifier."""
        return find_line(self.lines, POOLED)

    @property
    def majority(self) -> Line:
        """The line of the majority class."""
        return find_line(self.lines, MAJORITY)

    @property
    def splits(self) -> int:
        """The number of splits that were drawn."""
        return len(self.pooled.accuracies)

    @property
    def delta_warning(self) -> str:
        """A warning if the largest δ is too large for the parties' rows; otherwise empty."""
        deltas = (line.privacy.delta for line in self.lines if line.privacy is not None)
        return delta_warning(max(deltas, default=0.0), self.facts.train)

    def _repr_html_(self) -> str:
        from veilring.scenarios.comparison.page import cells, headings  # noqa: PLC0415  (it imports this module)

        rows = [cells(line, self.decision) for line in self.lines]
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
        )
        head = "".join(f"<th>{heading}</th>" for heading in headings(self.facts.wording))
        return f"<p>{escape(self.decision.says[0])}</p><table><tr>{head}</tr>{body}</table>"

    def to_frame(self) -> "pl.DataFrame":
        """Return one row for each line, with the numbers of `as_json`."""
        import polars as pl

        plain = map(as_plain, self.lines)
        kinds = bool | int | float | str | None
        return pl.DataFrame(
            [
                {key: each for key, each in line.items() if isinstance(each, kinds)}
                for line in plain
            ],
            infer_schema_length=None,
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything as values that JSON can express."""
        key = self.decision.key
        return {
            "question": self.question.model_dump(mode="json", exclude_none=True),
            "facts": asdict(self.facts),
            "confidence": CONFIDENCE,
            "interval": self.interval,
            "seeded": self.seeded,
            "unprotected": self.unprotected,
            "delta_warning": self.delta_warning,
            "lines": [as_plain(line) for line in self.lines],
            "splits": self.splits,
            "recommended": None if key is None else dict(zip(_KEYS, key, strict=True)),
            "decision": self.decision.as_json(),
            "left_out": [asdict(each) for each in self.left_out],
            "rules": dict(self.rules),
            "versions": self.versions,
        }
