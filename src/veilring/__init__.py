"""Private classification among parties that do not trust each other.

::

    import veilring as vr

    wine = vr.load("wine")
    train, test = wine.split(test_share=0.25, seed=1)
    run = vr.run(vr.RankSearch(k=5), train.partition(8, seed=1), test, runtime="simulated", seed=1)
    print(run)

Every name in this package is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from veilring.data.sources import load as load
    from veilring.data.table import Features as Features
    from veilring.data.table import Ranges as Ranges
    from veilring.data.table import Rows as Rows
    from veilring.data.table import Table as Table
    from veilring.deployment import ask as ask
    from veilring.deployment import serve as serve
    from veilring.errors import AskedBefore as AskedBefore
    from veilring.errors import BudgetExhausted as BudgetExhausted
    from veilring.errors import ClusterError as ClusterError
    from veilring.errors import Deadlock as Deadlock
    from veilring.errors import FrameError as FrameError
    from veilring.errors import HandshakeError as HandshakeError
    from veilring.errors import InputError as InputError
    from veilring.errors import MissingExtra as MissingExtra
    from veilring.errors import PeerLost as PeerLost
    from veilring.errors import PrivacyLeakWarning as PrivacyLeakWarning
    from veilring.errors import ProtocolViolation as ProtocolViolation
    from veilring.errors import RunFailed as RunFailed
    from veilring.errors import ScenarioError as ScenarioError
    from veilring.errors import SessionAborted as SessionAborted
    from veilring.errors import SessionTimeout as SessionTimeout
    from veilring.errors import StoreFailed as StoreFailed
    from veilring.errors import Tampered as Tampered
    from veilring.errors import UnforeseenCost as UnforeseenCost
    from veilring.errors import VeilringError as VeilringError
    from veilring.estimators import as_classifier as as_classifier
    from veilring.nodes.cluster import Cluster as Cluster
    from veilring.nodes.party import Party as Party
    from veilring.nodes.party import broadcast as broadcast
    from veilring.nodes.run import Run as Run
    from veilring.protocols.forecast import Forecast as Forecast
    from veilring.protocols.ldp.system import LDPBayes as LDPBayes
    from veilring.protocols.masks import masked_sum as masked_sum
    from veilring.protocols.membership import Membership as Membership
    from veilring.protocols.membership import Once as Once
    from veilring.protocols.noisyvotes.system import NoisyVotes as NoisyVotes
    from veilring.protocols.prediction.system import IndKNN as IndKNN
    from veilring.protocols.promise import Facts as Facts
    from veilring.protocols.promise import Promise as Promise
    from veilring.protocols.promise import Spent as Spent
    from veilring.protocols.radius.system import DataOwner as DataOwner
    from veilring.protocols.ranksearch.system import RankSearch as RankSearch
    from veilring.protocols.registry import find_system as find_system
    from veilring.protocols.registry import system_names as system_names
    from veilring.protocols.release.model import load_model as load_model
    from veilring.protocols.release.system import Release as Release
    from veilring.protocols.ring.system import PrivateKNN as PrivateKNN
    from veilring.protocols.system import PeerSetup as PeerSetup
    from veilring.protocols.system import Play as Play
    from veilring.protocols.system import ServerSetup as ServerSetup
    from veilring.protocols.system import Setup as Setup
    from veilring.protocols.system import System as System
    from veilring.protocols.system import Tunable as Tunable
    from veilring.protocols.treewalk.system import TreeWalk as TreeWalk
    from veilring.scenarios import load_scenario as load_scenario
    from veilring.scenarios import run_scenario as run_scenario
    from veilring.scenarios.comparison import compare as compare
    from veilring.scenarios.direct import SystemRun as SystemRun
    from veilring.scenarios.direct import run as run
    from veilring.scenarios.direct import run_async as run_async
    from veilring.transport.messages import Message as Message

_WHERE: Final = {
    "veilring.data.sources": ("load",),
    "veilring.data.table": ("Features", "Ranges", "Rows", "Table"),
    "veilring.deployment": ("ask", "serve"),
    "veilring.errors": (
        "AskedBefore",
        "BudgetExhausted",
        "ClusterError",
        "Deadlock",
        "FrameError",
        "HandshakeError",
        "InputError",
        "MissingExtra",
        "PeerLost",
        "PrivacyLeakWarning",
        "ProtocolViolation",
        "RunFailed",
        "ScenarioError",
        "SessionAborted",
        "SessionTimeout",
        "StoreFailed",
        "Tampered",
        "UnforeseenCost",
        "VeilringError",
    ),
    "veilring.estimators": ("as_classifier",),
    "veilring.nodes.cluster": ("Cluster",),
    "veilring.nodes.party": ("Party", "broadcast"),
    "veilring.nodes.run": ("Run",),
    "veilring.protocols.forecast": ("Forecast",),
    "veilring.protocols.prediction.system": ("IndKNN",),
    "veilring.protocols.ldp.system": ("LDPBayes",),
    "veilring.protocols.masks": ("masked_sum",),
    "veilring.protocols.membership": ("Membership", "Once"),
    "veilring.protocols.noisyvotes.system": ("NoisyVotes",),
    "veilring.protocols.promise": ("Facts", "Promise", "Spent"),
    "veilring.protocols.treewalk.system": ("TreeWalk",),
    "veilring.protocols.radius.system": ("DataOwner",),
    "veilring.protocols.registry": ("find_system", "system_names"),
    "veilring.protocols.ranksearch.system": ("RankSearch",),
    "veilring.protocols.release.model": ("load_model",),
    "veilring.protocols.release.system": ("Release",),
    "veilring.protocols.ring.system": ("PrivateKNN",),
    "veilring.protocols.system": (
        "PeerSetup",
        "Play",
        "ServerSetup",
        "Setup",
        "System",
        "Tunable",
    ),
    "veilring.scenarios": ("load_scenario", "run_scenario"),
    "veilring.scenarios.comparison": ("compare",),
    "veilring.scenarios.direct": ("SystemRun", "run", "run_async"),
    "veilring.transport.messages": ("Message",),
}
_MODULE_OF: Final = {name: module for module, names in _WHERE.items() for name in names}

__all__ = (  # noqa: PLE0604  (from the table above, so that a name stands in it once)
    "__version__",
    *sorted(_MODULE_OF),
)


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's attribute is anything)
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  (it takes long)

        return version("veilring")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'veilring' has no attribute {name!r}")
    from veilring.extras import name_missing_extras  # noqa: PLC0415  (importing loads nothing)

    with name_missing_extras():
        found = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
