"""Files of released models: JSON that any program can read, with the schema and the guarantee.

`docs/how-to/released-models.md` describes each field. A model is public, like the totals from which
it was made: labelling rows with it costs nothing and is not observed by any party.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from veilring.arrays import Floats, Ints
from veilring.data.columns import FeatureTerms
from veilring.data.frames import Frame
from veilring.data.schema import RowSchema, feature_terms, schema_of
from veilring.data.table import Table
from veilring.errors import InputError
from veilring.privacy.checks import floats, require_that
from veilring.privacy.files import write_whole
from veilring.protocols.membership import RowsLike
from veilring.protocols.promise import Promise
from veilring.protocols.release.algorithm.classifiers import (
    Classifier,
    LinearRegressor,
    Predictor,
    as_document,
    from_document,
)
from veilring.protocols.release.algorithm.steps import Released, ReleaseParameters

FORMAT: Final = "veilring released model"
VERSION: Final = 2
MODEL_BYTES_MAX: Final = 1 << 25
"""A model with a thousand classes of a thousand features needs two thirds of this. The limit is not
larger because parsing a file of only brackets takes 200 times its size in memory."""

_CLASSES: Final = "classes"
_STEPS: Final = "steps"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The public origin of a model.

    Attributes:
        statistic: The name of the statistic; `own` for a custom one.
        noise: For each sum, the standard deviation of the noise on each of its numbers, divided by
            the maximum norm of a row's contribution: the L1 norm for laplace, otherwise the L2
            norm.
    """

    statistic: str
    distribution: str
    parties: int
    tolerated: int
    lost: int
    rows: int
    noise: Sequence[float]

    @classmethod
    def of(cls, parameters: ReleaseParameters, released: Released) -> Self:
        """Return the provenance of a release."""
        plan, trust = parameters.plan, parameters.plan.trust
        noise = [
            noise.deviation(total.shares) / noise.sensitivity.length
            for noise, total in zip(parameters.noises, released.totals, strict=True)
        ]
        return cls(
            statistic=plan.method,
            distribution=plan.distribution,
            parties=trust.parties,
            tolerated=trust.tolerated,
            lost=trust.lost,
            rows=plan.rows,
            noise=noise,
        )


class _Document(RowSchema):
    """The content of a model's file, except for the classifier."""

    format: Literal["veilring released model"]
    version: Literal[2]
    classifier: dict[str, Any]
    promise: Promise
    release: Provenance


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReleasedModel:
    """A released classifier with the schema of its rows and its guarantee.

    Attributes:
        classifier: The classifier; a linear function if the label is a number.
    """

    schema: RowSchema
    classifier: Predictor
    promise: Promise
    provenance: Provenance

    def __post_init__(self) -> None:
        self.schema.require_sound()
        own, target = self.classifier, self.schema.target
        if isinstance(own, LinearRegressor):
            is_alike = target is not None and own.steps == target.steps
        else:
            is_alike = own.classes == self.schema.classes
        require_that(
            is_alike, _CLASSES, "the labels of the classifier differ from those of the schema"
        )
        require_that(
            self.classifier.width == self.schema.width,
            "features",
            f"the classifier takes {self.classifier.width} features, and rows of the schema have "
            f"{self.schema.width}",
        )

    @classmethod
    def of(cls, released: Released, parameters: ReleaseParameters, promise: Promise) -> Self:
        """Return the model of a release."""
        schema = schema_of(parameters.features)
        return cls(schema, released.model, promise, Provenance.of(parameters, released))

    def __str__(self) -> str:
        made = self.provenance
        shares = " and ".join(f"1/{each:.3g}" for each in made.noise)
        lines = {
            "columns": f"{len(self.schema.features):,}",
            **_label_line(self.schema),
            "statistic": made.statistic,
            "parties": f"{made.parties:,}, of which up to {made.tolerated:,} may collude and"
            f" up to {made.lost:,} may be lost",
            "rows": f"{made.rows:,}, as declared",
            "noise": f"{made.distribution}; the largest contribution of a row is {shares} of its"
            " standard deviation",
        }
        return "\n".join(
            [*(f"{name:<14}{text}" for name, text in lines.items()), str(self.promise)]
        )

    def __repr__(self) -> str:
        made, schema = self.provenance, self.schema
        return (
            f"ReleasedModel({made.statistic!r}: {len(schema.features)} columns, "
            f"{schema.encoded.label_text}; {self.promise.guarantee})"
        )

    def predict(self, rows: RowsLike) -> NDArray[Any]:
        """Return the name of the class of each row, or the predicted number, shape (rows,).

        Args:
            rows: A table with the same columns, a data frame or the path of a CSV file with them,
                or an array of shape (rows, features). The columns of a data frame or a file are
                found by name; others, such as a label, are ignored. The features of an array are
                taken by position, in the units of the schema's ranges, with one feature of 0 or 1
                for each category of a column. Values outside of their ranges are clipped, and a
                warning in the log `veilring.rows` counts them.
        """
        return self.named(self.classifier.predict(self.to_unit(rows)))

    def predict_proba(self, rows: RowsLike) -> Floats:
        """Return estimated probabilities, shape (rows, classes), where each row adds up to 1."""
        return self.probabilities(self.to_unit(rows))

    def probabilities(self, rows: Floats) -> Floats:
        """Return the same as `predict_proba` for rows in [0, 1]."""
        if not isinstance(self.classifier, Classifier):
            raise InputError.because(
                "a predicted number has no probabilities; use `predict`", field="predict_proba"
            )
        return self.classifier.predict_proba(rows)

    def named(self, labels: Ints) -> NDArray[Any]:
        """Return the class names or the numbers of labels, in the same shape."""
        if self.schema.target is not None:
            return self.schema.target.values_of(labels)
        return np.array(self.schema.classes)[labels]

    def to_unit(self, rows: RowsLike) -> Floats:
        """Return rows that the schema scales into [0, 1], shape (rows, features)."""
        if isinstance(rows, Path | str):
            return self.schema.read_queries(Path(rows))
        if isinstance(rows, Table):
            require_that(
                _columns(feature_terms(rows.features)) == _columns(self.schema.features),
                "rows",
                f"the features of the table {rows.name} differ from the model's; read its rows"
                " with the model's schema: give the path of a CSV file",
            )
            rows = rows.X
        if isinstance(rows, Frame):
            return self.schema.of_frame(rows)
        return self.schema.of_array(floats("rows", np.asarray(rows)))

    def as_document(self) -> dict[str, Any]:
        """Return the model as values that JSON can express."""
        classifier = as_document(self.classifier)
        for key in _labels_of(self.schema):  # the schema contains them
            del classifier[key]
        return {
            "format": FORMAT,
            "version": VERSION,
            **self.schema.model_dump(mode="json", exclude_unset=True),
            "promise": asdict(self.promise),
            "release": asdict(self.provenance),
            "classifier": classifier,
        }

    def save(self, path: Path | str) -> None:
        """Write the model to a file that does not exist; numbers are stored exactly."""
        parts = (
            f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
            for key, value in self.as_document().items()
        )
        text = "{\n" + ",\n".join(parts) + "\n}\n"
        try:
            write_whole(Path(path), text, new=True)
        except OSError as error:
            allowed = f"a file that does not exist yet and can be written ({error.strerror})"
            raise InputError("path", path, allowed) from None


