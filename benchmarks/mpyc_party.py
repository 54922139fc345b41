"""One party of MPyC's secure top-k, in a process of its own: a script, started by `mpyc_ring`.

Each line on standard input is a JSON list with the party's own values, shape (queries, k),
ascending for each query. The answer is one line as well: the smallest of all parties' values, in
the same shape, and the bytes that this party has sent for them. MPyC reads its own options from the
command line when imported.

The number of vectors is halved until one is left: of two ascending vectors a and b, the smaller of
each `a[i]` and `b[k-1-i]` are the k smallest, and are sorted again, for all queries at once. MPyC's
own sort of the union was slower for 3, 5 and 9 parties, as were its list sort and `argmin`.
"""

import asyncio
import json
import sys
from typing import Any

import numpy as np
from mpyc.runtime import mpc

VALUE_BITS = 32  # comparisons cost in proportion; veilring compares 64-bit floats


def _merge(vectors: list[Any]) -> Any:  # noqa: ANN401  (MPyC's arrays have no types)
    rows = mpc.np_stack(tuple(vectors))
    while (count := rows.shape[0]) > 1:
        half = count // 2
        one, other = rows[:half], mpc.np_flip(rows[half : 2 * half], axis=2)
        merged = mpc.np_sort(one + (other < one) * (other - one))
        odd = count % 2
        rows = mpc.np_concatenate((merged, rows[2 * half :])) if odd else merged
    return rows[0]


def _sent() -> int:
    return sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)


async def _serve() -> None:
    number = mpc.SecInt(VALUE_BITS)
    loop = asyncio.get_running_loop()
    async with mpc:
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            asked, before = json.loads(line), _sent()
            own = mpc.input(number.array(np.array(asked)))
            smallest = await mpc.output(_merge(own))
            answer = {"smallest": smallest.tolist(), "bytes": _sent() - before}
            print(json.dumps(answer), flush=True)


mpc.run(_serve())
