"""Exactness of the default reader on every awkward file, by two independent roads: the number that
each picture spells, and a full decode in order with FFmpeg's own defaults."""

from __future__ import annotations

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnostics import errors
from diagnostics.video.index import VideoIndex, open_index, size_within
from diagnostics.video.readers import pyav

READABLE = [
    "h264.mp4",
    "h264.mkv",
    "h264.ts",
    "faststart.mp4",
    "fragmented.mp4",
    "raw.h264",
    "vfr.mp4",
    "vfr.mkv",
    "long_gop.mp4",
    "all_key.mp4",
    "short_gop.mp4",
    "hevc.mp4",
    "hevc_open_gop.mp4",
    "hevc_layers.mp4",
    "hevc.ts",
    "raw.hevc",
    "hevc10.mp4",
    "open_gop_264.mp4",
    "open_gop_264.ts",
    "intra_refresh.ts",
    "vp8_hidden.webm",
    "vp9.webm",
    "vp9_hidden.webm",
    "av1.mp4",
    "mpeg4.avi",
    "mpeg2.mpg",
    "mjpeg.avi",
    "odd444.mp4",
    "single.mp4",
    "edit_list.mp4",
    "offset.ts",
    "offset.mkv",
    "joined_mid_group.ts",
    "duplicated_times.mkv",
    "cover.mp4",
    "two_tracks.mp4",
    "видео 腔镜 é.mp4",
    "overclaiming.avi",
]


def read(index: VideoIndex, indices, max_side: int | None = None, threads: int = 1) -> np.ndarray:
    out = np.full((len(indices), *size_within(index, max_side), 3), 77, np.uint8)
    pyav.read(index, np.asarray(indices, dtype=np.int64), out, threads)
    return out


def full_decode(path) -> np.ndarray:
    with av.open(str(path)) as given_file:
        stream = given_file.streams.best("video")
        return np.stack([frame.to_ndarray(format="rgb24", threads=1) for frame in given_file.decode(stream)])


@pytest.mark.parametrize("name", READABLE)
def test_any_frames_in_any_order_are_the_right_ones(clips, name):
    index, pixels = open_index(clips[name]), full_decode(clips[name])
    assert index.n_frames == len(pixels)
    generator = np.random.default_rng(5)
    indices = [0, index.n_frames - 1, *generator.integers(0, index.n_frames, 24).tolist()]
    shown = read(index, indices)
    numbers = [clips.spelled(picture) for picture in pixels]
    assert [clips.spelled(picture) for picture in shown] == [numbers[i] for i in indices]
    np.testing.assert_array_equal(shown, pixels[indices], err_msg="pixels differ from a full decode")


@pytest.mark.parametrize("name", ["h264.mp4", "hevc_open_gop.mp4", "open_gop_264.mp4", "h264.ts", "raw.h264"])
def test_every_frame_by_itself(clips, name):
    index, numbers = open_index(clips[name]), clips.truth(clips[name])
    for frame in range(0, min(index.n_frames, 60)):
        assert clips.spelled(read(index, [frame])[0]) == numbers[frame]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, 199), max_size=12), st.sampled_from(["h264.mp4", "open_gop_264.mp4", "vfr.mkv"])
)
def test_lists_with_repeats_in_any_order(clips, indices, name):
    index = open_index(clips[name])
    assert [clips.spelled(picture) for picture in read(index, indices)] == indices


@pytest.mark.parametrize(
    "name", ["h264.ts", "hevc.ts", "open_gop_264.ts", "offset.ts", "hevc_open_gop.mp4", "vfr.mp4"]
)
def test_no_seek_ends_in_a_decode_from_the_start(clips, name, monkeypatch):
    """Exactness by decoding everything would be exact and useless on a procedure of hours."""

    def refuse(*_):
        raise AssertionError("fell back to a decode from the start")

    monkeypatch.setattr(pyav, "_read_from_start", refuse)
    index = open_index(clips[name])
    indices = np.arange(0, index.n_frames, 7)
    assert [clips.spelled(p) for p in read(index, indices)] == [clips.truth(clips[name])[i] for i in indices]


def test_a_decoder_that_gives_nothing_after_a_seek_is_started_earlier(clips, monkeypatch):
    """A key frame that is none (recovery points lie now and then): back off, then the start."""
    from dataclasses import replace

    index = open_index(clips["long_gop.mp4"])
    lying = np.sort(np.append(index.key_pts, index.pts[[100, 200, 300, 400, 450, 500]]))
    wrong = replace(index, key_pts=lying, key_seek=lying)
    assert [clips.spelled(p) for p in read(wrong, [110, 460, 550, 699])] == [110, 460, 550, 699]
    late = replace(index, key_seek=index.key_seek + (index.pts[-1] - index.pts[0]))
    assert [clips.spelled(p) for p in read(late, [3, 333])] == [3, 333]


