"""The greetings of a new TLS connection, before the first frame.

TLS 1.3 alone does not tell a client whether it was accepted: its handshake is complete before the
server has seen its certificate, so a refused client sees a good connection and then a clean end.
asyncio also drops the alert with the reason. TLS also knows nothing about rosters and versions.
Therefore the dialler, after comparing the other side's key with the roster, sends `Hello`; the
listener answers `Welcome` or `Refuse`; only then are the two connected. The dialler may also send
`Refuse` instead of `Hello`.
"""

import hashlib
import json
import ssl
from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from veilring.errors import FrameError
from veilring.transport.frames import on_stream
from veilring.transport.identity import NAME_CHARACTERS_MAX
from veilring.transport.messages import SESSION_BYTES, Message, decode, encode
from veilring.transport.roster import Roster

PROTOCOL_VERSION: Final = 1
"""The version of frames and messages, which must be equal on both sides."""
# A handshake takes a few round trips; asyncio's own limit of 60 s would let a silent peer delay us.
HANDSHAKE_SECONDS: Final = 5.0
# Terms have some dozens of keys of a few words each; longer values are replaced by their hashes.
TERMS_CHARACTERS_MAX: Final = 1 << 14
# A reason comes from the other side and ends in our log: it is a line, not a page.
REASON_CHARACTERS_MAX: Final = 400
FORMAT: Final = "format"
"""The last word of a key of terms whose value is a number that grows with versions of veilring."""

_KEYS_SHOWN: Final = 4  # differing terms named in one reason
_VALUE_SHOWN: Final = 40  # characters of a key or a value there

_NO_SESSION: Final = bytes(
    SESSION_BYTES
)  # greetings belong to the connection, not to a protocol run


class Hello(Message, kind="transport.hello"):
    """Announces sender, receiver, roster and the sender's terms.

    The first four fields never change: a new version changes the ones after them.

    Attributes:
        terms: The public keys of the terms as written by `terms_text`; empty without terms.
    """

    version: int
    roster: bytes
    sender: str
    receiver: str
    terms: Annotated[str, Field(max_length=TERMS_CHARACTERS_MAX)] = ""


class Welcome(Message, kind="transport.welcome"):
    """Announces that the two are connected."""


class Refuse(Message, kind="transport.refuse"):
    """Announces the reason of a refusal, and whether another attempt could succeed."""

    reason: Annotated[str, Field(max_length=REASON_CHARACTERS_MAX)]
    again: bool


class ConnectionRefusal(NamedTuple):
    """The reason why two sides did not connect, phrased for either of them."""

    reason: str
    again: bool = False
    """Whether another attempt could succeed."""

    @classmethod
    def by(cls, error: BaseException | None) -> "ConnectionRefusal":
        """Return the refusal for an error on the way, or for an end without one."""
        broken = error is None or not isinstance(error, ssl.SSLError)
        return cls(explain(error), again=broken or isinstance(error, ssl.SSLEOFError))


def greeting(message: Hello | Welcome | Refuse) -> bytes:
    """Return the bytes of a greeting on the stream."""
    return on_stream(encode(_NO_SESSION, message))


def read_greeting(frame: bytes) -> Hello | Welcome | Refuse:
    """Parse a greeting.

    Raises:
        FrameError: If the frame is anything else.
    """
    session, message = decode(frame)
    if session != _NO_SESSION or not isinstance(message, Hello | Welcome | Refuse):
        raise FrameError(f"{message.kind} where a greeting was expected")
    return message


def terms_text(terms: Mapping[str, str]) -> str:
    """Return public terms in the form of a greeting.

    Args:
        terms: The value of each key, as readable text.
    """
    text = json.dumps(dict(terms), sort_keys=True) if terms else ""
    if len(text) <= TERMS_CHARACTERS_MAX:
        return text
    return json.dumps({"terms": hashlib.sha256(text.encode()).hexdigest()})


def check_hello(
    hello: Hello, roster: Roster, *, me: str, peer: str, terms: str = ""
) -> ConnectionRefusal | None:
    """Return an objection to a greeting from the member whose key is `peer`'s, or `None`.

    Args:
        hello: The greeting.
        roster: Our roster.
        me: The name of the member that was greeted.
        peer: The name of the member with the peer's key.
        terms: Our terms, as written by `terms_text`. A member without terms does not compare them.
    """
    if hello.version != PROTOCOL_VERSION:
        return ConnectionRefusal(
            f"protocol version {hello.version} at {peer}, {PROTOCOL_VERSION} at {me}; "
            f"{_update(hello.version, peer, PROTOCOL_VERSION, me)}"
        )
    if hello.roster != roster.hash:
        return ConnectionRefusal("the rosters differ: all members must hold the same one")
    if hello.sender != peer:
        claim = hello.sender[:NAME_CHARACTERS_MAX]
        return ConnectionRefusal(f"it claimed the name {claim!a} with the key of {peer}")
    if hello.receiver != me:
        sought = hello.receiver[:NAME_CHARACTERS_MAX]
        return ConnectionRefusal(f"it looked for {sought!a} at the address of {me}")
    if terms and hello.terms and hello.terms != terms:
        return ConnectionRefusal(f"the terms differ: {_differences(hello.terms, peer, terms, me)}")
    return None


def _differences(theirs: str, peer: str, ours: str, me: str) -> str:
    """Describe the keys that differ, with their values at both ends."""
    there, here = _keys(theirs), _keys(ours)
    keys = [key for key in sorted({*there, *here}) if there.get(key) != here.get(key)]
    said = [
        f"{key}: {there.get(key, 'nothing')} at {peer}, {here.get(key, 'nothing')} at {me}"
        + _advice(key, there.get(key, ""), peer, here.get(key, ""), me)
        for key in keys[:_KEYS_SHOWN]
    ]
    more = f" and {len(keys) - _KEYS_SHOWN} more" if len(keys) > _KEYS_SHOWN else ""
    return "; ".join(said) + more


def _advice(key: str, theirs: str, peer: str, ours: str, me: str) -> str:
    """Name the older side, if the key is a format and both sides have one."""
    if not (key.endswith(FORMAT) and theirs.isdecimal() and ours.isdecimal()):
        return ""
    return f" ({_update(int(theirs), peer, int(ours), me)})"


def _update(theirs: int, peer: str, ours: int, me: str) -> str:
    return f"update veilring at {peer if theirs < ours else me}, which is older"


def _keys(text: str) -> dict[str, str]:
    try:
        terms = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    known = isinstance(terms, dict)
    return {_shown(key): _shown(value) for key, value in terms.items()} if known else {}


def _shown(value: object) -> str:
    text = "".join(c if c.isprintable() else "?" for c in str(value))
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}…"


def explain(error: BaseException | None) -> str:
    """Explain why a connection failed; `None` is an end without an error."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not valid under our roster: {error.verify_message}"
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
    "it ended the connection during the handshake without a reason; most likely our certificate "
    "is not in its roster or has expired"
)
NOT_TLS: Final = "it does not speak TLS 1.3"
_TLS_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate",
    "UNSUPPORTED_PROTOCOL": NOT_TLS,
    "TLSV1_ALERT_PROTOCOL_VERSION": NOT_TLS,
    "WRONG_VERSION_NUMBER": NOT_TLS,
    "HTTP_REQUEST": NOT_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a certificate and we showed none",
    "TLSV1_ALERT_UNKNOWN_CA": "our certificate is not in its roster",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
}
