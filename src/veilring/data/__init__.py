"""Data sets as tables of numbers: where they come from, how they are scaled, split and dealt."""
