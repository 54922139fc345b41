"""The shares of a report, each with a name and what it is a share of."""

from typing import NamedTuple

from veilring.scenarios.report import Estimate, Leakage, Report

__all__ = ("Leaked", "Share", "accuracies", "leaks")


class Share(NamedTuple):
    """A share that was counted."""

    label: str
    value: float
    meaning: str


class Leaked(NamedTuple):
    """A share that was estimated."""

    label: str
    estimate: Estimate
    meaning: str


def accuracies(report: Report) -> tuple[Share, ...]:
    """Return how well a run classified, beside what it is to be compared with."""
    k, rows = report.scenario.protocol.k, report.rows
    pooled = f"k = {k}, not private: all {rows:,} rows in one place"
    return (
        Share("accuracy", report.accuracy, f"of {report.queries:,} held-out rows"),
        Share("pooled kNN", report.reference_accuracy, pooled),
        Share("majority class", report.majority_accuracy, "the same answer to every query"),
        Share("agreement", report.agreement, "of labels are those of the pooled kNN"),
    )


def leaks(leakage: Leakage) -> tuple[Leaked, ...]:
    """Return what a hop of PP-TopK leaks."""
    return (
        Leaked(
            "exposure",
            leakage.exposure,
            "of messages carry a distance that their sender has just added",
        ),
        Leaked(
            "claim",
            leakage.claim,
            "of what is new to a receiver is its sender's own: right, if it claims so",
        ),
        Leaked(
            "loss of privacy",
            leakage.lop,
            "of such claims are right that a guess from the result would not have been",
        ),
        Leaked(
            "loss of privacy at its peak",
            leakage.lop_peak,
            "for the place in the ring where that is most",
        ),
    )
