"""A survey of 60,000 clients under local differential privacy: shares and naive Bayes."""

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ldp.algorithm.bayes import evidence, learn
from veilring.protocols.ldp.algorithm.oracles import make_oracle, recommend_oracle
from veilring.protocols.ldp.algorithm.survey import (
    DiscreteBayesSurvey,
    FrequencySurvey,
    answer,
    tally_reports,
)
from veilring.protocols.ldp.saved import load_classifier, save_classifier

CLIENTS, EPSILON = 60_000, 1.0
AGES = ("below 30", "30 to 49", "50 to 69", "70 and more")

Rows = NDArray[np.int64]


def people(clients: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Return the secrets of each client: age, smoking, exercise, and whether it is ill."""
    ages = rng.choice(len(AGES), clients, p=[0.35, 0.3, 0.25, 0.1])
    smokes, moves = (rng.random((2, clients)) < [[0.3], [0.5]]).astype(np.int64)
    risk = 0.05 + 0.15 * ages + 0.3 * smokes - 0.1 * moves
    return np.column_stack((ages, smokes, moves)), (rng.random(clients) < risk).astype(np.int64)


def shares(rows: Rows, labels: Rows, rng: np.random.Generator) -> None:
    """Estimate the number of clients of each age."""
    best = recommend_oracle(len(AGES), EPSILON)
    survey = FrequencySurvey((best,))
    said = answer(survey, rows[:, :1], labels, rng)  # on each client's own machine
    found = evidence(survey, tally_reports(survey, said.reports))[0]
    print(f"oracle {best.name}, {best.report_bytes} byte per report, epsilon {EPSILON:g}")
    print("first reports:", said.reports[0][:8, 0], " true values:", rows[:8, 0])
    for number, name in enumerate(AGES):
        true = np.mean(rows[:, 0] == number)
        low, high = found.low[number], found.high[number]
        share = f"{found.values[number]:.3f}  interval [{low:.3f}, {high:.3f}]"
        print(f"{name:12} {share}  true {true:.3f}")


def classes(rows: Rows, labels: Rows, rng: np.random.Generator) -> None:
    """Learn a classifier of illness from one answer of each client, at two collectors."""
    survey = DiscreteBayesSurvey.of((len(AGES), 2, 2), 2, make_oracle("de", EPSILON))
    half = len(rows) // 2
    here = tally_reports(survey, answer(survey, rows[:half], labels[:half], rng).reports)
    there = tally_reports(survey, answer(survey, rows[half:], labels[half:], rng).reports)
    model = learn(survey, here + there)
    print("number of answers to each question:", (here + there).counts)
    new_rows, new_labels = people(20_000, rng)
    with tempfile.TemporaryDirectory() as folder:
        save_classifier(model, Path(folder) / "model.json")
        again = load_classifier(Path(folder) / "model.json")
    right = np.mean(again.classify(new_rows) == new_labels)
    majority = np.mean(new_labels == np.bincount(labels).argmax())
    print(f"accuracy {right:.3f}; majority class {majority:.3f}")


def main() -> None:
    """Run both surveys; a client that answers both spends epsilon twice."""
    rng = np.random.default_rng(7)
    rows, labels = people(CLIENTS, rng)
    shares(rows, labels, rng)
    classes(rows, labels, rng)


if __name__ == "__main__":
    main()
