"""The columns of a table as they stand in a file: a category is a word again."""

from collections.abc import Iterator

from veilring.data import Table


def columns_of(table: Table) -> Iterator[list[object]]:
    """Yield the header and the cells of each column but the label, as the table's source has it."""
    by_first = {each.first: each for each in table.categories}
    position = 0
    while position < len(table.feature_names):
        if position in by_first:
            column = by_first[position]
            held = table.features[:, column.features].argmax(axis=1)
            yield [column.column, *(column.values[value] for value in held.tolist())]
            position = column.features.stop
        else:
            yield [table.feature_names[position], *table.features[:, position].tolist()]
            position += 1


def features_of(table: Table) -> Iterator[list[object]]:
    """Yield the name and the numbers of each feature: a category is several of 0 and 1."""
    for name, values in zip(table.feature_names, table.features.T.tolist(), strict=True):
        yield [name, *values]
