"""Casts the rays of a turning laser scanner against solids, posts, foliage and the ground."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Solid:
    """A convex solid: the points p with normals @ p <= offsets, within `radius` of the axis at x, y."""

    x: float
    y: float
    radius: float
    normals: Floats  # [planes, 3], unit length
    offsets: Floats  # [planes]
    reflectance: float
    instance: int = -1


@dataclass(frozen=True)
class Post:
    """An upright cylinder from the height `low` to the height `high`."""

    x: float
    y: float
    radius: float
    low: float
    high: float
    reflectance: float


@dataclass(frozen=True)
class Blob:
    """An ellipsoid; a ray travels `depth` metres in it on average until it hits a leaf (0: a solid)."""

    x: float
    y: float
    z: float
    radius: float
    half_height: float
    depth: float
    reflectance: float
    instance: int = -1


class Rays:
    """The nearest surface on each ray from the origin; azimuths are the rows, beams the columns."""

    def __init__(self, azimuth: Floats, elevation: Floats) -> None:
        self.azimuth, self.elevation = azimuth, elevation
        flat = np.cos(elevation)
        parts = (np.outer(np.cos(azimuth), flat), np.outer(np.sin(azimuth), flat))
        self.directions = np.stack((*parts, np.broadcast_to(np.sin(elevation), parts[0].shape)), axis=-1)
        shape = self.directions.shape[:2]
        self.distance = np.full(shape, np.inf)
        self.cosine = np.ones(shape)  # of the angle of incidence
        self.reflectance = np.zeros(shape)
        self.instance = np.full(shape, -1, dtype=np.int32)

    def _rows(self, x: float, y: float, radius: float) -> NDArray[np.intp]:
        """Returns the azimuths whose rays can hit something within `radius` of the axis at x, y."""
        away = np.hypot(x, y)
        if away <= radius:
            return np.arange(len(self.azimuth))
        turn = (self.azimuth - np.arctan2(y, x) + np.pi) % (2 * np.pi) - np.pi
        return np.flatnonzero(np.abs(turn) <= np.arcsin(radius / away))

    def _meet(
        self, rows: NDArray[np.intp], distance: Floats, cosine: Floats | float, surface: Solid | Post | Blob
    ) -> None:
        """Records the surface on the rays where it is nearer than what they hit before."""
        row, beam = np.nonzero((distance > 0) & (distance < self.distance[rows]))
        hit = rows[row], beam
        self.distance[hit] = distance[row, beam]
        self.cosine[hit] = cosine if isinstance(cosine, float) else cosine[row, beam]
        self.reflectance[hit] = surface.reflectance
        self.instance[hit] = -1 if isinstance(surface, Post) else surface.instance

    def meet_solid(self, solid: Solid) -> None:
        rows = self._rows(solid.x, solid.y, solid.radius)
        speed = self.directions[rows] @ solid.normals.T
        speed[np.abs(speed) < 1e-12] = 1e-12  # a ray along a plane
        crossing = solid.offsets / speed
        enter = np.where(speed < 0, crossing, -np.inf)
        near, plane = enter.max(axis=-1), enter.argmax(axis=-1)
        far = np.where(speed > 0, crossing, np.inf).min(axis=-1)
        cosine = -np.take_along_axis(speed, plane[..., None], axis=-1)[..., 0]
        self._meet(rows, np.where(near < far, near, np.inf), cosine, solid)

    def meet_post(self, post: Post) -> None:
        rows = self._rows(post.x, post.y, post.radius)
        offset = np.sin(self.azimuth[rows] - np.arctan2(post.y, post.x)) * np.hypot(post.x, post.y)
        depth = np.sqrt(np.maximum(post.radius**2 - offset**2, 0))
        flat = np.sqrt(np.maximum(post.x**2 + post.y**2 - offset**2, 0)) - depth
        height = flat[:, None] * np.tan(self.elevation)
        distance = np.broadcast_to(flat[:, None] / np.cos(self.elevation), height.shape)
        inside = (height > post.low) & (height < post.high)
        cosine = np.broadcast_to((depth / post.radius)[:, None], height.shape)
        self._meet(rows, np.where(inside, distance, np.inf), cosine, post)

    def meet_blob(self, blob: Blob, random: np.random.Generator) -> None:
        rows = self._rows(blob.x, blob.y, blob.radius)
        scale = np.array((blob.radius, blob.radius, blob.half_height))
        direction, centre = self.directions[rows] / scale, np.array((blob.x, blob.y, blob.z)) / scale
        square, along = (direction**2).sum(axis=-1), direction @ centre
        inside = along**2 - square * (centre @ centre - 1)
        half = np.sqrt(np.maximum(inside, 0)) / square
        depth = random.exponential(blob.depth, half.shape) if blob.depth else 0.0
        met = (inside > 0) & (depth < 2 * half)
        self._meet(rows, np.where(met, along / square - half + depth, np.inf), 0.7, blob)

    def meet_ground(
        self, height: Callable[[Floats, Floats], Floats], reflectance: Callable[[Floats, Floats], Floats]
    ) -> None:
        """Finds the first crossing with a height field, on its profile along each azimuth."""
        radius = np.geomspace(2.0, 90.0, 640)
        profile = height(np.outer(np.cos(self.azimuth), radius), np.outer(np.sin(self.azimuth), radius))
        # The ground is visible from the origin where its slope, seen from there, rises.
        horizon = np.maximum.accumulate(profile / radius, axis=1)
        slope = np.tan(self.elevation)
        step = np.stack([np.searchsorted(row, slope) for row in horizon])
        hit = (step > 0) & (step < len(radius))
        after, rows = np.clip(step, 1, len(radius) - 1), np.arange(len(step))[:, None]
        low, high = radius[after - 1], radius[after]
        start = profile[rows, after - 1]
        rise = (profile[rows, after] - start) / (high - low)
        with np.errstate(divide="ignore", invalid="ignore"):
            flat = np.clip((start - low * rise) / (slope - rise), low, high)
        distance = np.where(hit, flat / np.cos(self.elevation), np.inf)
        nearer = distance < self.distance
        x, y = (flat * f(self.azimuth)[:, None] for f in (np.cos, np.sin))
        cosine = np.abs(self.directions[..., 2] - rise * np.cos(self.elevation)) / np.hypot(1, rise)
        self.distance[nearer], self.cosine[nearer] = distance[nearer], cosine[nearer]
        self.reflectance[nearer] = reflectance(x[nearer], y[nearer])
        self.instance[nearer] = -1
