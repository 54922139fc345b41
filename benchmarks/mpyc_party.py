"""One party of MPyC's secure top-k, in a process of its own: a script, started by `mpyc_ring`.

Each line on standard input names a method and holds the party's own values, ascending; the answer
is a line with as many values, the smallest of all parties'. MPyC reads its own options from the
command line when imported.

`sort` sorts the secret-shared union by MPyC's vectorised network. `merge` halves the number of
vectors until one is left: of two ascending vectors a and b, the smaller of each `a[i]` and
`b[k-1-i]` are the k smallest, and are sorted again. MPyC's list sort was slower than `sort` for 3,
5 and 9 parties, and its repeated `argmin` slower than the faster of these two.
"""

import asyncio
import sys
from typing import Any

import numpy as np
from mpyc.runtime import mpc

VALUE_BITS = 32  # comparisons cost in proportion; veilring compares 64-bit floats


def _sort(vectors: list[Any]) -> Any:  # noqa: ANN401  (MPyC's arrays have no types)
    return mpc.np_sort(mpc.np_hstack(tuple(vectors)))[: len(vectors[0])]


def _merge(vectors: list[Any]) -> Any:  # noqa: ANN401  (as above)
    rows = mpc.np_vstack(tuple(vectors))
    while (count := rows.shape[0]) > 1:
        half = count // 2
        one, other = rows[:half], mpc.np_flip(rows[half : 2 * half], axis=1)
        merged = mpc.np_sort(one + (other < one) * (other - one))
        rows = mpc.np_vstack((merged, rows[2 * half :])) if count % 2 else merged
    return rows[0]


_METHODS = {"sort": _sort, "merge": _merge}


async def _serve() -> None:
    number = mpc.SecInt(VALUE_BITS)
    loop = asyncio.get_running_loop()
    async with mpc:
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            method, *words = line.split()
            own = np.array([int(word) for word in words])
            smallest = _METHODS[method](mpc.input(number.array(own)))
            print(*(int(value) for value in await mpc.output(smallest)), flush=True)


mpc.run(_serve())
