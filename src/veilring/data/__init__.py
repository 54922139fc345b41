"""Data sets as tables of numbers: where they come from, how they are scaled, split and dealt."""

from veilring.data.partition import PARTITIONS, PartitionKind, partition
from veilring.data.sources import load
from veilring.data.table import (
    Categories,
    Features,
    Ranges,
    Rows,
    Split,
    Table,
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
    "Split",
    "Table",
    "load",
    "partition",
    "scale_to_unit",
    "split",
)
