"""The recommendation rule, each step tested on artificial lines."""

import numpy as np
import pytest

from veilring.protocols.promise import Estimate, Leakage, Promise
from veilring.protocols.ring.system import PrivateKNN
from veilring.scenarios.comparison import Choice, Line
from veilring.scenarios.comparison.comparison import (
    CANNOT,
    MAJORITY,
    POOLED,
    RULE,
    SHARE_MIN,
    Played,
    choose,
)
from veilring.scenarios.comparison.tuning import over_splits

SPREAD, SPLITS, QUERIES, TRAIN = 0.02, 20, 50, 150
PRIVACY = Promise("rows", "others", "nobody", "one row", 1.0, 0.0, "batch", "pure ε-DP")


def baselines(pooled: float = 0.95, majority: float = 0.4) -> list[Line]:
    """Return the two baselines of the systems."""
    best = line(POOLED, pooled, pooled=pooled, majority=majority, private=False)
    return [best, line(MAJORITY, majority, pooled=pooled, majority=majority, private=False)]


def line(  # noqa: PLR0913  (the settings of a line)
    system: str,
    accuracy: float,
    *,
    epsilon: float | None = None,
    trusted: bool = False,
    leak: float | None = None,
    size: int = 1000,
    pooled: float = 0.95,
    majority: float = 0.4,
    private: bool = True,
    form: str = "",
    lasting: bool = False,
    spread: float = SPREAD,
    splits: int = SPLITS,
) -> Line:
    """Return a line whose accuracies alternate around a mean from one split to the next."""
    estimate = Estimate(leak or 0.0, 0.01 if leak else 0.0)
    leakage = Leakage(100, dict.fromkeys(PrivateKNN.measures, estimate))
    signs = np.resize([-1.0, 1.0], splits) if spread else np.zeros(splits)
    own = accuracy + spread * signs
    losses, gains = pooled - own, own - majority
    overlap = QUERIES / TRAIN
    return Line(
        system=system,
        name=f"{system.upper()}, {form}" if form else system.upper(),
        form=form,
        epsilon=epsilon,
        queries=QUERIES,
        overlap=overlap,
        accuracies=tuple(own.tolist()),
        losses=tuple(losses.tolist()),
        gains=tuple(gains.tolist()),
        accuracy=over_splits(own.tolist(), overlap),
        loss=over_splits(losses.tolist(), overlap),
        gain=over_splits(gains.tolist(), overlap),
        trusted=trusted,
        trust="whom it may concern",
        guarantee="what it may be",
        lasting=lasting,
        privacy=PRIVACY if private else None,
        leakage=None if leak is None else leakage,
        cost=Played(1, 1, size, 0, 0, 0.1, 0.1) if private else None,
    )


RING = line("ring", 0.95, leak=0.1)


def _choose(*lines: Line) -> Choice:
    return choose(lines, np.random.default_rng(1))


def _chosen(*lines: Line) -> Choice:
    return _choose(*baselines(), *lines)


class TestFirst:
    """First choice: an ε without a trusted party that is close to the pooled classifier."""

    def test_is_the_smallest_epsilon_that_is_close(self) -> None:
        """A smaller ε that falls behind and a larger ε that does not are both passed over."""
        lines = [line("votes", a, epsilon=e) for e, a in ((0.5, 0.7), (1.0, 0.91), (2.0, 0.94))]
        choice = _chosen(RING, *lines, line("owner", 0.95, epsilon=0.5, trusted=True))
        assert (choice.system, choice.epsilon) == ("votes", 1.0)
        assert "VOTES, ε = 1" in choice.says
        assert "91.0%" in choice.says
        assert lines[1].trust in choice.says

    def test_of_equal_epsilon_is_the_more_accurate_then_the_smaller(self) -> None:
        """Bytes decide only between equal accuracies."""
        one, other = line("one", 0.92, epsilon=1.0), line("other", 0.93, epsilon=1.0, size=9000)
        assert _chosen(one, other).system == "other"
        assert _chosen(one, line("small", 0.92, epsilon=1.0, size=10)).system == "small"

    def test_of_equal_epsilon_is_the_one_that_lasts(self) -> None:
        """An ε for any number of queries is preferred to an ε for one batch."""
        batch, release = (
            line("batch", 0.94, epsilon=1.0),
            line("once", 0.92, epsilon=1.0, lasting=True),
        )
        assert _chosen(batch, release).system == "once"
        assert "any number of queries" in _chosen(batch, release).says

    def test_is_not_beaten_at_a_smaller_epsilon(self) -> None:
        """A line with the same trust, a smaller ε and a higher accuracy rules out a recommendation.

        That line is not recommended on its own, because its accuracy varies between splits.
        """
        wild = line("wild", 0.95, epsilon=0.5, spread=0.9, majority=0.8)
        calm = line("calm", 0.93, epsilon=1.0, majority=0.8)
        assert _choose(*baselines(0.95, 0.8), wild, calm).system is None
        other = line("wild", 0.95, epsilon=0.5, spread=0.9, majority=0.8, trusted=True)
        assert _choose(*baselines(0.95, 0.8), other, calm).system == "calm"

    def test_is_corrected_for_the_number_of_lines(self) -> None:
        """A gain that is significant for one line is not significant for the best of fifty."""
        lucky = line("lucky", 0.44, epsilon=1.0, pooled=0.45, majority=0.4)
        others = [line(f"n{n}", 0.3, epsilon=2.0, pooled=0.45, majority=0.4) for n in range(49)]
        poor = baselines(0.45, 0.4)
        assert lucky.gain.low > 0
        assert _choose(*poor, lucky).system == "lucky"
        assert _choose(*poor, lucky, *others).system is None

    def test_has_to_beat_the_majority(self) -> None:
        """A line close to a poor pooled classifier is not worth its cost."""
        poor = baselines(0.44, 0.43)
        line_of = line("votes", 0.43, epsilon=1.0, pooled=0.44, majority=0.43)
        assert _choose(*poor, line_of).system is None


