"""Folders of numbered pictures, read as videos."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from diagnostics.errors import DamagedVideoError, MissingVideoError, VideoError
from diagnostics.video.pictures import is_pictures, open_pictures
from diagnostics.video.reading import FrameReader


def shade(number: int) -> int:
    return 20 + 9 * number


@pytest.fixture
def folder(tmp_path):
    """Twelve grey pictures, numbered from 1, each of its own shade; PNG, so that shades are exact."""
    path = tmp_path / "frames_fps3_hq" / "castle_s01_clip_02"
    path.mkdir(parents=True)
    for number in range(1, 13):
        Image.new("RGB", (64, 48), (shade(number),) * 3).save(path / f"{number:05d}.png")
    (path / "notes.txt").write_text("not a picture")
    return path


@pytest.fixture(scope="module")
def reader():
    with FrameReader(timeout_seconds=60) as reader:
        yield reader


def test_frames_times_and_pictures(folder, reader):
    index = reader.index(folder)
    assert (index.n_frames, index.width, index.height) == (12, 64, 48)
    np.testing.assert_allclose(index.seconds, np.arange(12) / 3)
    assert (index.fps, index.duration) == (3.0, 4.0)
    pixels = reader.read(folder, [11, 0, 5, 0])
    assert pixels.shape == (4, 48, 64, 3)
    assert [int(picture.mean()) for picture in pixels] == [shade(n) for n in (12, 1, 6, 1)]
    assert (pixels == pixels[:, :1, :1]).all()


def test_pictures_are_scaled_like_frames(folder):
    with FrameReader(timeout_seconds=60, max_side=32) as reader:
        pixels = reader.read(folder, [2])
    assert pixels.shape == (1, 24, 32, 3)
    assert int(pixels.mean()) == shade(3)


def test_a_picture_that_is_missing_is_told(folder, reader):
    (folder / "00007.png").unlink()
    with pytest.raises(DamagedVideoError, match="picture 7 of 1 to 12"):
        reader.index(folder)


def test_a_picture_that_is_cut_short_or_of_another_size(folder, reader):
    first = folder / "00001.png"
    noise = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    Image.fromarray(noise).save(folder / "00003.png")
    whole = (folder / "00003.png").read_bytes()
    (folder / "00003.png").write_bytes(whole[: len(whole) // 2])
    Image.new("RGB", (32, 32)).save(folder / "00004.png")
    assert first.exists()
    with pytest.raises(DamagedVideoError, match="00003"):
        reader.read(folder, [2])
    with pytest.raises(DamagedVideoError, match="64x48 to 32x32"):
        reader.read(folder, [3])
    assert int(reader.read(folder, [4]).mean()) == shade(5)


def test_without_a_stated_rate_there_are_no_times(folder, tmp_path, reader):
    moved = folder.rename(tmp_path / "castle")
    with pytest.raises(VideoError, match="rate"):
        reader.index(moved)
    for name, rate in (("frames_fps25", 25.0), ("x-fps29.97", 29.97), ("fps_8", 8.0)):
        (tmp_path / name).mkdir()
        moved = moved.rename(tmp_path / name / "castle")
        assert open_pictures(moved).fps == pytest.approx(rate)


def test_names_without_a_number_and_folders_without_pictures(folder, tmp_path, reader):
    (folder / "cover.png").write_bytes((folder / "00001.png").read_bytes())
    with pytest.raises(VideoError, match=r"cover\.png has no number"):
        reader.index(folder)
    empty = tmp_path / "frames_fps3" / "empty"
    empty.mkdir(parents=True)
    assert not is_pictures(empty)
    with pytest.raises(MissingVideoError):
        reader.index(empty)
