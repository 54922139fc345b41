"""Tools for testing protocols: fixtures that run them, and assertions on their cost and privacy.

::

    def test_sum_costs_what_it_should(run_protocol):
        run = run_protocol(my_role, 5, own=inputs)
        assert_cost(run, messages=9, rounds=6)

The fixture `run_protocol` runs the test once on each runtime that the ini option
`veilring_runtimes` lists (default: `memory simulated`), with the same seed. The same test thus
covers tasks in memory, processes over TLS, and the simulation.

The fixture `explore` runs a protocol in many worlds with faults, and fails if an invariant is
violated in one of them: see `veilring.testing.exploring`.

`assert_hides`, `assert_simulatable` and `measure_leakage` test what a role reveals to a coalition:
see `veilring.testing.hiding`.

`audit` runs all of these tests on one system or role, and returns a verdict for each of its claims:
see `veilring.testing.auditing`.
"""

import asyncio
import warnings
from asyncio import events
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:  # pytest imports a plugin in every test run of its user, so imports must be light
    from veilring.nodes.adversary import Adversary
    from veilring.nodes.cluster import RuntimeName
    from veilring.nodes.run import Run
    from veilring.testing.auditing import RoleClaims, audit
    from veilring.testing.hiding import assert_hides, assert_simulatable, measure_leakage

__all__ = (
    "ProtocolRunner",
    "RoleClaims",
    "assert_cost",
    "assert_hides",
    "assert_simulatable",
    "audit",
    "measure_leakage",
)

_R = TypeVar("_R")

pytest_plugins: Final = ("veilring.testing.plugin",)
"""The fixtures. The rest of this package does not need pytest."""


class ProtocolRunner:
    """The fixture `run_protocol`, which runs protocols on one runtime.

    Args:
        runtime: The runtime of the parties: one of `veilring.nodes.cluster.RUNTIMES`.
    """

    def __init__(self, runtime: "RuntimeName") -> None:
        self._runtime = runtime

    def __call__(
        self,
        role: Callable[..., Awaitable[_R]],
        parties: int | Sequence[str],
        *,
        own: Sequence[object] | None = None,
        only: Mapping[str, Mapping[str, object]] | None = None,
        watch: Iterable[str] = (),
        adversaries: "Mapping[str, Adversary] | None" = None,
        seconds: float | None = None,
        seed: int | None = 0,
        **public: Any,
    ) -> "Run[_R]":
        """Run a protocol once among fresh parties; see `veilring.nodes.cluster.Cluster`.

        It warns with `RoundsDiffer` if the role declares other rounds than it takes.

        Raises:
            VeilringError: As `Cluster.run` raises it.
            ClusterError: If an event loop is already running, as in an `async def` test.
        """
        __tracebackhide__ = True  # pytest points at the caller, and the error's cause at the role
        from veilring import simulation  # noqa: PLC0415  (light until it is used)
        from veilring.errors import ClusterError, RoundsDiffer, VeilringError  # noqa: PLC0415  (as above)
        from veilring.nodes.cluster import Cluster  # noqa: PLC0415  (as above)
        from veilring.nodes.run import refuse_options  # noqa: PLC0415  (as above)

        refuse_options(role, ProtocolRunner.__call__)
        if events._get_running_loop() is not None:  # noqa: SLF001  (asyncio documents it)
            instead = "write the test as `def`, or run a `Cluster` in it (`async with`)"
            raise ClusterError(f"run_protocol starts an event loop, but one is running: {instead}")

        async def main() -> "Run[_R]":
            async with Cluster(parties, runtime=self._runtime, own=own, seed=seed) as cluster:
                return await cluster.run(
                    role, only=only, watch=watch, adversaries=adversaries, seconds=seconds, **public
                )

        runner = simulation.simulate if self._runtime == "simulated" else asyncio.run
        try:
            run = runner(main())
        except VeilringError as error:
            raise error.with_traceback(None) from error.__cause__  # without the frames of asyncio
        if run.cost.rounds_differ and not adversaries:
            warnings.warn(RoundsDiffer(run.cost.rounds_differ), stacklevel=2)
        return run


def assert_cost(
    run: "Run[Any]",
    *,
    messages: int | None = None,
    bytes: int | None = None,
    rounds: int | None = None,
    setup_messages: int | None = None,
    setup_bytes: int | None = None,
) -> None:
    """Fail unless a run had exactly this cost; numbers left out are not asserted.

    Args:
        messages: The number of messages of the protocol, without its set-up.
        bytes: The bytes of their frames.
        rounds: The number of communication rounds, both as declared and as measured.
        setup_messages: The number of messages before the first round.
        setup_bytes: The bytes of their frames.

    Raises:
        AssertionError: If the run had another cost.
        InputError: If no number is given.
    """
    __tracebackhide__ = True  # pytest points at the caller
    from veilring.errors import InputError  # noqa: PLC0415  (light until it is used)

    cost = run.cost
    numbers = {
        "messages": (cost.messages, messages),
        "bytes": (cost.bytes, bytes),
        "rounds": (cost.rounds, rounds),
        "setup_messages": (cost.setup.messages, setup_messages),
        "setup_bytes": (cost.setup.bytes, setup_bytes),
    }
    asked = {name: pair for name, pair in numbers.items() if pair[1] is not None}
    if not asked:
        raise InputError.because(
            f"no cost is expected; give at least one of {', '.join(numbers)}", field="expected"
        )
    measured = {name: found for name, (found, _) in asked.items()}
    expected = {name: due for name, (_, due) in asked.items()}
    said = f"the run cost {measured}; by kind: {cost.by_kind}; set-up: {cost.setup}"
    assert measured == expected, said  # noqa: S101  (an assertion helper must assert)
    assert rounds is None or not cost.rounds_differ, cost.rounds_differ  # noqa: S101  (as above)


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's attribute is anything)
    """Import audits on first use, because they need scikit-learn and SimPy."""
    if name in {"RoleClaims", "audit"}:
        from veilring.testing import auditing  # noqa: PLC0415  (the reason of this function)

        return getattr(auditing, name)
    if name in __all__:
        from veilring.testing import hiding  # noqa: PLC0415  (the reason of this function)

        return getattr(hiding, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