def _labels_of(schema: RowSchema) -> dict[str, Any]:
    """Return the field of a classifier that follows from the schema: its possible labels."""
    if schema.target is not None:
        return {_STEPS: schema.target.steps}
    return {_CLASSES: list(schema.classes)}


def _label_line(schema: RowSchema) -> dict[str, str]:
    if schema.target is not None:
        return {"label": str(schema.target)}
    return {_CLASSES: ", ".join(schema.classes)}


def _columns(features: Sequence[FeatureTerms]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the parts of features that must match; ranges are those of the model."""
    return [(each.name, each.categories) for each in features if each.is_feature]


def load_model(path: Path | str) -> ReleasedModel:
    """Read a file written by `ReleasedModel.save`, of at most `MODEL_BYTES_MAX` bytes.

    Raises:
        InputError: If the file cannot be read, is too large, is of another version, or has a
            missing or invalid field.
    """
    path = Path(path)
    data = _read(path)
    try:
        document = _Document.model_validate_json(data)
        schema = RowSchema(
            classes=document.classes, target=document.target, features=document.features
        )
        schema.require_sound()
        known = _labels_of(schema)
        require_that(
            not known.keys() & document.classifier.keys(),
            next(iter(known)),
            f"the classifier must not have its own {next(iter(known))}",
        )
        classifier = from_document(document.classifier | known)
        return ReleasedModel(schema, classifier, document.promise, document.release)
    except ValidationError as error:
        raise _first_mistake(path, error) from None
    except InputError as error:
        raise _refused(path, error.sentence, error.field) from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MODEL_BYTES_MAX + 1)
    except OSError as error:
        raise InputError("path", path, f"a file that can be read ({error.strerror})") from None
    require_that(
        len(data) <= MODEL_BYTES_MAX,
        "path",
        f"{path.name} is not a released model: it has more than {MODEL_BYTES_MAX:,} bytes",
    )
    return data


def _first_mistake(path: Path, error: ValidationError) -> InputError:
    """Return an error about the format or the version if one is wrong, otherwise the first key."""
    found = {
        ".".join(map(str, each["loc"])): each["msg"]
        for each in error.errors(include_url=False, include_input=False, include_context=False)
    }
    where = next((key for key in ("format", "version") if key in found), next(iter(found)))
    if where == "version":
        found[where] += f" for veilring {version('veilring')}; install the one that wrote the file"
    return _refused(path, f"{where}: {found[where]}" if where else found[where], where)


def _refused(path: Path, reason: str, field: str = "path") -> InputError:
    return InputError.because(
        f"{path.name} is not a released model: {reason}; load the file unchanged", field=field
    )
