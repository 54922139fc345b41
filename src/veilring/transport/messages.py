"""Typed messages, validated when they are sent and again when they are received.

A message is a frozen pydantic model whose class defines its `kind`. On the wire it is the
MessagePack list `[session, kind, field, field, …]`, with fields in the order of their declaration.
"""

from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from operator import is_
from typing import Annotated, Any, ClassVar, Final, Unpack

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import override

from veilring.arrays import Floats
from veilring.errors import FrameError, InputError
from veilring.transport.frames import (
    FRAME_BYTES_MAX,
    WireValue,
    check_size,
    entry_ends,
    pack,
    read_head,
    unpack,
)

SESSION_BYTES: Final = 16  # as many as a UUID: never drawn twice by chance
# The frames of a joined message together: hundreds of small ones. Larger ones would gain little.
JOINED_BYTES_MAX: Final = 1 << 16
_ENVELOPE_ITEMS: Final = 2  # the entries before the fields: session and kind
# Frames that are known. All parties of a round together have some different ones in flight.
_KNOWN_MAX: Final = 128
# Large ones are fewer: each is kept with what was read from it.
_KNOWN_BYTES_MAX: Final = 32 * FRAME_BYTES_MAX

# Types of values that nobody can change, and that a frame carries as they are.
_CONSTANTS: Final = frozenset({bool, int, float, str, bytes})
# Types of constraints that refuse a value or leave it as it is.
_BOUNDS: Final = frozenset(
    map(type, Field(ge=0, gt=0, le=0, lt=0, min_length=0, max_length=0).metadata)
)

_TEXTS: Final = (str, bytes)  # each evaluation of `str | bytes` creates a union

_KINDS: dict[str, type["Message"]] = {}


