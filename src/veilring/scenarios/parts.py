"""The tables of several parties under one schema, each with the rows of one party."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from veilring.arrays import Ints
from veilring.config import require_key
from veilring.data.schema import beside, feature_terms
from veilring.data.table import Features, Table
from veilring.errors import InputError

_SAME_SCHEMA: Final = (
    'load all parts with the same public schema, vr.load(path, schema="schema.toml"), or use parts'
    " of one table, such as table.partition(8)"
)
# The party of a row in a pooled table, and the number of all, of which some may have no rows; no
# header begins with a blank.
_PARTY: Final = " party"
_PARTIES: Final = " parties"
_ANSWERS: Final = ("truth", "label")
_OWN: Final = frozenset({_PARTY, _PARTIES})


def pool(parts: Sequence[Table]) -> Table:
    """Return the rows of all parties as one table, which contains the party of each row."""
    schema = shared_schema(parts)
    if schema is None:
        raise InputError.because("there are no parties; give the table of each", field="parts")
    party = np.repeat(np.arange(len(parts)).astype(np.str_), list(map(len, parts)))
    X, y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "y"))
    ids = {
        name: np.concatenate([part.ids[name] for part in parts])
        for name in parts[0].ids
        if all(name in part.ids for part in parts)
    }
    name = ", ".join(Path(part.name).stem for part in parts)
    of_rows = {_PARTY: party, _PARTIES: np.full(len(y), str(len(parts)))}
    return Table(name, X, y, schema, parts[0].label_name, ids=ids | of_rows)


def require_parties(table: Table, parties: int, key: str) -> None:
    """Refuse another number of parties than that of a pooled table."""
    for own in np.unique(table.ids.get(_PARTIES, np.array([], np.str_))).tolist():
        require_key(parties == int(own), key, parties, f"{own}, one for each table")


def with_numbers(table: Table, parties: Sequence[str]) -> Table:
    """Return a table with the number of each row, and the party of a pooled one, for answers."""
    own = own_rows(table, len(parties))
    numbers = [np.arange(1, len(each) + 1) for each in (own or [table.y])]
    named = {}
    if own is not None:
        named = {"party": np.array(parties)[table.ids[_PARTY].astype(np.int64)]}
    named["row"] = np.concatenate(numbers).astype(np.str_)
    return replace(table, ids=beside(table.ids, *named, *_ANSWERS) | named)


def answer_columns(queries: Table, labels: Ints) -> dict[str, list[str]]:
    """Return the columns of a file of answers, which stay with the party that asked."""
    columns = {name: values.tolist() for name, values in queries.ids.items() if name not in _OWN}
    for name, each in zip(_ANSWERS, (queries.y, labels), strict=True):
        columns[name] = [str(value) for value in queries.features.named(each)]
    return columns


def own_rows(table: Table, parties: int) -> list[Ints] | None:
    """Return the rows of each party in a part of a pooled table; none for another table."""
    if _PARTY not in table.ids:
        return None
    return [np.flatnonzero(table.ids[_PARTY] == str(party)) for party in range(parties)]


def shared_schema(parts: Any) -> Features | None:  # noqa: ANN401  (the parts of all parties)
    """Return the public schema shared by all tables; none if there are only scaled rows."""
    schemas = [part.features for part in parts if isinstance(part, Table)]
    if not schemas:
        return None
    if len(schemas) != len(parts):
        raise _other_schemas("some are tables, others are scaled rows", "use only one of both")
    for number, schema in enumerate(schemas[1:], start=2):
        if schema != schemas[0]:
            raise _other_schemas(_difference(schemas[0], schema, f"part {number}"))
    return schemas[0]


def _other_schemas(difference: str, remedy: str = _SAME_SCHEMA) -> InputError:
    return InputError.because(
        f"the parts have different schemas: {difference}; {remedy}", field="parts"
    )


def _difference(first: Features, other: Features, part: str) -> str:
    """Return the first difference between the schemas of two parts."""
    said = "{} in the first part and {} in " + part
    for ours, theirs in zip(feature_terms(first), feature_terms(other), strict=False):
        if ours.name != theirs.name:
            return f"a column is {said.format(repr(ours.name), repr(theirs.name))}"
        if bool(ours.categories) != bool(theirs.categories):
            kinds = ("text" if each.categories else "numbers" for each in (ours, theirs))
            return f"{ours.name!r} has {said.format(*kinds)}"
        if ours.categories != theirs.categories:
            differs = _only_in_one(ours.categories, theirs.categories, part)
            return f"among the values of {ours.name!r}, {differs}"
        if ours != theirs:
            ends = (f"{each.low:.12g} to {each.high:.12g}" for each in (ours, theirs))
            return f"the range of {ours.name!r} is {said.format(*ends)}"
    if len(first) != len(other):
        return f"the number of features is {said.format(len(first), len(other))}"
    return _other_labels(first, other, part)


def _other_labels(first: Features, other: Features, part: str) -> str:
    if first.target != other.target:
        return f"the label is {first.label_text} in the first part and {other.label_text} in {part}"
    return f"among the classes, {_only_in_one(first.classes, other.classes, part)}"


def _only_in_one(ours: Sequence[str], theirs: Sequence[str], part: str) -> str:
    """Describe the first name that is in only one of two lists."""
    for here, there, where in ((ours, theirs, "the first part"), (theirs, ours, part)):
        for name in here:
            if name not in there:
                return f"{name!r} is only in {where}"
    return "the order differs"
