"""Audit of gossip, with claims that hold and claims that do not."""

from collections.abc import Mapping
from typing import Final

from docs.examples.gossip import INPUTS, gossip

from veilring.testing import RoleClaims, audit


def is_rumour(inputs: Mapping[str, str | None], results: Mapping[str, str | None]) -> None:
    """Require the rumour at its source, and nothing else at the other parties."""
    rumours = {own for own in inputs.values() if own is not None}
    for name, heard in results.items():
        assert heard is None or heard in rumours, f"{name} heard {heard}"  # noqa: S101  (how a test speaks)
        assert inputs[name] in {None, heard}, f"{name} has forgotten the rumour"  # noqa: S101  (as above)


def reaches_all(inputs: Mapping[str, str | None], results: Mapping[str, str | None]) -> None:
    """Require the rumour at all parties that are left, if its source is."""
    told = [inputs[name] for name in results if inputs[name] is not None]
    for name, heard in results.items():
        assert not told or heard in told, f"{name} has not heard it"  # noqa: S101  (how a test speaks)


TRUE: Final = RoleClaims(
    gossip,
    INPUTS,
    is_rumour,
    fanout=2,
    patience=2.0,
    least=3,
    title="gossip, which claims that no rumour is changed",
)
EVERYBODY: Final = TRUE.replaced(
    invariant=reaches_all, title="gossip, which claims to reach everybody"
)
ANONYMOUS: Final = TRUE.replaced(
    other_inputs={**INPUTS, "ben": None, "cy": "it rains"},
    coalition=("ada",),
    permitted=lambda inputs: {own for own in inputs.values() if own is not None},
    title="gossip, which claims to hide the source",
)


def main() -> None:
    """Audit a claim that holds, and one that does not."""
    for claims in (TRUE, ANONYMOUS):
        print(audit(claims, quick=True), end="\n\n")


if __name__ == "__main__":
    main()
