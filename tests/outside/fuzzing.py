"""Coverage-guided fuzzing of everything that reads bytes of a peer, or a file of another person.

A parser may raise only the errors that its documentation names; anything else ends the run, with
the input in the current folder. To fuzz one parser for an hour:

    python -m tests.outside.fuzzing frames -max_total_time=3600

`all` fuzzes one after another. The options are those of libFuzzer, such as `-seed=1 -runs=100000`.
"""

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import atheris
import numpy as np
from typer.testing import CliRunner

with atheris.instrument_imports(include=["veilring"]):
    from veilring.cli.app import app
    from veilring.data.csv import read_cells
    from veilring.data.schema import read_schema
    from veilring.deployment import load_config
    from veilring.deployment.surveys.terms import SurveyTerms, read_published
    from veilring.errors import FrameError, VeilringError
    from veilring.protocols.ldp.saved import load_classifier
    from veilring.protocols.prio import dap
    from veilring.protocols.registry import find_system, system_names
    from veilring.protocols.release.model import load_model
    from veilring.scenarios import scenario_names, scenario_text
    from veilring.scenarios.schema import load_experiment
    from veilring.transport import frames, handshake, messages
    from veilring.transport.roster import Roster, read_identity

SYSTEMS: Final = tuple(map(find_system, system_names()))  # their messages are then known
KINDS: Final = sorted(messages._KINDS)  # noqa: SLF001  (the only list of all kinds)
INPUT_BYTES_MAX: Final = 1 << 14
# A MessagePack array whose length is in its first byte has up to 15, session and kind among them.
FIELDS_MAX: Final = 14
SESSION: Final = bytes(messages.SESSION_BYTES)
Parse = Callable[[bytes], object]


def read_frame(data: bytes) -> None:
    """Read a body, which then has the same value after a round trip."""
    value = frames.unpack(data)
    with suppress(FrameError):  # a value of many small items may be too large when it is packed
        assert repr(frames.unpack(frames.pack(value))) == repr(value)


def read_message(data: bytes) -> None:
    """Read a message of a kind that the first byte chooses, with any number of any fields."""
    kind, count = KINDS[data[0] % len(KINDS)], data[1] % FIELDS_MAX
    head = frames.pack((SESSION, kind))[1:]
    messages.decode(bytes([0x92 + count]) + head + data[2:])


def read_greeting(data: bytes) -> None:
    """Read a greeting, and how its sender describes itself."""
    greeting = handshake.read_greeting(data)
    if isinstance(greeting, handshake.Hello | handshake.Welcome):
        handshake.About.read(greeting.about)


def read_report(data: bytes) -> None:
    """Read a part of an upload that the first byte chooses: it has one encoding."""
    kinds = (dap.Report, dap.PlaintextShare, dap.Ciphertext)
    if number := data[0] % 4:
        assert kinds[number - 1].decode(data[1:]).encode() == data[1:]
    else:
        assert dap.encode_configs(dap.decode_configs(data[1:])) == data[1:]


def from_file(parse: Callable[[Path], object], suffix: str) -> Parse:
    """Return a parser of the bytes of a file."""
    path = Path(tempfile.mkdtemp()) / f"input{suffix}"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        parse(path)

    return read


PARSERS: Final[Mapping[str, Parse]] = {
    "frames": read_frame,
    "messages": read_message,
    "greetings": read_greeting,
    "identities": read_identity,
    "rosters": from_file(Roster.load, ".toml"),
    "configurations": from_file(load_config, ".toml"),
    "scenarios": from_file(lambda path: load_experiment(str(path)), ".toml"),
    "schemas": from_file(read_schema, ".toml"),
    "tables": from_file(read_cells, ".csv"),
    "models": from_file(load_model, ".json"),
    "classifiers": from_file(load_classifier, ".json"),
    "surveys": partial(read_published, collector="ada"),
    "reports": read_report,
}
"""Each parser by the name of what it reads."""


