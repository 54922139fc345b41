"""The greetings of a new TLS connection, before the first frame.

TLS 1.3 alone does not tell a client whether it was accepted: its handshake is complete before the
server has seen its certificate, so a refused client sees a good connection and then a clean end.
asyncio also drops the alert with the reason. TLS also knows nothing about rosters and versions.
Therefore the dialler, after comparing the other side's key with the roster, sends `Hello`; the
listener answers `Welcome` or `Refuse`; only then are the two connected. The dialler may also send
`Refuse` instead of `Hello`.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Annotated, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from veilring.config import HASHED, ORDER_OF
from veilring.errors import FrameError
from veilring.transport.frames import on_stream
from veilring.transport.messages import SESSION_BYTES, Message, encode, open_frame
from veilring.transport.roster import NAME_CHARACTERS_MAX, Roster, agree

PROTOCOL_VERSION: Final = 2
"""The version of frames and greetings, which must be equal on both sides."""
# A handshake takes a few round trips; asyncio's own limit of 60 s would let a silent peer delay us.
HANDSHAKE_SECONDS: Final = 5.0
# Terms have some dozens of keys of a few words each; longer terms are replaced by their hash.
ABOUT_CHARACTERS_MAX: Final = 1 << 14
# The rest is for the version of veilring, the time and the names of keys.
TERMS_CHARACTERS_MAX: Final = ABOUT_CHARACTERS_MAX - 256
# A reason comes from the other side and ends in our log: it is a line, not a page.
REASON_CHARACTERS_MAX: Final = 400
FORMAT: Final = "format"
"""The last word of a key of terms whose value is a number that grows with versions of veilring."""

# Clocks that keep time by the network differ by less than a second; a wrong time zone is an hour.
# A clock that is wrong by a day makes valid certificates invalid.
CLOCKS_DIFFER_SECONDS: Final = 1800.0

_KEYS_SHOWN: Final = 5  # differing terms named in one reason
_VALUE_SHOWN: Final = 40  # characters of a key or a value there
_DIFFERENCES_SHOWN: Final = 300  # characters of all of them: the rest of a reason is around them
_SECONDS: Final = {"days": 86_400.0, "hours": 3600.0, "minutes": 60.0}
_YEAR_9999: Final = 253_402_300_800  # in seconds since 1970: later times cannot be shown
_VERSION_CHARACTERS_MAX: Final = 40  # of a version of veilring, such as 0.1.0.dev1+g1234567

_NO_SESSION: Final = bytes(SESSION_BYTES)  # greetings belong to no protocol run


class Hello(Message, kind="transport.hello"):
    """Announces sender, receiver and roster, and describes the sender.

    Every version has five fields, and the first four never change: any two versions can compare
    their numbers, and both can name the older side. A new version changes the text of the last one.

    Attributes:
        roster: The `Roster.hashes` of the sender, joined.
        about: The text of an `About`.
    """

    version: int
    roster: bytes
    sender: str
    receiver: str
    about: Annotated[str, Field(max_length=ABOUT_CHARACTERS_MAX)] = ""


class OtherHello(NamedTuple):
    """A greeting of another version, of which only this can be read."""

    version: int
    fields: int


class Welcome(Message, kind="transport.welcome"):
    """Announces that the two are connected, and describes the listener."""

    about: Annotated[str, Field(max_length=ABOUT_CHARACTERS_MAX)] = ""


class Refuse(Message, kind="transport.refuse"):
    """Announces the reason of a refusal, and whether another attempt could succeed.

    It never changes: every version can read the refusal of every other.
    """

    reason: Annotated[str, Field(max_length=REASON_CHARACTERS_MAX)]
    again: bool


Greeting = Hello | OtherHello | Welcome | Refuse


class About(BaseModel):
    """The description of one side in a greeting; parts of later versions are ignored.

    Attributes:
        terms: The public terms, key by key; empty if they are not compared.
        veilring: The version of veilring; empty if unknown.
        clock: The time in seconds since 1970 (UTC); none if unknown.
    """

    model_config = ConfigDict(frozen=True)

    terms: dict[str, str] = {}
    veilring: Annotated[str, Field(max_length=_VERSION_CHARACTERS_MAX)] = ""
    clock: Annotated[float, Field(ge=0, lt=_YEAR_9999)] | None = None

    @property
    def text(self) -> str:
        """The description in JSON."""
        return self.model_dump_json()

    @classmethod
    def of_terms(cls, terms: Mapping[str, str]) -> "About":
        """Return the description of a side with these terms; long ones are replaced by a hash."""
        text = json.dumps(dict(terms), sort_keys=True)
        if len(text) > TERMS_CHARACTERS_MAX:
            terms = {"terms": hashlib.sha256(text.encode()).hexdigest()}
        return cls(terms=dict(terms), veilring=_own_version())

    @classmethod
    def read(cls, text: str) -> "About":
        """Return the description that the other side sent."""
        try:
            return cls.model_validate_json(text) if text else cls()
        except ValidationError as error:
            raise FrameError("it describes itself in another form") from error

    @property
    def without_terms(self) -> "About":
        """The description for a side that has compared the terms already."""
        return self.model_copy(update={"terms": {}})

    def at(self, clock: float) -> "About":
        """Return the description with the time, in seconds since 1970 (UTC)."""
        return self.model_copy(update={"clock": clock})

    def differences(self, peer: str, theirs: "About") -> list[str]:
        """Return what differs between the two sides and may explain a failure, in sentences."""
        said = []
        if self.veilring and theirs.veilring and self.veilring != theirs.veilring:
            said.append(f"{peer} runs veilring {_shown(theirs.veilring)}, we run {self.veilring}")
        if self.clock is not None and theirs.clock is not None:
            apart = abs(self.clock - theirs.clock)
            if apart > CLOCKS_DIFFER_SECONDS:
                said.append(f"our clock and that of {peer} differ by {_duration(apart)}")
        return said


class ConnectionRefusal(NamedTuple):
    """The reason why two sides did not connect, phrased for either of them."""

    reason: str
    again: bool = False
    """Whether another attempt could succeed."""

    @classmethod
    def by(cls, error: BaseException | None) -> "ConnectionRefusal":
        """Return the refusal for an error on the way, or for an end without one."""
        import ssl  # noqa: PLC0415  (greetings in memory need none, and a browser has none)

        broken = error is None or not isinstance(error, ssl.SSLError)
        return cls(explain(error), again=broken or isinstance(error, ssl.SSLEOFError))


def greeting(message: Hello | Welcome | Refuse) -> bytes:
    """Return the bytes of a greeting on the stream."""
    return on_stream(encode(_NO_SESSION, message))


def read_greeting(frame: bytes) -> Greeting:
    """Parse a greeting."""
    envelope = open_frame(frame)
    if envelope.kind == Hello.kind:
        fields = envelope.fields()
        number = fields[0] if fields else None
        ours = number == PROTOCOL_VERSION and len(fields) == len(Hello.names)
        if isinstance(number, int) and not ours:
            return OtherHello(number, len(fields))
    message = envelope.message()
    if envelope.session != _NO_SESSION or not isinstance(message, Hello | Welcome | Refuse):
        raise FrameError(f"{message.kind} where a greeting was expected")
    return message


@cache
def _own_version() -> str:
    return version("veilring")[:_VERSION_CHARACTERS_MAX]


def check_hello(
    hello: Hello | OtherHello, roster: Roster, *, me: str, peer: str, ours: About, today: dt.date
) -> ConnectionRefusal | None:
    """Return an objection to a greeting from the member whose key is `peer`'s, or `None`.

    Args:
        ours: Our description. A member without terms does not compare them.
    """
    if isinstance(hello, OtherHello):
        return _outdated(hello, peer, me)
    if not agree(hello.roster, roster.hashes(today)):
        return ConnectionRefusal(_other_roster(hello.roster, roster, peer))
    if hello.sender != peer:
        claim = hello.sender[:NAME_CHARACTERS_MAX]
        return ConnectionRefusal(f"it claimed the name {claim!a} with the key of {peer}")
    if hello.receiver != me:
        sought = hello.receiver[:NAME_CHARACTERS_MAX]
        return ConnectionRefusal(f"it looked for {sought!a} at the address of {me}")
    differing = _differing(About.read(hello.about).terms, ours.terms)
    return ConnectionRefusal(_differences(differing, peer, me)) if differing else None


def _other_roster(theirs: bytes, roster: Roster, peer: str) -> str:
    _, *before = roster.hashes(dt.date.min)  # before its previous keys ended
    if theirs in before:
        until = max(filter(None, (member.previous_until for member in roster.members)))
        return f"{peer} has the previous roster, which was accepted until {until}; give it ours"
    return "the rosters differ: all members must hold the same one"


def _outdated(hello: OtherHello, peer: str, me: str) -> ConnectionRefusal:
    what, theirs, ours = "protocol version", hello.version, PROTOCOL_VERSION
    if theirs == ours:
        what, theirs, ours = "number of fields in a greeting", hello.fields, len(Hello.names)
    older = _update(theirs, peer, ours, me)
    return ConnectionRefusal(f"{what}: {theirs} at {peer}, {ours} at {me}; {older}")


def _differing(there: Mapping[str, str], here: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return both values of each key that differs, formats first.

    A side without formats compares none, and a side with formats alone compares nothing else.
    """
    found = dict[str, tuple[str, str]]()
    for of_formats in (True, False):
        theirs, ours = (
            {key: value for key, value in side.items() if key.endswith(FORMAT) == of_formats}
            for side in (there, here)
        )
        if theirs and ours:
            for key in sorted({*theirs, *ours}):
                values = theirs.get(key, "nothing"), ours.get(key, "nothing")
                if values[0] != values[1]:
                    found[key] = values
    for key in [key for key in found if key.startswith(ORDER_OF)]:
        name = key.removeprefix(ORDER_OF)
        if any(each == name or each.startswith(f"{name}.") for each in found):
            del found[key]  # more than the order differs
    return found