def test_a_time_that_never_comes_is_an_error_and_not_a_neighbour(clips):
    from dataclasses import replace

    index = open_index(clips["h264.mp4"])
    pts = index.pts.copy()
    pts[100] += 100  # between two frames: what a wrong header would lead to
    wrong = replace(index, pts=pts)
    assert [clips.spelled(p) for p in read(wrong, [99, 101])] == [99, 101]
    with pytest.raises(errors.DamagedVideoError, match=r"frame 100 .* does not come out of the decoder"):
        read(wrong, [99, 100, 101])


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_nothing(clips, threads):
    index = open_index(clips["h264.mp4"])
    indices = np.random.default_rng(0).integers(0, 200, 40)
    np.testing.assert_array_equal(read(index, indices, threads=threads), read(index, indices))


@pytest.mark.parametrize(
    ("matrix", "turns"), [((0, 1, -1, 0), -1), ((-1, 0, 0, -1), 2), ((0, -1, 1, 0), 1), ((1, 0, 0, 1), 0)]
)
def test_rotation_is_applied(clips, tmp_path, matrix, turns):
    """The matrix maps stored (right, down) to shown ones (ISO 14496-12, 8.3.2): (0 1; -1 0) sends right to
    down, a quarter turn clockwise, which is `rot90` by -1."""
    plain = open_index(clips["h264.mp4"])
    turned = open_index(clips.turn(clips["h264.mp4"], tmp_path / "turned.mp4", matrix))
    expected = np.rot90(read(plain, [5, 120]), turns, axes=(1, 2))
    assert (turned.height, turned.width) == expected.shape[1:3]
    np.testing.assert_array_equal(read(turned, [5, 120]), expected)


def test_smaller_pictures_keep_their_number_and_aspect(clips):
    index = open_index(clips["h264.mp4"])
    shown = read(index, [7, 150], max_side=96)
    assert shown.shape == (2, 48, 96, 3)
    assert [clips.spelled(picture) for picture in shown] == [7, 150]
    halved = read(index, [7, 150]).reshape(2, 48, 2, 96, 2, 3).mean(axis=(2, 4))
    assert np.abs(halved - shown).mean() < 4, "bicubic and box halves differ by little on average"


def test_damage_is_an_error_there_and_nowhere_else(clips):
    index = open_index(clips["damaged_middle.mp4"])
    with pytest.raises(errors.DamagedVideoError, match=r"frame \d+ at \d\.\d+ s cannot be decoded"):
        read(index, [0, 100])
    good = [0, 50, 80, 150, 199]
    assert [clips.spelled(picture) for picture in read(index, good)] == good


def test_a_picture_size_that_changes_is_an_error(clips, tmp_path):
    small = clips.encode(tmp_path / "small.ts", range(30), options={"g": "10"})
    large = clips.encode(tmp_path / "large.ts", range(30), size=(384, 192), options={"g": "10"})
    joined = tmp_path / "joined.h264"
    with joined.open("wb") as out:
        for part in (small, large):
            with av.open(str(part)) as source:
                out.writelines(bytes(packet) for packet in source.demux(video=0) if packet.size)
    index = open_index(joined)
    assert index.n_frames == 60
    assert clips.spelled(read(index, [29])[0]) == 29
    with pytest.raises(errors.DamagedVideoError, match="change from 192x96 to 384x192"):
        read(index, [40])


@pytest.mark.parametrize(
    ("space", "full", "expected"),
    [
        (1, False, (214, 101, 41)),
        (1, True, (202, 103, 49)),
        (6, False, (204, 94, 44)),
        (2, False, (204, 94, 44)),
    ],
)
def test_colours_follow_the_files_matrix_and_range(tmp_path, space, full, expected):
    """YCbCr (120, 90, 180) by the equations of BT.709 (space 1) and BT.601 (6, and 2: none given)."""
    path = tmp_path / "colour.mp4"
    planes = np.concatenate([np.full(64 * 48, 120), np.full(32 * 24, 90), np.full(32 * 24, 180)])
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=30, options={"qp": "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.codec_context.colorspace, stream.codec_context.color_range = space, 2 if full else 1
        frame = av.VideoFrame.from_ndarray(planes.astype(np.uint8).reshape(72, 64), format="yuv420p")
        out.mux(stream.encode(frame))
        out.mux(stream.encode())
    shown = read(open_index(path), [0])[0]
    assert np.abs(shown.astype(int) - expected).max() <= 2
