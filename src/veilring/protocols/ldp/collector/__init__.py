"""The long-lived aggregator: it stores what clients report, and acknowledges what is durable."""

from veilring.protocols.ldp.collector.collector import SUBMIT, TASK, Collector, read_task

__all__ = ("SUBMIT", "TASK", "Collector", "read_task")
