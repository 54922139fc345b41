"""The partition of rows among parties."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy import stats

from veilring.data.table import PartitionKind, partition
from veilring.errors import InputError

_LABELS = st.lists(st.integers(0, 4), max_size=60).map(lambda values: np.array(values, np.int64))
_SEED = st.integers(0, 2**32)


class TestPartition:
    """The partition of rows among parties."""

    @given(
        _LABELS,
        st.integers(1, 12),
        _SEED,
        st.sampled_from(["iid", "dirichlet", "by-label"]),
        st.floats(1e-3, 1e6),
    )
    def test_each_row_goes_to_exactly_one_party(
        self, labels: np.ndarray, parties: int, seed: int, kind: PartitionKind, alpha: float
    ) -> None:
        """No partition loses or duplicates a row, and equal seeds give equal partitions."""
        dealt, again = (
            partition(labels, parties, default_rng(seed), kind=kind, alpha=alpha) for _ in range(2)
        )
        assert len(dealt) == parties
        assert sorted(np.concatenate(dealt).tolist()) == list(range(len(labels)))
        assert all(np.array_equal(one, two) for one, two in zip(dealt, again, strict=True))

    @given(_LABELS, st.integers(1, 12), _SEED, st.sampled_from(["iid", "by-label"]))
    def test_equal_numbers_differ_by_one_row_at_most(
        self, labels: np.ndarray, parties: int, seed: int, kind: PartitionKind
    ) -> None:
        """`iid` and `by-label` give nearly equal numbers."""
        sizes = [len(rows) for rows in partition(labels, parties, default_rng(seed), kind=kind)]
        assert max(sizes) - min(sizes) <= 1

    @given(st.lists(st.integers(0, 20), min_size=1, max_size=8), _SEED)
    def test_sizes_are_kept(self, sizes: list[int], seed: int) -> None:
        """`sizes` gives each party the requested number of rows, and every row to one party."""
        labels = np.zeros(sum(sizes), dtype=np.int64)
        dealt = partition(labels, len(sizes), default_rng(seed), kind="sizes", sizes=sizes)
        assert [len(rows) for rows in dealt] == sizes
        assert sorted(np.concatenate(dealt).tolist()) == list(range(len(labels)))

    @given(_LABELS, st.integers(1, 12), _SEED)
    def test_by_label_gives_each_party_neighbouring_labels(
        self, labels: np.ndarray, parties: int, seed: int
    ) -> None:
        """No label of a party exceeds any label of the next."""
        dealt = partition(labels, parties, default_rng(seed), kind="by-label")
        held = [labels[rows] for rows in dealt if len(rows)]
        assert all(one.max() <= two.min() for one, two in itertools.pairwise(held))

    @pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e6])
    def test_rows_of_a_class_meet_as_often_as_polya_says(self, alpha: float) -> None:
        """Two rows of a class have the same party with probability `(alpha + 1) / (n alpha + 1)`.

        Classes are partitioned independently, so the number of pairs at one party is binomial; the
        interval is missed with probability at most 1e-6.
        """
        parties, classes = 4, 3_000
        labels = np.repeat(np.arange(classes), 2)
        dealt = partition(labels, parties, default_rng(1), kind="dirichlet", alpha=alpha)
        met = sum(len(rows) - len(np.unique(labels[rows])) for rows in dealt)
        distribution = stats.binom(classes, (alpha + 1) / (parties * alpha + 1))
        assert distribution.ppf(5e-7) <= met <= distribution.ppf(1 - 5e-7)

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            ({"kind": "sizes", "sizes": [1, 1]}, "sum is 3"),
            ({"kind": "sizes", "sizes": [3]}, "2 whole numbers"),
            ({"kind": "sizes", "sizes": [4, -1]}, "of at least 0"),
            ({"kind": "dirichlet", "alpha": 0.0}, "alpha"),
            ({"kind": "dirichlet", "alpha": float("nan")}, "alpha"),
            ({"kind": "fair"}, "by-label"),
        ],
    )
    def test_an_impossible_partition_is_refused(
        self, arguments: dict[str, object], named: str
    ) -> None:
        """The error gives the allowed values."""
        deal: Callable[..., object] = partition
        with pytest.raises(InputError, match=named):
            deal(np.zeros(3, dtype=np.int64), 2, default_rng(0), **arguments)

    def test_zero_parties_are_refused(self) -> None:
        """There is at least one party."""
        with pytest.raises(InputError, match="parties"):
            partition(np.zeros(3, dtype=np.int64), 0, default_rng(0))
