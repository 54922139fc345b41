"""The warnings before a certificate ends, or a previous key is no longer accepted."""

import asyncio
import datetime as dt
import logging
from collections.abc import Iterable
from logging import Logger
from typing import Final, NamedTuple

from veilring.deployment.status import Clock
from veilring.transport.roster import Member
from veilring.transport.tls import TlsEndpoint

# Long enough to exchange a new roster with people on holiday; a year's certificate is renewed once.
EXPIRY_WARNING_DAYS: Final = 30
# A line is repeated at a higher level when a week is left, and on the last day.
_EXPIRY_LEVELS: Final = {
    1: logging.CRITICAL,
    7: logging.ERROR,
    EXPIRY_WARNING_DAYS: logging.WARNING,
}
EXPIRY_CHECK_SECONDS: Final = 86_400.0  # each day that is left, one line for each certificate


class Expiry(NamedTuple):
    """A sentence about a certificate or key that ends soon, and the level of its log line."""

    level: int
    sentence: str

    @classmethod
    def of(cls, days: int, sentence: str) -> "Expiry":
        """Return a sentence for a number of days that are left."""
        level = next(level for most, level in _EXPIRY_LEVELS.items() if days <= most)
        return cls(level, sentence)


def expiry_warnings(members: Iterable[Member], now: dt.datetime) -> list[Expiry]:
    """Return a sentence about each certificate or key that ends within `EXPIRY_WARNING_DAYS`."""
    said = []
    for member in members:
        left = member.expires - now
        if left <= dt.timedelta(days=EXPIRY_WARNING_DAYS):
            day = f"{member.expires:%Y-%m-%d}"
            ended = left < dt.timedelta()
            ends = f"ended on {day}" if ended else f"ends on {day} (days left: {left.days})"
            sentence = (
                f"the certificate of {member.name} {ends}; without a new key and a new roster, no"
                " party connects to it after that day"
            )
            said.append(Expiry.of(left.days, sentence))
        if member.previous_until and member.accepts_previous(now.date()):
            days = (member.previous_until - now.date()).days
            if days <= EXPIRY_WARNING_DAYS:
                sentence = (
                    f"the previous key of {member.name} is accepted until {member.previous_until}"
                    f" (days left: {days}); let {member.name} use its new key by then"
                )
                said.append(Expiry.of(days, sentence))
    return said


async def keep_warning(endpoint: TlsEndpoint, log: Logger, clock: Clock) -> None:
    """Log the certificates and keys that end soon, once a day."""
    while True:
        for warning in expiry_warnings(endpoint.roster.members, clock()):
            log.log(warning.level, "%s", warning.sentence)
        await asyncio.sleep(EXPIRY_CHECK_SECONDS)