class Message(BaseModel):
    """The base class of all messages between parties.

    Subclass it with a unique kind: ``class Vote(Message, kind="ring.vote")``. A value that does not
    fit its field is refused with `InputError` at construction, and with `FrameError` when decoded;
    the error has the type of the value only, since the value may be a secret. Two messages are
    equal if their bytes are.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
    )
    __slots__ = ("_constants",)
    kind: ClassVar[str]
    names: ClassVar[tuple[str, ...]]
    """The names of the fields in the order of their declaration."""
    joins: ClassVar[tuple[str, ...]] = ()
    """The fields of bytes that `join_messages` concatenates.

    A validator may refuse such a field for its length only: the bytes of the others are not read.
    """
    _has_constants: ClassVar[bool] = False
    """Whether no value of a valid message can change, and its frame is read as an equal one."""

    def __init__(self, **fields: Any) -> None:
        """Refuse values that do not fit their fields."""
        try:
            self.__pydantic_validator__.validate_python(fields, self_instance=self)
        except ValidationError as error:
            raise _mistake(self.kind, error) from None
        values = tuple(self.__dict__.values()) if self._has_constants else None
        is_fixed = values is not None and _CONSTANTS.issuperset(map(type, values))
        _keep(self, values if is_fixed else None)

    def __init_subclass__(cls, *, kind: str, **config: Unpack[ConfigDict]) -> None:
        super().__init_subclass__(**config)
        other = _KINDS.get(kind, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InputError("kind", kind, "a kind that no other message has")
        cls.kind = kind
        _KINDS[kind] = cls

    @classmethod
    @override
    def __pydantic_init_subclass__(cls, **_config: object) -> None:
        cls.names = tuple(cls.model_fields)
        validators = cls.__pydantic_decorators__  # of its own may accept a value once, not twice
        cls._has_constants = all(map(_is_constant, cls.model_fields.values())) and not (
            validators.field_validators
            or validators.model_validators
            or cls.__private_attributes__  # which no frame carries, nor what `extra` allows
            or cls.model_config != Message.model_config
            or any(getattr(cls, name) is not getattr(Message, name) for name in _MAKERS)
        )

    def fields(self) -> tuple[WireValue, ...]:
        """Return the values of all fields in the order of their declaration."""
        return tuple(self.__dict__.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return pack(self.fields()) == pack(other.fields())

    def __hash__(self) -> int:
        return hash((self.kind, pack(self.fields())))


# A class that has its own of these may make another message of the same values.
_MAKERS: Final = ("__init__", "__new__", "model_post_init", "fields")
_Values = tuple[Any, ...] | None
_keep: Final[Callable[[Message, _Values], None]] = vars(Message)["_constants"].__set__


def is_constant(message: Message) -> bool:
    """Return whether a reader of its frame may have the message itself instead.

    Its values are those that were validated, which values of copies and set attributes are not, and
    none of them can change: a subclass of `bytes`, which pydantic accepts, may have attributes.
    """
    validated, values = getattr(message, "_constants", None), message.__dict__.values()
    if validated is None or len(validated) != len(values):
        return False
    return all(map(is_, validated, values))


def _is_constant(field: FieldInfo) -> bool:
    """Return whether any value that a field accepts is constant, and is accepted again as it is."""
    is_only_bounded = _BOUNDS.issuperset(map(type, field.metadata))
    return field.annotation in _CONSTANTS and field.is_required() and is_only_bounded


def _mistake(kind: str, error: ValidationError) -> InputError:
    """Return the first mistake in the fields of a message as a sentence without any value."""
    first = error.errors(include_url=False)[0]
    field = ".".join((kind, *map(str, first["loc"])))
    given = f", not {_described(first['input'])}" if first["type"].endswith("_type") else ""
    return InputError.because(f"{field}: {first['msg']}{given}", field=field)


class Array:
    """The annotation of an array field: its dtypes and its number of axes.

    Args:
        dtypes: A NumPy dtype from `frames.DTYPES`, or several separated by spaces.
    """

    def __init__(self, dtypes: str, axes: int) -> None:
        self._dtypes, self._axes = [np.dtype(name) for name in dtypes.split()], axes

    @override
    def __repr__(self) -> str:
        dtypes = " ".join(dtype.name for dtype in self._dtypes)
        return f"Array({dtypes!r}, {self._axes})"

    def __get_pydantic_core_schema__(
        self, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def _validate(self, value: object) -> NDArray[np.generic]:
        if (
            isinstance(value, np.ndarray)
            and value.dtype in self._dtypes
            and value.ndim == self._axes
        ):
            return value
        raise PydanticCustomError(
            "array",
            "an array of {dtype} with {axes} axes, not {given}",
            {
                "dtype": " or ".join(map(str, self._dtypes)),
                "axes": self._axes,
                "given": _described(value),
            },
        )


def _described(value: object) -> str:
    """Return the type of a value that is no such array, without its content."""
    if isinstance(value, np.ndarray):
        return f"one of {value.dtype} with {value.ndim}"
    return f"a value of the type {type(value).__name__}"


Matrix = Annotated[Floats, Array("<f8", 2)]
"""Real numbers of shape (runs, entries)."""
WordMatrix = Annotated[NDArray[np.uint64], Array("<u8", 2)]
"""Elements of Z_{2^64} of shape (runs, entries)."""


def encode(session: bytes, message: Message) -> bytes:
    """Return the body of the frame that carries a message of a session.

    Raises:
        FrameError: If a field has no encoding, or texts, bytes and arrays do not fit a frame.
    """
    kind, fields = message.kind, message.fields()  # pydantic finds a kind slowly
    # before a frame of any size is built
    size = SESSION_BYTES
    for field in fields:  # at least
        if isinstance(field, np.ndarray):
            size += field.nbytes
        elif isinstance(field, _TEXTS):
            size += len(field)
    if size > FRAME_BYTES_MAX:
        check_size(size, kind)
    return pack((session, kind, *fields))


class Envelope:
    """A frame whose session and kind of message were read.

    A frame may arrive before the module that defines its kind was imported, and from an unrelated
    peer: its fields are decoded and validated only when the message is requested.
    """

    __slots__ = ("_body", "_message", "kind", "session")

    def __init__(
        self, session: bytes, kind: str, body: bytes, message: Message | None = None
    ) -> None:
        self.session, self.kind, self._body, self._message = session, kind, body, message

    @property
    def body(self) -> bytes:
        """The frame."""
        return self._body

    def fields(self) -> tuple[WireValue, ...]:
        """Return the values of the fields, which may fit no kind of message."""
        said = unpack(self._body)
        return said[_ENVELOPE_ITEMS:] if isinstance(said, tuple) else ()

    def message(self) -> Message:
        """Return the message, always the same one."""
        if self._message is None:
            self._message = self._read()
        return self._message

    def _read(self) -> Message:
        fields = self.fields()
        message_type = _KINDS.get(self.kind)
        if message_type is None:
            raise FrameError(f"unknown kind of message: {self.kind[:64]!a}")
        names = message_type.names
        if len(fields) != len(names):
            raise FrameError(f"{self.kind} has {len(names)} fields, not {len(fields)}")
        try:
            return message_type(**dict(zip(names, fields)))  # noqa: B905  (as long, and twice as fast)
        except InputError as error:
            raise FrameError(str(error)) from None


def join_messages(envelopes: Sequence[Envelope]) -> list[Message]:
    """Read the messages of one session, and those in a row that are alike as one.

    Two are alike if their frames differ only within the bytes of the fields `Message.joins`. They
    then have the same encoding around these bytes, so that decoding the first is enough, and the
    others cost a comparison. These fields of the one message are those of all, concatenated.

    Raises:
        FrameError: If a frame is no message.
    """
    messages, start = list[Message](), 0
    while start < len(envelopes):
        message, count = envelopes[start].message(), 1
        if message.joins:
            size = len(envelopes[start].body)
            near = islice(envelopes, start, start + max(1, JOINED_BYTES_MAX // size))
            bodies = [each.body for each in takewhile(lambda each: len(each.body) == size, near)]  # noqa: B023  (used at once)
            if len(bodies) > 1:
                message, count = _join_first(message, bodies)
        messages.append(message)
        start += count
    return messages


def _join_first(message: Message, bodies: list[bytes]) -> tuple[Message, int]:
    """Join a message with the following ones that are alike; return the number of all of them.

    Args:
        bodies: The frames of the message and of those after it, all of one size.
    """
    table = np.frombuffer(b"".join(bodies), np.uint8).reshape(len(bodies), -1)
    ends = dict(zip(message.names, entry_ends(bodies[0])[_ENVELOPE_ITEMS:], strict=True))
    sizes = {name: len(getattr(message, name)) for name in message.joins}
    spans = {name: slice(ends[name] - size, ends[name]) for name, size in sizes.items()}
    fixed = np.ones(table.shape[1], dtype=np.bool_)
    for span in spans.values():
        fixed[span] = False
    differs = ((table != table[0]) & fixed).any(axis=1)
    count = int(differs.argmax()) or len(bodies)  # the first does not differ from itself
    joined = {name: table[:count, span].tobytes() for name, span in spans.items()}
    return message.model_copy(update=joined), count


def open_frame(body: bytes) -> Envelope:
    """Read a frame's body up to its session and kind."""
    try:
        session, kind = read_head(body)
    except FrameError as error:
        raise _no_message() from error
    if isinstance(session, bytes) and len(session) == SESSION_BYTES and isinstance(kind, str):
        return Envelope(session, kind, body)
    raise _no_message()


class KnownFrames:
    """Frames that were made or read in this process: nobody reads one again.

    A message that is constant need not be read at all: its receivers have the sender's.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, Envelope] = {}
        self._bytes = 0

    def encode(self, session: bytes, message: Message) -> bytes:
        """Return the frame of a message, and remember it."""
        frame = encode(session, message)
        if is_constant(message):
            self._keep(Envelope(session, message.kind, frame, message), frame)
        return frame

    def open(self, frame: bytes) -> Envelope:
        """Return the envelope of a frame, the same one for equal frames."""
        return self._known.get(frame) or self._keep(open_frame(frame), frame)

    def _keep(self, envelope: Envelope, frame: bytes) -> Envelope:
        if len(self._known) == _KNOWN_MAX or self._bytes > _KNOWN_BYTES_MAX:
            self._known.clear()
            self._bytes = 0
        self._known[frame] = envelope
        self._bytes += len(frame)
        return envelope


def _no_message() -> FrameError:
    return FrameError("not a message: a session, a kind and fields were expected")


def decode(body: bytes) -> tuple[bytes, Message]:
    """Return the session and the message that a frame's body carries."""
    envelope = open_frame(body)
    return envelope.session, envelope.message()
