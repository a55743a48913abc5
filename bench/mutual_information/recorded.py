"""The published comparisons of mutual_information."""

from __future__ import annotations

from mutual_information import loop_peer, torch_peer, turnout_entries
from mutual_information.scenes import TOLERANCE, expected_of
from mutual_information.shapes import LONG, SEED, SPEECH, Lattices, Scale
from recorded import Case, Programs

LOOP = "C++ loop, `g++ -O3 -march=native`"
DIAGONALS = "PyTorch, one anti-diagonal at a time"
CALLS = {
    "forward": "mutual_information_forward",
    "backward": "mutual_information_backward",
    "both": "mutual_information_forward_backward",
}


def size_of(scale: Scale) -> str:
    return f"batch {scale.batch}, {scale.symbols} symbols, {scale.frames} frames"


def cases() -> list[Case]:
    found = []
    for scale, names in ((SPEECH, CALLS), (LONG, ["both"])):
        for name in names:
            make = lambda scale=scale, name=name: beside_loop(scale, name)  # noqa: E731
            case = f"mutual_information-{name}-{scale.frames}", CALLS[name], size_of(scale), "f32", LOOP
            found.append(Case(*case, "reused", make, threads=1))
    for name in CALLS:
        case = f"mutual_information-{name}-torch", CALLS[name], size_of(SPEECH), "f32", DIAGONALS
        found.append(Case(*case, "reused, new", lambda name=name: beside_torch(name)))
    case = "mutual_information-tiny", "torch.ops.turnout.mutual_information_forward", size_of(SEED), "f32"
    found.append(Case(*case, LOOP, "new, reused", tiny, threads=1))
    return found


def beside_loop(scale: Scale, name: str) -> Programs:
    lattices = Lattices(scale)
    ours, peer = getattr(turnout_entries, name)(lattices), getattr(loop_peer, name)(lattices, 1)
    return Programs(ours, peer, expected_of(name, lattices), TOLERANCE)


def beside_torch(name: str) -> Programs:
    lattices = Lattices(SPEECH)
    ours, peer = getattr(turnout_entries, name)(lattices), getattr(torch_peer, name)(lattices)
    return Programs(ours, peer, expected_of(name, lattices), TOLERANCE)


def tiny() -> Programs:
    lattices = Lattices(SEED)
    programs = turnout_entries.torch_op(lattices), loop_peer.forward(lattices, 1)
    return Programs(*programs, expected_of("forward", lattices), TOLERANCE, {"calls": 20})
