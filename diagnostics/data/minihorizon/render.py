"""From a plan to pictures: tissue that drifts with the camera, highlights, sensor noise, the lesion.

The tissue is a smooth random field on a torus, looked at through a window that the camera's path
moves; the lesion is fixed to the tissue (up to a bounded slip that keeps it in its place of the
picture); highlights follow the camera more slowly than the tissue and flicker. Everything a pixel
depends on is drawn from seeded streams, noise from one stream a block of frames, so that any stretch
of the video can be rendered alone and is the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from einops import rearrange
from jaxtyping import Bool, Float, UInt8
from numpy.lib.stride_tricks import sliding_window_view
from scipy.ndimage import gaussian_filter

from diagnostics.data.minihorizon.plan import (
    LESION_COLOURS,
    PLACES,
    TISSUE_HUES,
    stream,
    transition_frames,
)
from diagnostics.data.minihorizon.procedure import INSTRUMENTS, STEPS, Procedure
from diagnostics.data.minihorizon.settings import Config

__all__ = ["BLOCK", "EDGE", "SLIP", "Scene"]

BLOCK = 64
"""Frames rendered at a time, and sharing one stream of noise."""

SLIP = 0.06
"""How far a lesion moves at most, as a part of the picture's shorter side."""
EDGE = 1.15
"""A lesion's largest reach, in its radius: three waves of a twentieth run along its edge."""
_HIGHLIGHTS = 5
_CAMERA, _TEXTURE, _SHAPE, _SHINE, _NOISE_STREAM = range(3, 8)
_PATTERN_DEPTH = 0.28
_SHAFT = 0.07
"""Half the width of an instrument, as a part of the picture's."""


@dataclass(frozen=True)
class _Tissue:
    """Fields on a torus, padded so that every window is a plain slice: relief and redness, mean 0."""

    side: int
    relief: Float[np.ndarray, "padded_height padded_width"]
    redness: Float[np.ndarray, "padded_height padded_width"]


