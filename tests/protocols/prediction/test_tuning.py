"""Tuning on public rows, by function and by command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.protocols.prediction.streams import clustered
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.deployment.prediction import PredictionTerms, read_labelled
from veilring.errors import InputError
from veilring.protocols.prediction.algorithm.features import quantise
from veilring.protocols.prediction.algorithm.filter import FilterParameters
from veilring.protocols.prediction.algorithm.kernels import Kernel, kernel_vote
from veilring.protocols.prediction.tuning import (
    THRESHOLDS,
    PublicTable,
    best_tau,
    stream_accuracy,
    tune_parameters,
)

PARAMETERS = FilterParameters(classes=3, queries=60, budget=0.1, sigma2=1.0)


def _public() -> PublicTable:
    table = clustered(460, 12, 3, np.random.default_rng(1))
    rows, queries = table.take(slice(0, 400)), table.take(slice(400, 460))
    return PublicTable(rows.features, rows.labels, queries.features, queries.labels)


def test_terms_decide_what_is_tuned(tmp_path: Path) -> None:
    """With --terms rows are scaled as the server scales them, and its T and epsilon are taken."""
    made = ["deploy", "prediction", "iris", "--queries", "40", "--epsilon", "9", "--out"]
    assert CliRunner().invoke(app, [*made, str(tmp_path / "new")]).exit_code == 0
    data, terms = str(tmp_path / "new" / "records.csv"), str(tmp_path / "new" / "terms.toml")

    def tuned(*options: str) -> object:
        found = CliRunner().invoke(app, ["tune", data, *options, "--json"])
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)

    by_terms = tuned("--terms", terms)
    assert by_terms == tuned("--terms", terms, "--queries", "40", "--epsilon", "9")
    assert by_terms != tuned("--terms", terms, "--epsilon", "1")
    table = PredictionTerms.load(Path(terms))
    rows = table.read_rows(Path(data)).features
    np.testing.assert_array_equal(read_labelled(Path(data), table)[0], quantise(2 * rows - 1))


def test_what_an_origin_has_cost_is_missing_in_what_is_tuned(tmp_path: Path) -> None:
    """The budget that is tuned for is the server's, less the price of its origin."""
    rows = np.random.default_rng(3).standard_normal((60, 2)) + np.array([2.0, 0.0])
    np.savez(tmp_path / "public.npz", X=rows, y=np.arange(60) % 2)
    written = tmp_path / "terms.toml"
    priced = 'classes = ["0", "1"]\ndimensions = 2\norigin = [0.1, 0.0]\norigin_price = {}\n'
    priced += "[prediction]\ntau = 0.5\n"
    found = []
    for price in (0.0, 0.02, 1.0):
        written.write_text(priced.format(price) if price < 1 else priced.format(0.02))
        command = ["tune", str(tmp_path / "public.npz"), "--terms", str(written), "--json"]
        if price == 1:
            command += ["--epsilon", "0.1"]  # less than the origin has cost
        found.append(CliRunner().invoke(app, command))
    free, paid, exceeded = found
    assert (free.exit_code, paid.exit_code) == (0, 0)
    assert free.stdout != paid.stdout
    assert exceeded.exit_code == 2
    assert "budget is -0.0" in exceeded.output


def test_the_first_round_finds_the_best_threshold_without_noise() -> None:
    """Of all thresholds none makes a better vote, and no lower one as good a vote."""
    public = _public()

    def accuracy(tau: float) -> float:
        labels = kernel_vote(
            public.rows, public.labels, public.queries, Kernel("cosine", tau), classes=3
        )
        return float((labels == public.truth).mean())

    found = best_tau(public, Kernel(), 3)
    assert all(accuracy(tau) <= accuracy(found) for tau in THRESHOLDS)
    assert all(accuracy(tau) < accuracy(found) for tau in THRESHOLDS if tau < found)


@pytest.mark.parametrize("step", [0.05, 0.2])
def test_the_second_round_goes_on_while_it_gets_better(step: float) -> None:
    """It has tried a step beyond the best pair on either side, and each pair as it says."""
    public = _public()
    found = tune_parameters(
        public, PARAMETERS, Kernel(), np.random.default_rng(2), sigmas=(0.3, 1.0), step=step
    )
    taus = {each.tau for each in found}
    start, best = best_tau(public, Kernel(), 3), found[0]
    assert start in taus
    assert best.accuracy == max(each.accuracy for each in found)
    for side in (-step, step):
        assert round(best.tau + side, 9) in taus or not 0 < best.tau + side <= 1
    seed = np.random.default_rng(2).integers(2**62, size=1)[0]
    again = stream_accuracy(
        public,
        replace(PARAMETERS, sigma2=best.sigma2),
        replace(Kernel(), tau=best.tau),
        np.random.default_rng(seed),
    )
    assert again == best.accuracy


def test_nothing_is_tuned_on_nothing() -> None:
    """There is at least one row and one query."""
    public = _public()
    with pytest.raises(InputError, match="rows"):
        PublicTable(public.rows[:0], public.labels[:0], public.queries, public.truth)


def test_the_command_prints_and_writes_the_pairs(tmp_path: Path) -> None:
    """Its JSON has the best pair first, equal seeds give equal pairs, nothing is overwritten."""
    out = tmp_path / "pairs.json"
    command = ["tune", "iris", "--queries", "40", "--epsilon", "4", "--kernel", "rbf", "--json"]
    done = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert done.exit_code == 0, done.output
    pairs = json.loads(done.output)
    assert json.loads(out.read_text(encoding="utf-8")) == pairs
    assert pairs[0]["accuracy"] == max(pair["accuracy"] for pair in pairs)
    assert all(0 < pair["tau"] <= 1 for pair in pairs)
    assert json.loads(CliRunner().invoke(app, command).output) == pairs
    assert CliRunner().invoke(app, [*command, "--out", str(out)]).exit_code == 2
    shown = CliRunner().invoke(app, command[:-1])
    assert f"{pairs[0]['accuracy']:.3f}" in shown.output
