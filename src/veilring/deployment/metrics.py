"""The status of a running party as metrics of Prometheus, by its client library.

The HTTP server runs in a process of its own, which has neither the keys nor the rows of the party,
and asks the party for its status at each request.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from veilring.deployment.status import StatusReport
from veilring.errors import AddressTaken
from veilring.extras import name_missing_extras
from veilring.transport.tls import LOOPBACK

with name_missing_extras():
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from threading import Thread

METRICS_HOST: Final = LOOPBACK  # names of clients and their budgets are for this machine alone

ReadStatus = Callable[[], StatusReport | None]


class _Party(Collector):
    """Collects the status of a party; `up` is 0 if it is not running."""

    def __init__(self, read: ReadStatus) -> None:
        self._read = read

    @override
    def collect(self) -> Iterator[Metric]:
        status = self._read()
        yield GaugeMetricFamily("veilring_up", "Whether the party is running", status is not None)
        if status is not None:
            yield from _metrics(status)


def metrics_text(status: StatusReport) -> str:
    """Return a status in the text format of Prometheus."""
    return generate_latest(_registry(lambda: status)).decode()


def serve_metrics(read: ReadStatus, port: int, host: str | None = None) -> "Thread":
    """Serve the metrics of a party over HTTP, in the format that the request accepts.

    Args:
        read: Returns the status of the party, or none if it is not running.
        port: The port, 1 to 65535.
        host: The address; by default `METRICS_HOST`.

    Returns:
        The thread of the server.

    Raises:
        AddressTaken: If another process listens there.
    """
    address = host or METRICS_HOST
    try:
        _, thread = start_http_server(port, address, _registry(read))
    except OSError as error:
        raise AddressTaken(address, port) from error
    return thread


def _registry(read: ReadStatus) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Party(read))
    return registry


def _metrics(status: StatusReport) -> Iterator[Metric]:
    sessions, budget = status["sessions"], status["budget"]

    def metric(
        name: str, about: str, values: Mapping[str, float | None], label: str = ""
    ) -> Metric:
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        found = kind(f"veilring_{name}", about, labels=["party", *([label] if label else [])])
        for key, value in values.items():
            if value is not None:
                found.add_metric([status["party"], *([key] if label else [])], value)
        return found

    missing, running = len(status["waiting_for"]), sessions["running"]
    failed, refused = sessions["failed"], status["refusals"]
    yield metric("ready", "Whether all parties are connected", {"": status["ready"]})
    yield metric("parties_missing", "Parties that are not connected", {"": missing})
    yield metric("uptime_seconds", "Time since the start", {"": status["uptime"]})
    yield metric("sessions_running", "Sessions that peers have opened", {"": running})
    yield metric("sessions_finished_total", "Successful sessions", {"": sessions["finished"]})
    yield metric("sessions_failed_total", "Failed sessions, by error", {**failed}, "error")
    yield metric("refusals_total", "Refusals, by reason", {**refused}, "reason")
    days = {**status["certificate_days"]}
    yield metric("certificate_days_left", "Whole days until a certificate ends", days, "member")
    previous, about = {**status["previous_key_days"]}, "Days for which a previous key is accepted"
    yield metric("previous_key_days_left", about, previous, "member")
    failed_reload = {"": bool(status["reload_error"])}
    yield metric("reload_failed", "Whether the last reload has changed nothing", failed_reload)
    yield metric("next_key_waits", "Whether a next key is not in use yet", {"": status["next_key"]})
    if status["reports"] is not None:
        reports = {**status["reports"]}
        yield metric("reports", "Reports of clients, by state", reports, "state")
    if budget is not None:
        for what in ("spent", "left"):
            amount, about = {budget["unit"]: budget[what]}, f"Budget {what}"
            yield metric(f"budget_{what}", about, amount, "unit")
            clients = {each["name"]: each[what] for each in budget["analysts"]}
            yield metric(f"client_budget_{what}", f"{about}, by client", clients, "client")
