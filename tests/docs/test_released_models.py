"""The page on released models describes how to read a model without veilring."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import veilring as vr
from veilring.deployment.examples import write_table
from veilring.protocols.release.algorithm.classifiers import _KINDS
from veilring.protocols.release.model import ReleasedModel, _Document

PAGE = Path(__file__).parents[2] / "docs/how-to/released-models.md"
LISTING = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["wine", "digits"])
@pytest.mark.parametrize("statistic", ["means", "lda"])
def test_ten_lines_label_as_veilring_does(
    name: str, statistic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's NumPy program labels like veilring, even for columns of zero width."""
    (listing,) = LISTING.findall(PAGE.read_text(encoding="utf-8"))
    assert "veilring" not in listing
    (start,) = (n for n, line in enumerate(listing.splitlines()) if not line)
    assert len(listing.splitlines()) - start - 1 <= 10
    table = vr.load(name)
    system = vr.Release(epsilon=4.0, statistic=statistic)  # type: ignore[arg-type]  # one of its words
    model = vr.run(system, table.partition(3, seed=1), table.take(np.arange(2))).model
    assert isinstance(model, ReleasedModel)
    model.save(tmp_path / "model.json")
    write_table(tmp_path / "rows.csv", table)
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    exec(listing, found)  # noqa: S102  (the code on the page)
    assert found["labels"] == model.predict(table).tolist()


def test_the_page_names_every_key_and_kind() -> None:
    """The page names each key of the file, and each classifier."""
    page = PAGE.read_text(encoding="utf-8")
    keys = {*_Document.model_fields}
    promised = {*vr.Promise.__dataclass_fields__}
    arrays = {field.name for kind in _KINDS.values() for field in dataclasses.fields(kind)}
    for name in keys | promised | arrays | set(_KINDS):
        assert f"`{name}" in page, name
