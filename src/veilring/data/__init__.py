"""Data sets as tables of numbers: where they come from, how they are scaled, split and dealt."""

from veilring.data.sources import load
from veilring.data.table import (
    PARTITIONS,
    Categories,
    Features,
    PartitionKind,
    Ranges,
    Rows,
    Table,
    TrainTestSplit,
    partition,
    scale_to_unit,
    split,
)

__all__ = (
    "PARTITIONS",
    "Categories",
    "Features",
    "PartitionKind",
    "Ranges",
    "Rows",
    "Table",
    "TrainTestSplit",
    "load",
    "partition",
    "scale_to_unit",
    "split",
)
