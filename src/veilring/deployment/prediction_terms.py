"""The terms of a prediction server: what it answers, and how a row becomes a direction."""

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from veilring.config import Section, as_scenario_errors, read_toml
from veilring.data import Table
from veilring.deployment.columns import FEATURES_ALLOWED, FeatureTerms
from veilring.deployment.schema import Schema, features_of_table
from veilring.errors import InputError, ScenarioError
from veilring.privacy.accounting.individual import Accountant
from veilring.protocols.prediction.algorithm.features import BLOCK, quantise
from veilring.protocols.prediction.algorithm.kernels import PAPER_WIDTH, Kernel, KernelName
from veilring.protocols.prediction.rules import Queriers, ServerRules


class PredictionSection(Section):
    """What a prediction server answers: see `veilring.protocols.prediction.rules.ServerRules`.

    Attributes:
        queries: T, after which nothing more is answered.
        epsilon: Of all answers that the promise is about.
        delta: Of the same.
        queriers: Whom the promise is made to: all of them `together`, who may show each other
            their answers, or each of them `apart`, with a stream and budgets of its own.
        accountant: How much each record may spend.
        kernel: How alike a row and a query are.
        tau: τ, from which on a row is a neighbour.
        width: ν², for `rbf`.
        sigma2: σ2, the noise of a vote per square root of the neighbours.
        block_max: How many queries a request may have.
    """

    queries: int = Field(1000, description="a whole number of at least 4")
    epsilon: float = Field(1.0, description="a number above 0")
    delta: float = Field(1e-5, description="a number above 0 and below 1")
    queriers: Queriers = Field("together", description="together or apart")
    accountant: Accountant = Field("gdp", description="gdp or rdp")
    kernel: KernelName = Field("cosine", description="cosine or rbf")
    tau: float = Field(0.5, description="a number above 0 and up to 1")
    width: float = Field(PAPER_WIDTH, description="a number above 0")
    sigma2: float = Field(0.5, description="a number above 0")
    block_max: int = Field(BLOCK, description="a whole number of at least 1")


class PredictionTerms(Schema):
    """What a prediction server answers, and how a row becomes a direction.

    Either `features` says what the columns of a CSV file are, or `dimensions` how long vectors are
    that come ready made in an .npz file, such as embeddings.

    Attributes:
        prediction: What is answered.
        features: All columns but the label. Each is scaled to -1 to 1, or becomes one -1 or 1 for
            each category, so that the middle of all ranges is where directions are taken from.
        dimensions: How many features an embedding has.
        origin: Where the directions of embeddings are taken from: public, or a mean that was
            released with noise, one number for each feature. Zero if it is left out.
        origin_price: What each record has paid for an origin that was released with noise, in the
            unit of zCDP: 1 / σ² for `private_mean`. It is taken off each record's budget. 0 for an
            origin that is public.
    """

    prediction: PredictionSection = PredictionSection()
    features: Annotated[
        tuple[FeatureTerms, ...], Field(strict=False, description=FEATURES_ALLOWED)
    ] = ()
    dimensions: int = Field(0, ge=0, description="a whole number above 0, or features")
    origin: Annotated[
        tuple[float, ...], Field(strict=False, description="a list of numbers, or none")
    ] = ()
    origin_price: float = Field(0.0, description="a number of at least 0")

    @property
    @override
    def width(self) -> int:
        return self.dimensions or super().width

    @property
    def schema_digest(self) -> bytes:
        """SHA-256 of what makes a row a record: rows that were stored under another are no use."""
        kept = self.model_dump(mode="json", exclude={"prediction", "origin_price"})
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).digest()

    @cached_property
    def rules(self) -> ServerRules:
        """The protocol's public rules."""
        chosen = self.prediction
        return ServerRules(
            features=self.width,
            classes=len(self.classes),
            queries=chosen.queries,
            epsilon=chosen.epsilon,
            delta=chosen.delta,
            kernel=Kernel(chosen.kernel, chosen.tau, chosen.width),
            sigma2=chosen.sigma2,
            accountant=chosen.accountant,
            queriers=chosen.queriers,
            block_max=chosen.block_max,
            paid=self.origin_price,
        )

    def directions(self, rows: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return rows as the server takes them.

        Args:
            rows: Embeddings, or columns scaled to 0 to 1, shape (rows, features).

        Raises:
            InputError: If they have other features, or one has no direction.
        """
        if rows.shape[1:] != (self.width,):
            allowed = f"of shape (rows, {self.width}), as the terms say"
            raise InputError("features", f"of shape {rows.shape}", allowed)
        if self.features:
            return quantise(2 * rows - 1)
        return quantise(rows, np.array(self.origin) if self.origin else None)

    @override
    def checked(self) -> Self:
        if bool(self.features) == bool(self.dimensions):
            given = "given with features" if self.dimensions else "missing, and so is features"
            raise ScenarioError("dimensions", given, "either dimensions or features")
        if self.origin and (self.features or len(self.origin) != self.dimensions):
            allowed = "none, or with dimensions so many numbers"
            raise ScenarioError("origin", f"{len(self.origin)} numbers", allowed)
        if self.origin_price and not self.origin:
            raise ScenarioError("origin_price", self.origin_price, "0, or with origin")
        super().checked()
        keys = {"paid": "origin_price", "sigma1": "prediction.epsilon (by which sigma1)"}
        with as_scenario_errors(keys, "prediction"):
            _ = self.rules  # which checks what it is made of
        return self


def load_prediction_terms(path: Path) -> PredictionTerms:
    """Read a file of terms and check it.

    Raises:
        ScenarioError: With all mistakes: the key, its value and what is allowed.
    """
    return read_toml(path, PredictionTerms).checked()


def prediction_terms_of_table(
    table: Table, prediction: PredictionSection, *, embedded: bool = False
) -> PredictionTerms:
    """Return terms that fit a table: for trials, where one holds all rows.

    Args:
        table: All rows.
        prediction: What is answered.
        embedded: Whether rows are embeddings, and not columns that have to be scaled.

    Raises:
        ScenarioError: If they do not fit together.
    """
    return PredictionTerms(
        prediction=prediction,
        classes=table.class_names,
        features=() if embedded else features_of_table(table),
        dimensions=len(table.feature_names) if embedded else 0,
    ).checked()
