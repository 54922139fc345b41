"""Built-in data sets."""

import importlib.util

import numpy as np
import pytest
from sklearn import datasets

from veilring.data.sources import load
from veilring.errors import InputError


class TestBuiltIn:
    """The sets that come with scikit-learn."""

    @pytest.mark.parametrize("name", ["wine", "breast-cancer", "digits", "iris"])
    def test_is_what_scikit_learn_loads(self, name: str) -> None:
        """Rows, labels and names equal those of scikit-learn's own loader."""
        theirs = getattr(datasets, f"load_{name.replace('-', '_')}")()
        ours = load(name)
        np.testing.assert_array_equal(ours.X, theirs.data)
        np.testing.assert_array_equal(ours.y, theirs.target)
        assert ours.features.names == tuple(map(str, theirs.feature_names))
        assert ours.features.classes == tuple(map(str, theirs.target_names))

    @pytest.mark.parametrize("name", ["wine", "breast-cancer", "digits", "iris"])
    def test_without_the_packaged_file_the_library_is_asked(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The table is the same if scikit-learn stores its files elsewhere."""
        usual = load(name)
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
        asked = load(name)
        np.testing.assert_array_equal(asked.X, usual.X)
        np.testing.assert_array_equal(asked.y, usual.y)

    @pytest.mark.parametrize("name", ["", "wines", "wine.tsv"])
    def test_an_unknown_source_is_refused(self, name: str) -> None:
        """The error for an unknown source lists all sources."""
        with pytest.raises(InputError, match=r"breast-cancer.*openml:NAME.*\.csv"):
            load(name)
