"""The recommended oracle and the table of all oracles."""

import math

import pytest

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.planner import ORACLES, oracle_options, recommend_oracle


def test_the_table_has_every_oracle() -> None:
    """The table lists each oracle once with its own numbers, in order of variance."""
    table = oracle_options(32, 1.0)
    assert {option.name for option in table} == set(ORACLES)
    assert [option.variance for option in table] == sorted(option.variance for option in table)
    for option in table:
        oracle = ORACLES[option.name](32, 1.0)
        assert option.oracle == oracle
        assert option.variance == oracle.variance(1 / 32)
        assert option.influence == oracle.influence
        assert option.report_bytes == oracle.report_bytes
        assert option.exact_epsilon == oracle.exact_epsilon <= 1.0


def test_the_shortest_of_nearly_the_best_oracles_is_recommended() -> None:
    """It is direct for small domains, subsets for middle ones and hashing for large ones."""
    assert [recommend_oracle(domain, 1.0).name for domain in (2, 4, 32, 1024)] == [
        "de",
        "de",
        "ss",
        "olh",
    ]
    for domain, epsilon in ((8, 0.5), (100, 2.0), (1000, 3.0)):
        chosen, table = recommend_oracle(domain, epsilon), oracle_options(domain, epsilon)
        assert chosen.variance <= 1.01 * table[0].variance
        for option in table:
            as_good = option.variance <= 1.01 * table[0].variance
            assert not as_good or option.report_bytes >= chosen.report_bytes


def test_reports_can_be_kept_short() -> None:
    """With a limit the best oracle within it is recommended; an impossible limit is refused."""
    assert recommend_oracle(1024, 1.0, max_bytes=8).name == "hr"
    assert math.isclose(recommend_oracle(1024, 1.0, max_bytes=8).variance, 4.683, rel_tol=1e-3)
    with pytest.raises(InputError, match="at least 2 for a domain of 1024"):
        recommend_oracle(1024, 1.0, max_bytes=1)
    with pytest.raises(InputError, match="epsilon"):
        recommend_oracle(1024, 0.0)
