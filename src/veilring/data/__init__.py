"""Data sets as tables of numbers: where they come from, how they are scaled, split and dealt."""

from veilring.data.partition import PARTITIONS, PartitionKind, partition
from veilring.data.sources import load_table
from veilring.data.table import Bounds, Categories, Split, Table, bounds_of, scale_to_unit, split

__all__ = (
    "PARTITIONS",
    "Bounds",
    "Categories",
    "PartitionKind",
    "Split",
    "Table",
    "bounds_of",
    "load_table",
    "partition",
    "scale_to_unit",
    "split",
)