def _differences(differing: Mapping[str, tuple[str, str]], peer: str, me: str) -> str:
    """Describe the keys that differ, with their values at both ends."""
    said = list[str]()
    for key, (there, here) in list(differing.items())[:_KEYS_SHOWN]:
        line = _difference(key, there, peer, here, me)
        if said and len("; ".join((*said, line))) > _DIFFERENCES_SHOWN:
            break
        said.append(line)
    left = len(differing) - len(said)
    more = f" and {left} more" if left else ""
    return f"the terms differ: {'; '.join(said)}{more}"


def _difference(key: str, there: str, peer: str, here: str, me: str) -> str:
    if key.startswith(ORDER_OF):
        return f"{_shown(key.removeprefix(ORDER_OF))}: in another order at {peer} than at {me}"
    if there.startswith(HASHED) and here.startswith(HASHED):
        return f"{_shown(key)}: other values at {peer} than at {me}"
    values = f"{_shown(key)}: {_shown(there)} at {peer}, {_shown(here)} at {me}"
    if key.endswith(FORMAT) and there.isdecimal() and here.isdecimal():
        return f"{values} ({_update(int(there), peer, int(here), me)})"
    return values


def _update(theirs: int, peer: str, ours: int, me: str) -> str:
    return f"update veilring at {peer if theirs < ours else me}, which is older"