class TestThen:
    """Second choice, if no ε without a trusted party comes close."""

    FAR = line("votes", 0.6, epsilon=2.0)
    OWNED = line("owner", 0.92, epsilon=1.0, trusted=True)

    def test_is_the_ring_if_it_leaks_little(self) -> None:
        """The ring is recommended with its leakage, and preferred to a trusted party."""
        choice = _chosen(RING, self.FAR, self.OWNED)
        assert (choice.system, choice.epsilon) == ("ring", None)
        assert "10.0% of the messages" in choice.says

    def test_is_the_line_with_the_least_leakage(self) -> None:
        """A search whose views can be simulated leaks only its totals, and comes first."""
        choice = _chosen(RING, line("search", 0.95, leak=0.0), self.FAR, self.OWNED)
        assert choice.system == "search"
        assert "do not reveal their owners" in choice.says

    @pytest.mark.parametrize("leak", [0.49, 0.6])
    def test_is_a_trusted_party_if_the_ring_leaks_much(self, leak: float) -> None:
        """The limit of one half applies to the upper end of the estimate's interval."""
        choice = _chosen(line("ring", 0.95, leak=leak), self.FAR, self.OWNED)
        assert (choice.system, choice.epsilon) == ("owner", 1.0)
        assert "if all parties trust one party" in choice.says

    def test_is_none_if_nothing_is_close(self) -> None:
        """The report states the gain of giving up privacy."""
        choice = _chosen(self.FAR, line("owner", 0.7, epsilon=2.0, trusted=True))
        assert choice.system is None
        assert choice.epsilon is None
        assert choice.says.startswith("None of the private systems is useful here")
        assert "95.0%" in choice.says

    def test_is_none_if_all_are_at_the_majority(self) -> None:
        """If even all rows in one place predict nothing, no private system is useful."""
        lines = baselines(0.41, 0.4)
        ring = line("ring", 0.41, leak=0.1, pooled=0.41)
        choice = _choose(*lines, ring, line("votes", 0.4, epsilon=1.0, pooled=0.41))
        assert choice.system is None
        assert "not significantly different from the 40.0%" in choice.says


class TestResamples:
    """The stability of a recommendation under resampled splits."""

    def test_reports_the_agreement(self) -> None:
        """The fraction of resamples is in the sentence: 1 if nothing is close to a limit."""
        choice = _chosen(line("votes", 0.93, epsilon=1.0))
        assert choice.share == 1.0
        assert "100.0% of 1,000 resamples" in choice.says

    @pytest.mark.parametrize("accuracy", [0.901, 0.899])
    def test_is_undecided_at_the_limit(self, accuracy: float) -> None:
        """A line that is barely close in these splits is not close in many resamples."""
        choice = _chosen(line("votes", accuracy, epsilon=1.0), line("votes", 0.94, epsilon=2.0))
        assert choice.system is None
        assert choice.share < SHARE_MIN
        assert "inconclusive" in choice.says
        assert {name for name, _ in choice.shares} == {"VOTES, ε = 1", "VOTES, ε = 2"}
        assert sum(share for _, share in choice.shares) == pytest.approx(1.0)

    def test_forms_of_a_system_count_together(self) -> None:
        """Two forms that are equally good at one ε do not make the choice of system unsure."""
        one = line("once", 0.93, epsilon=1.0, form="pure", splits=20)
        other = line("once", 0.9301, epsilon=1.0, spread=0.03)
        choice = _chosen(one, other)
        assert (choice.system, choice.epsilon) == ("once", 1.0)
        assert choice.share == 1.0
        assert len(choice.shares) == 2

    def test_the_same_seed_gives_the_same_fractions(self) -> None:
        """Resamples depend only on the generator."""
        lines = [line("votes", 0.901, epsilon=1.0)]
        assert _chosen(*lines).shares == _chosen(*lines).shares


class TestAlways:
    """Sentences that accompany every recommendation."""

    def test_states_the_gain_from_a_trusted_party(self) -> None:
        """The best lines with and without one are compared at the largest ε."""
        lines = [
            line("votes", 0.5, epsilon=1.0),
            line("votes", 0.6, epsilon=2.0),
            line("owner", 0.9, epsilon=2.0, trusted=True),
        ]
        said = _chosen(RING, *lines).owner
        assert "30.0 points at ε = 2" in said
        assert "and VOTES, the best system without such a party, has 60.0%" in said
        lines[-1] = line("owner", 0.55, epsilon=2.0, trusted=True)
        assert "would gain nothing" in _chosen(*lines).owner
        assert "No system" in _chosen(RING).owner

    def test_states_what_cannot_be_compared(self) -> None:
        """A leak is not an ε, guarantees have different units, and a δ is not zero."""
        assert _chosen(RING).cannot == CANNOT
        for word in ("a measured leak", "report", "stream", "batch", "δ"):
            assert word in CANNOT

    def test_the_rule_is_written_down(self) -> None:
        """The text of the rule contains its numbers."""
        assert "5 points" in RULE[0]
        assert "50.0%" in RULE[2]
        assert "90%" in RULE[4]
