"""The scheme of a task: its Prio3 instance, and how much one valid report moves a total."""

from collections.abc import Callable, Mapping
from typing import Final

from veilring.protocols.prio.algorithm.prio3 import Prio3
from veilring.protocols.prio.task import Vdaf

_MAKERS: Final[Mapping[str, Callable[..., Prio3]]] = {
    "count": Prio3.count,
    "sum": Prio3.sum_,
    "sumvec": Prio3.sum_vec,
    "histogram": Prio3.histogram,
    "sumvec64": Prio3.sum_vec_multiproof,
}


def scheme_of(vdaf: Vdaf) -> Prio3:
    """Return the Prio3 instance of a kind of reports.

    Raises:
        InputError: If a parameter is out of range.
    """
    return _MAKERS[vdaf.kind](**vdaf.parameters)


def norm_of(vdaf: Vdaf) -> int:
    """Return the maximum L1 norm by which one valid report changes a total."""
    circuit = scheme_of(vdaf).circuit
    return circuit.largest * (circuit.output_length if vdaf.kind.startswith("sumvec") else 1)


def entries_of(vdaf: Vdaf) -> int:
    """Return the number of entries of a total."""
    return scheme_of(vdaf).output_length
