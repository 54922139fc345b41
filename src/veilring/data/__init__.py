"""Data sets as tables: sources, scaling, splits and partitions."""
