"""Cost, transcripts and views, all taken at one place: a session's channel."""

from veilring.measure.cost import Cost, Meter, Traffic, total_cost
from veilring.measure.events import SETUP_ROUND, Event, Tap
from veilring.measure.transcript import Seen, Transcript, View, join_transcripts, transcript_hash

__all__ = (
    "SETUP_ROUND",
    "Cost",
    "Event",
    "Meter",
    "Seen",
    "Tap",
    "Traffic",
    "Transcript",
    "View",
    "join_transcripts",
    "total_cost",
    "transcript_hash",
)
