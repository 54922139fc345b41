"""Baselines of other libraries: lines of an owner, on the same splits, if installed."""

from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import Field

from veilring.protocols.radius.system import DataOwner
from veilring.protocols.system import System
from veilring.scenarios.comparison import Question, compare, make_question, running
from veilring.scenarios.comparison.question import DealtSplit, load_facts
from veilring.scenarios.comparison.running import Baseline, installed

ASKED = {"data": "iris", "parties": 3, "epsilon": (1.0, 2.0), "splits": 2, "queries": 5}


class Mine(DataOwner):
    """A system of another package."""

    name: Literal["mine"] = Field("mine", description="mine")  # type: ignore[assignment]  # a subclass has another name


def _fit(_baseline: Baseline, split: DealtSplit, seed: int) -> Any:
    """Return a model of a single class."""
    assert seed >= 0
    return SimpleNamespace(predict=lambda X: np.full(len(X), split.train.y[0]))


@pytest.fixture
def question() -> Question:
    """Return the question."""
    return make_question({**ASKED, "hindsight": False})


def test_are_listed_only_if_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package has no lines; DP-EBM supports two classes only."""
    monkeypatch.setattr(running, "find_spec", lambda package: package == "interpret" or None)
    assert [each.name for each in installed(2)] == ["dp-ebm"]
    assert not list(installed(3))


def test_a_library_that_fails_is_left_out(
    question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that cannot be imported costs its own lines only, and the reason is shown."""

    def fail(*_args: Any) -> Any:
        message = "cannot import name 'DOUBLE'\nfrom 'tree'"
        raise ImportError(message)

    broken = Baseline("broken", "Broken", "otherlib", fail)
    monkeypatch.setattr(running, "installed", lambda _classes: iter([broken]))
    table, _ = load_facts(question)
    contenders, left_out = running.find_contenders(table, question)
    assert contenders
    assert all(each.key[0] != "broken" for each in contenders)
    (found,) = [each for each in left_out if each.name == "Broken"]
    assert found.why == "otherlib cannot be used here: ImportError: cannot import name 'DOUBLE'"


@pytest.mark.slow
def test_have_a_line_at_each_epsilon(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an owner's line with its authors' guarantee, for all held-out rows."""
    mine = Baseline("constant", "constant", "nothing", _fit, delta=1e-5)
    monkeypatch.setattr(running, "installed", lambda _classes: iter([mine]))
    found = compare(question, workers=1)
    lines = [line for line in found.lines if line.system == "constant"]
    assert [line.epsilon for line in lines] == [1.0, 2.0]
    for line in lines:
        assert line.trusted
        assert line.queries == found.facts.held_out
        assert line.privacy is not None
        assert (line.privacy.epsilon, line.privacy.delta) == (line.epsilon, 1e-5)
        assert line.cost is None


def test_a_system_of_another_package_has_its_lines(
    question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison finds systems only through the registry."""
    found: dict[str, type[System]] = {"mine": Mine}
    monkeypatch.setattr(running, "system_names", lambda: tuple(found))
    monkeypatch.setattr(running, "find_system", found.__getitem__)
    lines = compare(question, workers=1).lines
    assert [line.key for line in lines[2:]] == [("mine", "", 1.0), ("mine", "", 2.0)]
