"""Pictures of the threat models: who holds data, who deviates, and what they send each other."""

from html import escape
from pathlib import Path
from typing import Final, Literal, NamedTuple

Trust = Literal["trusted", "semi-honest", "malicious"]

_WIDTH: Final = 640
_BOX: Final = (176, 48)  # of a participant
_MARGIN: Final = 10  # of a coalition around its participants
_STYLE: Final = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
       fill: #1b1f24; text-anchor: middle; }
.small { font-size: 11px; fill: #57606a; }
rect { fill: #ffffff; stroke-width: 1.5; }
.page { stroke: none; }
.trusted { stroke: #0072b2; fill: #eaf4fb; }
.semi-honest { stroke: #57606a; }
.malicious { stroke: #b3261e; stroke-dasharray: 5 3; fill: #fdf0ef; }
.coalition { fill: none; stroke: #57606a; stroke-dasharray: 2 3; }
path { stroke: #57606a; stroke-width: 1.3; fill: none; marker-end: url(#head); }
marker path { fill: #57606a; stroke: none; marker-end: none; }
""".strip()
_HEAD: Final = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z"/></marker>'
)


class Participant(NamedTuple):
    """A box: its place, its role and how far it is trusted."""

    x: int
    y: int
    name: str
    trust: Trust
    note: str = ""


class Arrow(NamedTuple):
    """A message from one participant to another, by their positions in the list."""

    sender: int
    receiver: int
    label: str = ""


class Picture(NamedTuple):
    """One threat model."""

    title: str
    participants: tuple[Participant, ...]
    arrows: tuple[Arrow, ...]
    coalition: tuple[int, ...] = ()
    height: int = 190


def _parties(third: Participant) -> tuple[Participant, ...]:
    return (
        Participant(115, 50, "party A", "semi-honest", "holds rows"),
        Participant(115, 140, "party B", "semi-honest", "holds rows"),
        third,
        Participant(525, 140, "party D", "semi-honest", "holds rows"),
    )


PICTURES: Final[dict[str, Picture]] = {
    "semi-honest": Picture(
        "Semi-honest parties: C and D collude",
        _parties(Participant(525, 50, "party C", "semi-honest", "holds rows")),
        (Arrow(0, 2, "masked values"), Arrow(1, 3, "masked values"), Arrow(0, 1), Arrow(1, 0)),
        coalition=(2, 3),
    ),
    "data-owner": Picture(
        "A trusted data owner, and analysts that collude",
        (
            Participant(115, 95, "data owner", "trusted", "rows, noise, budget"),
            Participant(525, 50, "analyst", "malicious", "any queries"),
            Participant(525, 140, "analyst", "malicious", "any queries"),
        ),
        (Arrow(0, 1, "noisy labels"), Arrow(0, 2, "noisy labels")),
        coalition=(1, 2),
    ),
    "prediction-server": Picture(
        "A trusted prediction server, and clients that collude",
        (
            Participant(100, 95, "administrator", "trusted", "adds records"),
            Participant(320, 95, "prediction server", "trusted", "records, budgets"),
            Participant(536, 50, "client", "malicious", "any stream"),
            Participant(536, 140, "client", "malicious", "any stream"),
        ),
        (Arrow(0, 1), Arrow(1, 2), Arrow(1, 3)),
        coalition=(2, 3),
    ),
    "local": Picture(
        "Clients that trust nobody",
        (
            Participant(115, 50, "client", "trusted", "adds its own noise"),
            Participant(115, 140, "client", "trusted", "adds its own noise"),
            Participant(525, 95, "aggregator", "malicious", "estimates"),
        ),
        (Arrow(0, 2, "noisy report"), Arrow(1, 2, "noisy report")),
    ),
    "aggregators": Picture(
        "Clients that trust one of two aggregators",
        (
            Participant(115, 50, "client", "trusted", "splits its report"),
            Participant(115, 140, "client", "malicious", "a valid report"),
            Participant(525, 50, "leader", "trusted", "adds its noise"),
            Participant(525, 140, "helper", "malicious", "any messages"),
        ),
        (
            Arrow(0, 2, "share, proof"),
            Arrow(0, 3),
            Arrow(1, 2),
            Arrow(1, 3, "share, proof"),
            Arrow(2, 3, "noisy sum"),
        ),
    ),
    "places": Picture(
        "A client with a secret query, and an untrusted server of public places",
        (
            Participant(115, 60, "places client", "trusted", "query, noise"),
            Participant(525, 60, "server of places", "malicious", "public points"),
        ),
        (Arrow(0, 1, "noisy bucket"),),
        height=120,
    ),
    "malicious": Picture(
        "A malicious party among semi-honest ones",
        _parties(Participant(525, 50, "party C", "malicious", "any messages")),
        (Arrow(2, 0, "anything"), Arrow(2, 3), Arrow(1, 3, "masked values"), Arrow(0, 1)),
    ),
}


def draw_threats(folder: Path) -> None:
    """Draw each threat model as `threat-NAME.svg` in a folder."""
    for name, picture in PICTURES.items():
        (folder / f"threat-{name}.svg").write_text(_drawn(picture), encoding="utf-8")


def _drawn(picture: Picture) -> str:
    arrows = "\n".join(_arrow(picture.participants, arrow) for arrow in picture.arrows)
    boxes = "\n".join(map(_box, picture.participants))
    return (
        f'<svg role="img" aria-labelledby="title" width="{_WIDTH}" height="{picture.height}" '
        f'viewBox="0 0 {_WIDTH} {picture.height}" xmlns="http://www.w3.org/2000/svg">\n'
        f'<title id="title">{escape(picture.title)}</title>\n<style>{_STYLE}</style>\n{_HEAD}\n'
        f'<rect class="page" width="{_WIDTH}" height="{picture.height}"/>\n'
        f"{_coalition(picture)}{arrows}\n{boxes}\n</svg>\n"
    )


def _box(each: Participant) -> str:
    width, height = _BOX
    note = f"{each.trust}: {each.note}" if each.note else each.trust
    return (
        f'<rect class="{each.trust}" x="{each.x - width // 2}" y="{each.y - height // 2}" '
        f'width="{width}" height="{height}" rx="6"/>'
        f'<text x="{each.x}" y="{each.y - 3}">{escape(each.name)}</text>'
        f'<text class="small" x="{each.x}" y="{each.y + 14}">{escape(note)}</text>'
    )


def _arrow(participants: tuple[Participant, ...], arrow: Arrow) -> str:
    start, end = participants[arrow.sender], participants[arrow.receiver]
    width, height = _BOX
    across = start.x != end.x
    side = 1 if (end.x > start.x if across else end.y > start.y) else -1
    if across:
        x1, y1, x2, y2 = start.x + side * width // 2, start.y, end.x - side * width // 2, end.y
    else:  # two arrows between the same boxes do not cover each other
        x1 = x2 = start.x + side * 12
        y1, y2 = start.y + side * height // 2, end.y - side * height // 2
    label = (
        f'<text class="small" x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 7}">'
        f"{escape(arrow.label)}</text>"
        if arrow.label
        else ""
    )
    return f'<path d="M{x1},{y1} L{x2},{y2}"/>{label}'


def _coalition(picture: Picture) -> str:
    if not picture.coalition:
        return ""
    inside = [picture.participants[number] for number in picture.coalition]
    across, down = _BOX[0] // 2 + _MARGIN, _BOX[1] // 2 + _MARGIN
    left, right = min(each.x for each in inside) - across, max(each.x for each in inside) + across
    top, bottom = min(each.y for each in inside) - down, max(each.y for each in inside) + down
    return (
        f'<rect class="coalition" x="{left}" y="{top}" width="{right - left}" '
        f'height="{bottom - top}" rx="10"/>'
        f'<text class="small" x="{(left + right) // 2}" y="{(top + bottom) // 2 + 4}">'
        "coalition: combines its views</text>\n"
    )
