"""Lays out a random street: its ground, buildings, trees, parked and driving vehicles, and pedestrians."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from turnout.simulate.rays import Blob, Floats, Post, Rays, Solid

CLASSES = ("car", "van", "pedestrian")
SENSOR_HEIGHT = 1.73
LENGTH = 85.0  # of a road, on either side of its middle
LANE = 3.4

# Normal and offset, relative to the middle of the solid on the ground.
Plane = tuple[float, float, float, float]


def block(length: float, width: float, low: float, high: float) -> list[Plane]:
    return [
        (1, 0, 0, length / 2),
        (-1, 0, 0, length / 2),
        (0, 1, 0, width / 2),
        (0, -1, 0, width / 2),
        (0, 0, 1, high),
        (0, 0, -1, -low),
    ]


def car(length: float, width: float, height: float) -> list[list[Plane]]:
    """A body with a sloping bonnet, and a cabin with slanted windows."""
    belt, side = 0.6 * height, width / 2 - 0.04
    body = [*block(length, width, 0.2, belt), (0.25, 0, 1, belt + 0.25 * 0.22 * length)]
    cabin: list[Plane] = [
        (0.75, 0, 1, belt + 0.75 * 0.24 * length),
        (-1, 0, 0.5, 0.46 * length + 0.5 * belt),
        (0, 1, 0.35, side + 0.35 * belt),
        (0, -1, 0.35, side + 0.35 * belt),
        (0, 0, 1, height),
        (0, 0, -1, -0.95 * belt),
    ]
    return [body, cabin]


def van(length: float, width: float, height: float) -> list[list[Plane]]:
    return [[*block(length, width, 0.25, height), (1, 0, 0.6, length / 2 + 0.6 * 0.45 * height)]]


class Road:
    """A straight road with its own coordinates: metres along it and across it, to the left."""

    def __init__(self, x: float, y: float, yaw: float, right: float, left: float) -> None:
        self.x, self.y, self.yaw = x, y, yaw
        self.edges = {-1: right, 1: left}  # distances of the kerbs from the middle

    def at(self, along: float, across: float) -> tuple[float, float]:
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        return self.x + cos * along - sin * across, self.y + sin * along + cos * across

    def coordinates(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        x, y = x - self.x, y - self.y
        return cos * x + sin * y, cos * y - sin * x

    def is_road(self, across: Floats) -> NDArray[np.bool_]:
        return (across > -self.edges[-1]) & (across < self.edges[1])


class Street:
    """A street along x, with a crossing if there is one within reach, as seen from the right lane."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.solids: list[Solid] = []
        self.posts: list[Post] = []
        self.blobs: list[Blob] = []
        self.boxes: list[tuple[float, ...]] = []
        self.labels: list[int] = []

        self.bays = {side: str(random.choice(["parallel", "parallel", "square", "none"])) for side in (-1, 1)}
        right, left = (LANE + {"parallel": 2.3, "square": 5.4, "none": 0.5}[self.bays[s]] for s in (-1, 1))
        yaw, place = random.normal(0, 0.04), LANE / 2 + random.normal(0, 0.2)
        self.main = Road(-place * math.sin(yaw), place * math.cos(yaw), yaw, right, left)
        middle = random.uniform(12, 45) * float(random.choice([-1, 1]))
        if random.random() < 0.3:
            middle = 500.0  # out of sight
        half = LANE + random.uniform(0.5, 2.5)
        self.cross = Road(*self.main.at(middle, 0), yaw + math.pi / 2, half, half)
        self.gap = middle, half + random.uniform(2.5, 4.5)  # no buildings and parked vehicles here
        self.walk = {side: random.uniform(2.5, 4.5) for side in (-1, 1)}  # widths of the sidewalks
        self.slope: tuple[float, float] = random.normal(0, 0.008), random.normal(0, 0.008)
        self.waves = [(*random.normal(0, 2 * math.pi / 60, 2), random.uniform(0, 6)) for _ in range(4)]
        self.worn = random.uniform(0.1, 0.2)  # reflectance of the asphalt

        self.add_buildings(self.main)
        self.add_buildings(self.cross)
        for side in (-1, 1):
            self.add_sidewalk(side)
            self.add_parked(side)
        self.add_traffic()

    def height(self, x: Floats, y: Floats) -> Floats:
        """The height of the ground: a slope, gentle waves, a crown, kerbs, and uneven soil off the road."""
        ground: Floats = self.slope[0] * x + self.slope[1] * y - SENSOR_HEIGHT
        for along_x, along_y, phase in self.waves:
            ground += 0.05 * (np.sin(along_x * x + along_y * y + phase) - math.sin(phase))
        along, across = self.main.coordinates(x, y)
        road = self.main.is_road(across)
        if abs(self.gap[0]) < LENGTH:
            road |= self.cross.is_road(self.cross.coordinates(x, y)[1])
        paved = np.minimum(
            across + self.main.edges[-1] + self.walk[-1], self.main.edges[1] + self.walk[1] - across
        )
        soil = 0.03 * np.sin(2.1 * along + 1.3 * across) * np.sin(1.7 * across) * (paved < 0)
        return ground - 0.015 * np.minimum(np.abs(across), 6) + np.where(road, 0, 0.14 + soil)

    def reflectance(self, x: Floats, y: Floats) -> Floats:
        """Asphalt with markings, paved sidewalks, grass."""
        along, across = self.main.coordinates(x, y)
        middle = (np.abs(across) < 0.1) & (along % 9 < 4)
        border = np.abs(np.abs(across) - LANE) < 0.08
        near_crossing = np.abs(along - self.gap[0]) < self.gap[1]
        asphalt = np.where((middle | border) & ~near_crossing, 0.75, self.worn)
        paved = (across > -self.main.edges[-1] - self.walk[-1]) & (across < self.main.edges[1] + self.walk[1])
        return np.where(self.main.is_road(across), asphalt, np.where(paved | near_crossing, 0.3, 0.45))

    def ground(self, x: float, y: float) -> float:
        return float(self.height(np.array([x]), np.array([y]))[0])

    def add_solid(
        self,
        place: tuple[float, float],
        yaw: float,
        size: Sequence[float],
        planes: list[Plane],
        reflectance: float,
        instance: int = -1,
    ) -> None:
        """Adds a solid on the ground at `place`, turned by `yaw`."""
        x, y = place
        local = np.array(planes, dtype=np.float64)
        length = np.linalg.norm(local[:, :3], axis=1)
        cos, sin = math.cos(yaw), math.sin(yaw)
        normals = local[:, :3] @ np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]]) / length[:, None]
        offsets = local[:, 3] / length + normals @ (x, y, self.ground(x, y))
        radius = math.hypot(size[0], size[1]) / 2
        self.solids.append(Solid(x, y, radius, normals, offsets, reflectance, instance))

    def add_vehicle(self, place: tuple[float, float], yaw: float, vans: float = 0.2) -> None:
        """Adds a car, or with the probability `vans` a van, unless it would touch the sensor's vehicle."""
        random = self.random
        is_van = random.random() < vans
        if is_van:
            size = random.uniform((4.8, 1.85, 1.9), (6.2, 2.1, 2.6)).tolist()
        else:
            size = random.uniform((3.7, 1.65, 1.4), (4.9, 1.95, 1.7)).tolist()
        x, y = place
        if math.hypot(x, y) < 2 + math.hypot(size[0], size[1]) / 2:
            return
        paint = random.uniform(0.08, 0.75)
        for number, planes in enumerate((van if is_van else car)(*size)):
            # The cabin of a car is mostly glass.
            self.add_solid(place, yaw, size, planes, 0.06 if number else paint, len(self.boxes))
        self.add_box(place, size, yaw, CLASSES.index("van" if is_van else "car"))

    def add_box(self, place: tuple[float, float], size: Sequence[float], yaw: float, label: int) -> None:
        yaw = (yaw + math.pi) % (2 * math.pi) - math.pi
        self.boxes.append((*place, self.ground(*place) + size[2] / 2, *size, yaw))
        self.labels.append(label)

    def steps(self, low: float, high: float, shortest: float, longest: float) -> Iterator[float]:
        """Yields places between two limits, at random distances from each other."""
        place = low + self.random.uniform(0, longest)
        while place < high:
            yield place
            place += self.random.uniform(shortest, longest)

    def near_gap(self, along: float, margin: float = 0.0) -> bool:
        return abs(along - self.gap[0]) < self.gap[1] + margin

    def add_buildings(self, road: Road) -> None:
        """Facades on both sides, with steps and gaps; walls close some of the gaps."""
        random, is_main = self.random, road is self.main
        if not is_main and abs(self.gap[0]) > LENGTH:
            return
        for side in (-1, 1):
            edge = road.edges[side] + (self.walk[side] if is_main else 3.0)
            along = -LENGTH
            while along < LENGTH:
                length, gap = random.uniform(7, 22), float(random.choice([0.0, 0.0, 1.5, 9.0]))
                middle, depth = along + length / 2, random.uniform(8, 13)
                setback = random.choice([0.0, 0.5, 1.5, 4.0])
                along += length + gap
                if is_main and abs(middle - self.gap[0]) < self.gap[1] + length / 2:
                    along = self.gap[0] + self.gap[1] if middle < self.gap[0] else along
                    continue
                if not is_main and abs(middle) < length / 2 + 24:  # the corner belongs to the main road
                    continue
                size = (length, depth, random.uniform(5, 16))
                place = road.at(middle, side * (edge + setback + depth / 2))
                colour = random.uniform(0.2, 0.6)
                self.add_solid(place, road.yaw, size, block(size[0], size[1], 0, size[2]), colour)
                for step in self.steps(middle - length / 2 + 1, middle + length / 2 - 1, 3, 8):
                    bay = (random.uniform(0.8, 1.8), 0.5, random.uniform(0.5, 3.2))
                    place = road.at(step, side * (edge + setback - 0.1))
                    self.add_solid(place, road.yaw, bay, block(*bay[:2], 0, bay[2]), colour)
                if gap > 5:
                    wall = (gap, 0.3, random.uniform(0.9, 2.0))
                    place = road.at(along - gap / 2, side * (edge + 1))
                    if not (is_main and self.near_gap(along - gap / 2, gap / 2)):
                        self.add_solid(place, road.yaw, wall, block(*wall[:2], 0, wall[2]), 0.3)

    def add_sidewalk(self, side: int) -> None:
        """Lamps, signs, trees, hedges and people between the kerb and the facades."""
        random, road = self.random, self.main
        kerb, walk = road.edges[side], self.walk[side]
        for along in self.steps(-LENGTH, LENGTH, 18, 30):
            x, y = road.at(along, side * (kerb + 0.4))
            if not self.near_gap(along, -2):
                self.posts.append(Post(x, y, random.uniform(0.06, 0.12), -4, 7, 0.35))
        for along in self.steps(-LENGTH, LENGTH, 20, 50):
            x, y = road.at(along, side * (kerb + 0.5))
            self.posts.append(Post(x, y, 0.04, -4, 0.9, 0.4))
            self.add_solid((x, y), road.yaw, (0.1, 0.7), block(0.06, 0.7, 2.0, 2.7), 1.0)
        trees = random.random() < 0.75
        for along in self.steps(-LENGTH, LENGTH, 7, 14) if trees else ():
            x, y = road.at(along, side * (kerb + 1.0))
            if self.near_gap(along, 1):
                continue
            ground, trunk = self.ground(x, y), random.uniform(1.9, 2.8)
            crown, half = random.uniform(1.2, 2.1), random.uniform(1.2, 1.8)
            self.posts.append(Post(x, y, random.uniform(0.1, 0.22), -4, ground + trunk + half, 0.25))
            self.blobs.append(Blob(x, y, ground + trunk + half * 0.9, crown, half, 1.2, 0.45))
        for along in self.steps(-LENGTH, LENGTH, 1, 12):
            if self.near_gap(along, 1):
                continue
            for _ in range(random.integers(2, 6)):  # the parts of a bush
                x, y = road.at(along + random.normal(0, 0.5), side * (kerb + walk + random.normal(0.5, 0.3)))
                radius, half = random.uniform((0.25, 0.2), (0.7, 0.6))
                self.blobs.append(Blob(x, y, self.ground(x, y) + half, radius, half, 0.2, 0.5))
        for along in self.steps(-50, 50, 5, 35):
            if self.near_gap(along):
                continue
            x, y = road.at(along, side * (kerb + random.uniform(0.8, walk - 0.4)))
            radius, height = random.uniform(0.27, 0.35), random.uniform(1.55, 1.9)
            person = Blob(x, y, self.ground(x, y) + height / 2, radius, height / 2, 0, 0.3, len(self.boxes))
            self.blobs.append(person)
            yaw = road.yaw + float(random.choice([0, math.pi]))
            self.add_box((x, y), (2 * radius, 2 * radius, height), yaw, CLASSES.index("pedestrian"))

    def add_parked(self, side: int) -> None:
        random, road = self.random, self.main
        bay, occupied = self.bays[side], random.uniform(0.35, 0.95)
        if bay == "none":
            return
        inset, spacing, turn = (1.15, 6.6, 0.0) if bay == "parallel" else (2.9, 2.8, math.pi / 2)
        across = road.edges[side] - inset
        for along in np.arange(-LENGTH, LENGTH, spacing):
            along += random.uniform(-0.15, 0.15)
            if random.random() > occupied or self.near_gap(along, 2):
                continue
            yaw = road.yaw + turn + float(random.choice([0, math.pi])) + random.normal(0, 0.03)
            place = road.at(along, side * (across + random.uniform(-0.1, 0.1)))
            self.add_vehicle(place, yaw, 0.2 if bay == "parallel" else 0.0)

    def add_traffic(self) -> None:
        """Vehicles in the lanes of both roads; the sensor is at 0 in the right lane of the main road."""
        random = self.random
        for road in (self.main, self.cross):
            if road is self.cross and abs(self.gap[0]) > LENGTH:
                continue
            for side in (-1, 1):
                for along in self.steps(-LENGTH, LENGTH, 9, 45):
                    here = road.at(along, side * LANE / 2 + random.normal(0, 0.15))
                    if road is self.cross and abs(along) < self.main.edges[1] + self.main.edges[-1]:
                        continue
                    if road is self.main and side == -1 and abs(along) < 8:
                        continue
                    yaw = road.yaw + (0 if side == -1 else math.pi) + random.normal(0, 0.02)
                    self.add_vehicle(here, yaw)

    def cast(self, rays: Rays) -> None:
        rays.meet_ground(self.height, self.reflectance)
        for solid in self.solids:
            rays.meet_solid(solid)
        for post in self.posts:
            rays.meet_post(post)
        for blob in self.blobs:
            rays.meet_blob(blob, self.random)
