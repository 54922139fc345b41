"""Cost, transcripts, views and traces, all taken at one place: a session's channel."""

from veilring.measure.cost import Cost, Meter, Traffic, total_cost
from veilring.measure.events import SETUP_ROUND, Event, Tap
from veilring.measure.trace import Journal, Mark, Passed, Trace, TracedMessage, join_traces
from veilring.measure.transcript import Seen, Transcript, View, join_transcripts, transcript_hash

__all__ = (
    "SETUP_ROUND",
    "Cost",
    "Event",
    "Journal",
    "Mark",
    "Meter",
    "Passed",
    "Seen",
    "Tap",
    "Trace",
    "TracedMessage",
    "Traffic",
    "Transcript",
    "View",
    "join_traces",
    "join_transcripts",
    "total_cost",
    "transcript_hash",
)
