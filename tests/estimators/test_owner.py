"""The data owner's estimators: labels, costs and charges of the deployed owner."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from tests.estimators.tables import RANGES, named, scaled, three_classes

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.estimators import OwnerKNNClassifier, OwnerRadiusClassifier
from veilring.nodes.service import run_inline
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.radius.messages import LabelRequest
from veilring.protocols.radius.owner import Owner, ask_nearest, ask_within
from veilring.protocols.radius.system import public_k

ROWS, LABELS = three_classes(150)
QUERIES, _ = three_classes(40, seed=2)
Model = OwnerRadiusClassifier | OwnerKNNClassifier
MODELS: list[Model] = [
    OwnerRadiusClassifier(0.7, 0.1),
    OwnerKNNClassifier(0.7, 10),
    OwnerKNNClassifier(0.7, 10, conversion_share=0.5, public_rows=True),
]
each = pytest.mark.parametrize("model", MODELS, ids=named)


def asked(model: Model, queries: Floats, epsilon: float = 0.7) -> LabelRequest:
    """Return an analyst's request."""
    if isinstance(model, OwnerKNNClassifier):
        k = public_k(model.k, queries.shape[1], len(ROWS))
        return ask_nearest(scaled(queries), k, epsilon)
    return ask_within(scaled(queries), np.full(len(queries), float(model.radius)), epsilon)


def held() -> Rows:
    """Return the owner's rows."""
    return Rows(scaled(ROWS), np.unique(LABELS, return_inverse=True)[1])


@each
def test_spending_equals_the_owners_ledger(model: Model) -> None:
    """Each batch is charged once, even if repeated, and batches add up."""
    fitted: Any = clone(model).set_params(ranges=RANGES, random_state=1).fit(ROWS, LABELS)
    assert fitted.deployment_privacy_.epsilon == 0.0
    with open_ledger(None, Budgets(total=10.0)) as ledger:
        owner, rng = (
            Owner(held(), fitted.setup_.rules, ledger, run_inline),
            np.random.default_rng(1),
        )
        for queries in (QUERIES, QUERIES[:7], QUERIES, QUERIES[7:]):
            fitted.predict(queries)
            owner.answer_once("ann", asked(model, queries), rng)
            spent = ledger.totals().spent
            assert fitted.deployment_privacy_.epsilon == pytest.approx(spent, rel=1e-12)
    assert fitted.deployment_privacy_.epsilon == pytest.approx(3 * 0.7, rel=1e-12)
    assert (fitted.deployment_privacy_.measure, fitted.privacy_.delta) == ("pure ε-DP", 0.0)


def test_the_number_of_rows_is_counted_unless_public() -> None:
    """A public number of rows is reported, and counting any other costs a share of the budget."""
    nearest = OwnerKNNClassifier(conversion_share=0.5, public_rows=True, ranges=RANGES)
    nearest.fit(ROWS, LABELS)
    rules = nearest.setup_.rules
    assert (rules.facts.rows, rules.nearest(5, 1.0).parts.counting) == (150, 0.0)
    assert "public" in nearest.privacy_.note
    assert rules.nearest(5, 1.0).parts.converting == 0.5
    ours = OwnerKNNClassifier(k=10, ranges=RANGES).fit(ROWS, LABELS)
    parts = ours.setup_.rules.nearest(5, 1.0).parts
    assert parts.counting > 0.0
    assert parts.converting == pytest.approx(0.09)
    assert not ours.privacy_.note


def test_a_radius_beyond_all_distances_is_refused() -> None:
    """It ends the fit with the greatest distance in the unit cube."""
    with pytest.raises(InputError, match=r"radii must be from 0 to 1\.41421"):
        OwnerRadiusClassifier(radius=2.0).fit(ROWS, LABELS)
