"""Reports in Parquet files, for whoever adds them up elsewhere: on a cluster, or years later.

A row is a report: the hash of its task, its question and its bytes. There are no ids, so that a
file says nothing of who sent what; whoever writes it answers for each report being there once, as a
collector's store does. Tallies add up, so that files may be cut and spread in any way.
"""

from veilring.protocols.ldp.parquet.reading import Piece, cut, tally_parquet, tally_piece
from veilring.protocols.ldp.parquet.rows import COLUMNS, PIECE_BYTES_MAX
from veilring.protocols.ldp.parquet.writing import write_parquet

__all__ = (
    "COLUMNS",
    "PIECE_BYTES_MAX",
    "Piece",
    "cut",
    "tally_parquet",
    "tally_piece",
    "write_parquet",
)