class Scene:
    """One procedure, ready to be rendered.

    Args:
        config: size, length and seed.
        plan: what happens in it.
    """

    def __init__(self, config: Config, plan: Procedure) -> None:
        self.config = config
        self.plan = plan
        self._camera = _camera_path(config, plan.index)
        self._tissue = _tissue(config, plan.index)
        self._hue = _hue_by_frame(config, plan)
        down, across = np.mgrid[: config.height, : config.width].astype(np.float32)
        self._down, self._across = down, across
        self._light = _falloff(down, across, config)
        outlines = stream(config, _SHAPE, plan.index).uniform(0, 2 * np.pi, (len(plan.lesions), 3))
        self._outlines = outlines.astype(np.float32)

    def blocks(self) -> Iterator[UInt8[np.ndarray, "frame height width 3"]]:
        """The whole video, `BLOCK` frames at a time."""
        for block in range(-(-self.config.n_frames // BLOCK)):
            yield self.block(block)

    def block(self, block: int) -> UInt8[np.ndarray, "frame height width 3"]:
        """Frames [block * BLOCK, (block + 1) * BLOCK), RGB; the last block may be shorter."""
        frames = np.arange(block * BLOCK, min((block + 1) * BLOCK, self.config.n_frames))
        relief, redness = (
            self._window(field, frames) for field in (self._tissue.relief, self._tissue.redness)
        )
        base = rearrange(self._hue[frames], "frame colour -> frame 1 1 colour")
        shade = rearrange((1 + 0.075 * relief) * self._light, "frame height width -> frame height width 1")
        tint = np.array([0.015, -0.05, -0.03], dtype=np.float32)
        picture = base * shade * (1 + tint * redness[..., None])
        shine = self._highlights(frames)[..., None]
        picture += (np.float32(250) - picture) * shine
        self._paint_overlays(picture, frames)
        for number in range(len(self.plan.lesions)):
            self._paint_lesion(picture, frames, number)  # over the highlights: none may hide a small lesion
        noise = stream(self.config, _NOISE_STREAM, self.plan.index, block).standard_normal(
            picture.shape[:3], dtype=np.float32
        )
        picture += np.float32(self.config.preset.noise) * noise[..., None]
        return np.clip(np.rint(picture), 0, 255).astype(np.uint8)

    def lesion_mask(self, frame: int) -> Bool[np.ndarray, "height width"]:
        """Where a lesion is in that frame; nowhere outside their windows."""
        mask = np.zeros((self.config.height, self.config.width), dtype=bool)
        for number, lesion in enumerate(self.plan.lesions):
            if lesion.start_frame <= frame < lesion.end_frame:
                mask |= self._lesion_cover(number, np.array([frame]))[0] >= 0.5
        return mask

    def _window(
        self, field: Float[np.ndarray, "padded_height padded_width"], frames: np.ndarray
    ) -> Float[np.ndarray, "frame height width"]:
        """What the camera sees of a field, between pixels by bilinear interpolation."""
        height, width = self.config.height, self.config.width
        position = self._camera[frames] % self._tissue.side
        corner = np.floor(position).astype(int)
        part = (position - corner).astype(np.float32)
        views = sliding_window_view(field, (height + 1, width + 1))[corner[:, 0], corner[:, 1]]
        down, right = part[:, 0, None, None], part[:, 1, None, None]
        rows = views[:, :-1] * (1 - down) + views[:, 1:] * down
        return rows[:, :, :-1] * (1 - right) + rows[:, :, 1:] * right

    def _paint_overlays(self, picture: Float[np.ndarray, "frame height width 3"], frames: np.ndarray) -> None:
        """Steps as patterns of light and dark, instruments as shafts of one colour, in place."""
        for overlay in self.plan.overlays:
            shown = np.flatnonzero((frames >= overlay.start_frame) & (frames < overlay.end_frame))
            if not len(shown):
                continue
            if overlay.name in INSTRUMENTS:
                cover = self._shaft()[..., None]
                light = (0.5 + 0.5 * self._light)[..., None]
                colour = np.array(INSTRUMENTS[overlay.name], dtype=np.float32) * light
                picture[shown] += (colour - picture[shown]) * cover
            else:
                picture[shown] *= 1 + np.float32(_PATTERN_DEPTH) * self._pattern(overlay.name)[..., None]

    def _shaft(self) -> Float[np.ndarray, "height width"]:
        """Share of each pixel that an instrument covers: a bar that comes in from below to the middle."""
        from_middle = np.abs(self._across - (self.config.width - 1) / 2)
        inside = np.clip(_SHAFT * self.config.width - from_middle + 0.5, 0, 1)
        return np.where(self._down >= 0.35 * self.config.height, inside, 0).astype(np.float32)

    def _pattern(self, step: str) -> Float[np.ndarray, "height width"]:
        """Light (1) and dark (-1) of a step, eight pixels a period at a height of 96."""
        period = min(self.config.height, self.config.width) / 12
        down, across = 2 * np.pi * self._down / period, 2 * np.pi * self._across / period
        waves = (
            np.sin(down),
            np.sin(across),
            np.sin((down + across) / 2),
            np.sin(down / 2) * np.sin(across / 2),
            np.sin((down - across) / 2),
            np.where((np.sin(down / 2) > 0.5) & (np.sin(across / 2) > 0.5), 1.0, -0.3),
        )
        return np.sign(waves[STEPS.index(step)]).astype(np.float32)

    def _paint_lesion(
        self, picture: Float[np.ndarray, "frame height width 3"], frames: np.ndarray, number: int
    ) -> None:
        """Cover the tissue with a lesion, in place, in the frames that show it."""
        lesion = self.plan.lesions[number]
        shown = np.flatnonzero((frames >= lesion.start_frame) & (frames < lesion.end_frame))
        if not len(shown):
            return
        cover = self._lesion_cover(number, frames[shown])[..., None]
        relief = self._window(self._tissue.relief, frames[shown])
        colour = np.array(LESION_COLOURS[lesion.colour], dtype=np.float32)
        surface = colour * ((1 + 0.10 * relief) * (0.4 + 0.6 * self._light))[..., None]
        picture[shown] += (surface - picture[shown]) * cover

    def _lesion_cover(self, number: int, frames: np.ndarray) -> Float[np.ndarray, "frame height width"]:
        """Share of each pixel that the lesion covers: 1 inside, 0 outside, between at its edge."""
        lesion = self.plan.lesions[number]
        config, outline = self.config, self._outlines[number]
        side = min(config.height, config.width)
        radius = np.float32(lesion.diameter * side / 2)
        middle = self._camera[(lesion.start_frame + lesion.end_frame - 1) // 2]
        bound = SLIP * side
        slip = bound * np.tanh((middle - self._camera[frames]) / bound)
        centre = (np.array(PLACES[lesion.place]) * (config.height, config.width) + slip).astype(np.float32)
        down = self._down - centre[:, 0, None, None]
        across = self._across - centre[:, 1, None, None]
        angle = np.arctan2(down, across)
        edge = radius * (1 + sum(0.05 * np.sin(k * angle + outline[k - 2]) for k in (2, 3, 4)))
        return np.clip(edge - np.hypot(down, across) + 0.5, 0, 1).astype(np.float32)

    def _highlights(self, frames: np.ndarray) -> Float[np.ndarray, "frame height width"]:
        """Share of white in each pixel: small wet reflections that slide over the tissue and flicker."""
        config = self.config
        random = stream(config, _SHINE, self.plan.index)
        home = random.uniform(0, 1, (_HIGHLIGHTS, 2)) * (config.height, config.width)
        spread = random.uniform(0.012, 0.034, (_HIGHLIGHTS, 2)) * min(config.height, config.width)
        rhythm, phase = random.uniform(0.1, 0.5, _HIGHLIGHTS), random.uniform(0, 2 * np.pi, _HIGHLIGHTS)
        seconds = frames[:, None] / float(config.rate)
        seconds = seconds * config.preset.motion
        strength = np.clip(0.6 + 0.7 * np.sin(2 * np.pi * rhythm * seconds + phase), 0, 1)
        centre = (home - 0.6 * self._camera[frames][:, None]) % (config.height, config.width)
        profiles = []
        for axis, length in enumerate((config.height, config.width)):
            distance = np.arange(length) - centre[..., axis, None]
            profiles.append(np.exp(-0.5 * (distance / spread[:, axis, None]) ** 2).astype(np.float32))
        profiles[0] *= strength[..., None].astype(np.float32)
        shine = rearrange(profiles[0], "frame spot down -> frame down spot") @ profiles[1]
        return np.clip(1.8 * shine - 0.35, 0, 0.95)


def _camera_path(config: Config, index: int) -> Float[np.ndarray, "frame 2"]:
    """Where the camera looks, in pixels: a slow drift whose direction turns, breathing, a little tremor."""
    random = stream(config, _CAMERA, index)
    seconds = np.arange(config.n_frames) / float(config.rate)
    scale = min(config.height, config.width) / 96
    turn = random.uniform(0, 2 * np.pi) + 0.8 * np.sin(
        2 * np.pi * seconds / 47 + random.uniform(0, 2 * np.pi)
    )
    heading = np.stack([np.sin(turn), np.cos(turn)], axis=1)
    drift = np.cumsum(1.2 * heading, axis=0) / float(config.rate)
    path = drift + random.uniform(0, 96, 2)
    for amplitude, period in ((1.5, 3.7), (0.4, 0.9)):
        phase = random.uniform(0, 2 * np.pi, 2)
        path += amplitude * np.sin(2 * np.pi * seconds[:, None] / period + phase)
    start = path[:1]
    return scale * (start + config.preset.motion * (path - start))


def _tissue(config: Config, index: int) -> _Tissue:
    """Relief of folds and grain, and redness of vessels, each smooth noise of unit deviation."""
    random = stream(config, _TEXTURE, index)
    scale = min(config.height, config.width) / 96
    side = 2 * max(config.height, config.width)

    def smooth(sigma: float) -> np.ndarray:
        field = gaussian_filter(random.standard_normal((side, side)), sigma * scale, mode="wrap")
        return (field - field.mean()) / field.std()

    relief = (0.8 * smooth(11) + 0.5 * smooth(4) + 0.2 * smooth(1.5)) / np.sqrt(0.8**2 + 0.5**2 + 0.2**2)
    redness = (0.8 * smooth(7) - 0.6 * np.abs(smooth(4))) / 0.9
    pad = ((0, config.height + 1), (0, config.width + 1))
    return _Tissue(side, *(np.pad(field, pad, mode="wrap").astype(np.float32) for field in (relief, redness)))


def _hue_by_frame(config: Config, plan: Procedure) -> Float[np.ndarray, "frame 3"]:
    """Colour of the tissue in each frame: the phase's, a slow wave about it, a ramp between phases."""
    hues = np.array([TISSUE_HUES[phase.hue] for phase in plan.phases], dtype=np.float64)
    half = transition_frames(config.n_frames) / 2
    frames = np.arange(config.n_frames)
    knots, colours = [0.0], [hues[0]]
    for before, after, phase in zip(hues[:-1], hues[1:], plan.phases[1:], strict=True):
        knots += [phase.start_frame - half, phase.start_frame + half]
        colours += [before, after]
    channels = [np.interp(frames, knots, [colour[channel] for colour in colours]) for channel in range(3)]
    wave = 1 + 0.02 * config.preset.motion * np.sin(2 * np.pi * frames[:, None] / config.n_frames * (3, 5, 7))
    return (np.stack(channels, axis=1) * wave).astype(np.float32)


def _falloff(
    down: Float[np.ndarray, "height width"], across: Float[np.ndarray, "height width"], config: Config
) -> Float[np.ndarray, "height width"]:
    """Light of the scope: full in the middle, three fifths in the corners."""
    y, x = 2 * down / config.height - 1, 2 * across / config.width - 1
    return (1.08 - 0.22 * (y**2 + x**2)).astype(np.float32)