def printable(text: str) -> str:
    """Return a text that came from the other side without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _shown(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}…"


def _duration(seconds: float) -> str:
    """Return a duration in the largest unit of which it has at least two."""
    unit, size = next(
        (each for each in _SECONDS.items() if seconds >= 2 * each[1]), ("minutes", 60.0)
    )
    return f"{seconds / size:.0f} {unit}"


def explain(error: BaseException | None) -> str:
    """Explain why a connection failed; `None` is an end without an error."""
    import ssl  # noqa: PLC0415  (as above)

    match error:
        case ssl.SSLCertVerificationError():
            ours = "; or our own clock is wrong" if error.verify_code in _CLOCK_CODES else ""
            return f"its certificate is not valid under our roster: {error.verify_message}{ours}"
        case None | ssl.SSLEOFError() | ConnectionResetError() | BrokenPipeError():
            return HUNG_UP
        case ssl.SSLError(reason=str(reason)):
            return _TLS_REASONS.get(reason, f"TLS failed: {reason.lower().replace('_', ' ')}")
        case TimeoutError() | ConnectionAbortedError():
            return TOO_SLOW
        case ConnectionRefusedError():
            return "nothing listens at its address"
        case _:
            return f"the network failed: {error}"


TOO_SLOW: Final = "it did not finish the handshake in time"
"""The reason for ending a connection that takes too long, or sends nothing."""
HUNG_UP: Final = (
    "it ended the connection during the handshake without a reason; its log has the reason: most "
    "likely our certificate is not in its roster or has expired, or its clock or ours is wrong"
)
NOT_TLS: Final = "it does not speak TLS 1.3"
# X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL
_CLOCK_CODES: Final = frozenset({9, 10})
_TLS_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate",
    "UNSUPPORTED_PROTOCOL": NOT_TLS,
    "TLSV1_ALERT_PROTOCOL_VERSION": NOT_TLS,
    "WRONG_VERSION_NUMBER": NOT_TLS,
    "HTTP_REQUEST": NOT_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a certificate and we showed none",
    "TLSV1_ALERT_UNKNOWN_CA": "our certificate is not in its roster",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired, or its clock is wrong",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refused our certificate; its log has the reason: most likely"
    " its clock or ours is wrong",
}
