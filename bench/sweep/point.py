"""The points of a sweep: a call, a dtype and sizes. The name of a point is enough to repeat it."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Program = Callable[[], object]  # returns its results, which are verified

ROWS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
COLUMNS = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
CHOICES = (1, 2, 4, 8)
MOST = 1 << 23  # elements of a point, unless the case says otherwise


@dataclass(frozen=True)
class Case:
    """One call of the table. `make` returns Turnout's program and those of its peers by name."""

    name: str
    make: Callable[..., tuple[Program, dict[str, Program]]]
    dtypes: tuple[str, ...]
    sizes: dict[str, tuple[int, ...]]
    most: int  # elements of a point
    share: float  # of points, relative to other cases
    tolerance: float


CASES: dict[str, Case] = {}


def case(
    dtypes: str = "f32",
    *,
    most: int = MOST,
    share: float = 1,
    tolerance: float = 1e-4,
    **sizes: Sequence[int],
) -> Callable[[Callable], Callable]:
    """Adds a function make(data, **sizes) to the table. The sizes are those of the fixed list."""

    def add(make: Callable) -> Callable:
        fixed = {name: tuple(values) for name, values in sizes.items()}
        name = make.__name__
        CASES[name] = Case(name, make, tuple(dtypes.split()), fixed, most, share, tolerance)
        return make

    return add


@dataclass(frozen=True)
class Point:
    case: Case
    dtype: str
    sizes: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        return ",".join([self.case.name, self.dtype, *(f"{name}={size}" for name, size in self.sizes)])

    @property
    def elements(self) -> int:
        """The product of the sizes, without per_group and the like, which only distribute the elements."""
        return math.prod(size for name, size in self.sizes if not name.startswith("per_"))

    def programs(self) -> tuple[Program, dict[str, Program]]:
        return self.case.make(Data(self.dtype, zlib.crc32(self.name.encode())), **dict(self.sizes))


def named(name: str) -> Point:
    """Returns the point with this name. Sizes need not be in the fixed list."""
    try:
        which, dtype, *texts = name.split(",")
        case = CASES[which]
        given = {key: int(value) for key, value in (text.split("=") for text in texts)}
    except (KeyError, ValueError):
        raise SystemExit(f"point is {name!r}, expected CALL,DTYPE,SIZE=NUMBER,..") from None
    if dtype not in case.dtypes or set(given) != set(case.sizes) or min(given.values()) < 1:
        wanted = ",".join([which, "|".join(case.dtypes), *(f"{key}=.." for key in case.sizes)])
        raise SystemExit(f"point is {name!r}, expected {wanted} with sizes of at least 1")
    return Point(case, dtype, tuple((key, given[key]) for key in case.sizes))


def drawn(count: int, seed: int, cases: Sequence[Case]) -> list[Point]:
    """Draws `count` different points, half with sizes of the fixed lists and half with random ones."""
    chosen: dict[str, Point] = {}
    total = sum(case.share for case in cases)
    for case in cases:
        draw = random.Random(f"{seed} {case.name}")  # the points of a case do not depend on other cases
        wanted, of_case, attempts = math.ceil(count * case.share / total), 0, 0
        while of_case < wanted and attempts < 100 * wanted:
            attempts += 1
            fixed = of_case % 2 == 0
            sizes = {name: _size(draw, values, fixed) for name, values in case.sizes.items()}
            point = Point(case, draw.choice(case.dtypes), tuple(sizes.items()))
            if point.elements <= case.most and point.name not in chosen:
                chosen[point.name] = point
                of_case += 1
    points = list(chosen.values())
    random.Random(seed).shuffle(points)  # a sweep that is out of time has points of all cases
    return points


def _size(draw: random.Random, values: Sequence[int], fixed: bool) -> int:
    if fixed or len(values) == 1:
        return draw.choice(values)
    return round(math.exp(draw.uniform(math.log(min(values)), math.log(max(values)))))


class Data:
    """Random tensors of a point, always the same for the same name."""

    def __init__(self, dtype: str, seed: int) -> None:
        import torch

        names = {"f32": torch.float32, "bf16": torch.bfloat16, "i8": torch.int8}
        self.dtype = names[dtype]
        self.random = torch.Generator().manual_seed(seed)

    def values(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        import torch

        dtype = dtype or self.dtype
        if not dtype.is_floating_point:
            return torch.randint(-100, 100, shape, generator=self.random, dtype=dtype)
        return torch.randn(shape, generator=self.random).to(dtype)

    def below(self, limit: int, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        import torch

        return torch.randint(limit, shape, generator=self.random, dtype=dtype or torch.int64)

    def shuffled(self, count: int) -> torch.Tensor:
        import torch

        return torch.randperm(count, generator=self.random)
