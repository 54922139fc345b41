"""Data sets from openml.org, as returned by scikit-learn."""

from urllib.error import URLError

import numpy as np
import pytest
from sklearn import datasets
from sklearn.utils import Bunch

from veilring.data.sources import load
from veilring.errors import InputError


class TestOpenMl:
    """Data sets from openml.org, as returned by scikit-learn."""

    def test_without_a_network_the_error_is_one_sentence(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error names the source and the failure."""

        def offline(*_: object, **__: object) -> Bunch:
            raise URLError("no route to host")

        monkeypatch.setattr(datasets, "fetch_openml", offline)
        with pytest.raises(InputError) as caught:
            load("openml:adult")
        assert "openml:adult" in str(caught.value)
        assert "no route to host" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_nominal_columns_are_one_hot_and_missing_values_a_category(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Numbers stay; a missing category becomes `?`."""
        found = Bunch(
            data=np.array([[0.5, 1], [1.5, 0], [2.5, np.nan]]),
            target=np.array(["no", "yes", "no"], dtype=object),
            feature_names=["age", "sex"],
            categories={"sex": ["F", "M"]},
        )
        monkeypatch.setattr(datasets, "fetch_openml", lambda *_, **__: found)
        table = load("openml:made")
        assert table.features.names == ("age", "sex=?", "sex=F", "sex=M")
        np.testing.assert_array_equal(table.X, [[0.5, 0, 0, 1], [1.5, 0, 1, 0], [2.5, 1, 0, 0]])
        assert table.features.classes == ("no", "yes")

    def test_a_missing_number_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The error names the column and the row."""
        found = Bunch(
            data=np.array([[0.5], [np.nan]]),
            target=np.array(["a", "b"]),
            feature_names=["age"],
            categories={},
        )
        monkeypatch.setattr(datasets, "fetch_openml", lambda *_, **__: found)
        with pytest.raises(InputError, match="column 'age', row 2"):
            load("openml:made")

    def test_two_labels_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A table has one label per row."""
        found = Bunch(data=np.zeros((2, 1)), target=np.zeros((2, 2)), feature_names=["a"])
        monkeypatch.setattr(datasets, "fetch_openml", lambda *_, **__: found)
        with pytest.raises(InputError, match="one label"):
            load("openml:made")
