"""Real films: every frame asked for equals that of a full decode in order."""

from __future__ import annotations

from itertools import count

import av
import numpy as np
import pytest

from diagnostics.errors import FrameCountError
from diagnostics.video.reading import FrameReader

pytestmark = pytest.mark.system

FACTS = {
    "bikes.mp4": (250, 272, 640),
    "bigbuckbunny.mp4": (132, 720, 1280),
    "carphone.mp4": (120, 144, 176),
    "world.mp4": (901, 270, 480),
    "a.mp4": (209, 1080, 1920),
    "b.mp4": (150, None, None),
    "b.avi": (150, None, None),
}
"""Decodable frames, height and width."""


@pytest.fixture(scope="module")
def reader():
    with FrameReader() as opened:
        yield opened


@pytest.mark.parametrize("name", FACTS)
def test_frames_equal_those_of_a_full_decode(real_clips, reader, name):
    n_frames, height, width = FACTS[name]
    index = reader.index(real_clips[name])
    assert index.n_frames == n_frames
    if height:
        assert (index.height, index.width) == (height, width)
    generator = np.random.default_rng(2)
    indices = [0, n_frames - 1, *generator.integers(0, n_frames, 40).tolist()]
    shown = dict(zip(indices, reader.read(real_clips[name], indices), strict=True))
    seen = 0
    with av.open(str(real_clips[name])) as given:
        for number, frame in zip(count(), given.decode(video=0)):
            seen += 1
            if number in shown:
                expected = frame.to_ndarray(format="rgb24", threads=1)
                np.testing.assert_array_equal(shown[number], expected, err_msg=f"frame {number}")
    assert seen == n_frames


def test_a_real_header_that_claims_one_frame_more(real_clips, reader):
    index = reader.index(real_clips["b.avi"])
    assert (index.header_frames, index.n_frames) == (151, 150)
    with pytest.raises(FrameCountError, match="151"):
        reader.read(real_clips["b.avi"], [150])


@pytest.mark.parametrize("other", ["decord"])
def test_decord_agrees_on_films_of_the_kind_it_can_read(real_clips, reader, other):
    with FrameReader(reader=other) as second:
        for name in ("bikes.mp4", "carphone.mp4", "world.mp4"):
            indices = np.linspace(0, FACTS[name][0] - 1, 20).round().astype(int)
            np.testing.assert_array_equal(
                second.read(real_clips[name], indices), reader.read(real_clips[name], indices), err_msg=name
            )
