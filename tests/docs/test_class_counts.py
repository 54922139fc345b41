"""Cost and results of the counting protocol in the documentation."""

import numpy as np
from docs.examples.class_counts import class_counts, forecast

from veilring.testing import ProtocolRunner, assert_cost


def test_counting_costs_what_it_should(run_protocol: ProtocolRunner) -> None:
    """Four parties need 18 messages in two rounds on every runtime."""
    run = run_protocol(class_counts, 4, own=[np.ones(3, np.uint64)] * 4)
    assert_cost(run, messages=18, rounds=2)
    assert forecast(4) == {"messages": 18, "rounds": 2}


def test_all_parties_learn_the_total(run_protocol: ProtocolRunner) -> None:
    """All masks cancel, and every party returns the same total."""
    own = [np.array([n, 2**40, 0], np.uint64) for n in range(4)]
    run = run_protocol(class_counts, 4, own=own)
    for total in run.results.values():
        assert total.tolist() == [6, 4 * 2**40, 0]


def test_a_view_contains_no_counts(run_protocol: ProtocolRunner) -> None:
    """No message of round 2 contains the counts of its sender."""
    own = [np.array([1, 2, 3], np.uint64)] * 4
    run = run_protocol(class_counts, 4, own=own, watch=["party-0"])
    published = [seen for seen in run.views["party-0"].received if seen.round == 2]
    assert len(published) == 3
    for seen in published:
        (words,) = seen.message.fields()
        assert not np.array_equal(np.asarray(words), own[0])