def sent() -> Iterator[messages.Message]:
    """Yield the messages of a short run of each system."""
    # After the parsers, so that nothing else is instrumented, which takes seconds.
    from tests.protocols.test_served import played  # noqa: PLC0415  (see above)

    from veilring.simulation import simulate  # noqa: PLC0415  (see above)
    from veilring.testing.auditing.findings import AuditedSystem  # noqa: PLC0415  (see above)

    for system in (each() for each in SYSTEMS):
        example = system.example(parties=3)
        setup = AuditedSystem(system, example).setup()
        watched = played(setup, example.queries, runtime="simulated", seed=1, watch=setup.parties)
        for view in simulate(watched).views.values():
            yield from (seen.message for seen in view.sent)


def greetings() -> Iterator[messages.Message]:
    """Yield each kind of greeting."""
    about = handshake.About.of_terms({"k": "5"}).at(1.0).text
    version, roster = handshake.PROTOCOL_VERSION, bytes(32)
    yield handshake.Hello(version=version, roster=roster, sender="ann", receiver="bob", about=about)
    yield handshake.Welcome(about=about)
    yield handshake.Refuse(reason="it is late", again=True)


def seeds(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the parser and the content of real inputs, with which fuzzing begins."""
    for name in scenario_names():
        yield "scenarios", scenario_text(name).encode()
    for kind in ("peers", "survey"):
        runner = CliRunner().invoke(app, ["deploy", kind, "iris", "--out", str(folder / kind)])
        assert runner.exit_code == 0, runner.output
    for path in sorted(folder.rglob("*.*")):
        where = {"roster": "rosters", "terms": "schemas"}.get(path.stem, "configurations")
        where = {".csv": "tables", ".key": "identities"}.get(path.suffix, where)
        yield where, path.read_bytes()
    terms = SurveyTerms.load(folder / "survey" / "terms.toml")
    yield "surveys", terms.task.encoded
    share = dap.Ciphertext(1, b"key", b"share")
    metadata = dap.Metadata(bytes(dap.REPORT_ID_BYTES), 1 << 40)
    plaintext = dap.PlaintextShare(b"share", (dap.Extension(1, b"more"),))
    configs = dap.encode_configs([dap.HpkeConfig(number, 32, 1, 1, b"key") for number in (1, 2)])
    report = dap.Report(metadata, b"public", share, share)
    for number, encoded in enumerate((configs, *(e.encode() for e in (report, plaintext, share)))):
        yield "reports", bytes([number]) + encoded
    for message in {each.kind: each for each in sent()}.values():
        head = len(frames.pack((SESSION, message.kind)))
        number, fields = KINDS.index(message.kind), messages.encode(SESSION, message)[head:]
        yield "messages", bytes([number, len(message.fields())]) + fields
    for greeting in greetings():
        yield "greetings", messages.encode(SESSION, greeting)
    yield "frames", frames.pack({"a": [1, 2.5, None, True, b"c"], "d": np.arange(6).reshape(2, 3)})


def guarded(parse: Parse, data: bytes) -> None:
    """Parse an input, and accept the documented errors; a warning is none."""
    if len(data) >= 2:
        with suppress(VeilringError):
            parse(data[:INPUT_BYTES_MAX])


def fuzz(name: str, options: list[str], corpus: Path) -> int:
    """Fuzz a parser in a process of its own, which libFuzzer ends; return the exit code."""
    if (child := os.fork()) == 0:
        warnings.simplefilter("error")
        atheris.Setup([sys.argv[0], *options, str(corpus)], partial(guarded, PARSERS[name]))
        atheris.Fuzz()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(name: str, *options: str) -> None:
    """Fuzz one parser or all of them, up to the first that fails."""
    names = tuple(PARSERS) if name == "all" else (name,)
    with tempfile.TemporaryDirectory() as folder:
        for each in names:
            Path(folder, each).mkdir()
        for number, (parser, content) in enumerate(seeds(Path(folder, "deployed"))):
            if parser in names:
                Path(folder, parser, str(number)).write_bytes(content)
        for each in names:
            if code := fuzz(each, list(options), Path(folder, each)):
                sys.exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
