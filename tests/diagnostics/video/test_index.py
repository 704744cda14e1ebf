from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from diagnostics import errors
from diagnostics.video.decoding import open_stream
from diagnostics.video.index import check_indices, open_index, size_within
from diagnostics.video.scanning import scan_packets, scan_table

BAD = {
    "missing.mp4": errors.MissingVideoError,
    "empty.mp4": errors.EmptyVideoError,
    "audio_only.m4a": errors.NoVideoStreamError,
    "page.mp4": errors.NoVideoStreamError,
    "cut.mp4": errors.TruncatedVideoError,
    "cut.mkv": errors.TruncatedVideoError,
    "cut.avi": errors.TruncatedVideoError,
    "no_header.mp4": errors.TruncatedVideoError,
    "damaged_start.mp4": errors.DamagedVideoError,
    "damaged_middle.avi": errors.DamagedVideoError,
    "damaged_header.mp4": errors.DamagedVideoError,
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_raise_what_is_wrong_with_them(clips, name):
    path = clips.folder / name if name.startswith("missing") else clips[name]
    with pytest.raises(BAD[name]) as caught:
        open_index(path)
    assert caught.value.path == str(path)
    assert caught.value.remedy
    assert type(caught.value) is BAD[name]


def test_a_folder_is_no_video(tmp_path):
    with pytest.raises(errors.MissingVideoError, match="folder"):
        open_index(tmp_path)


def test_a_name_is_never_taken_for_a_protocol(clips, tmp_path, monkeypatch):
    """FFmpeg would read `concat:a|b` as an instruction; here it is a file's name."""
    monkeypatch.chdir(tmp_path)
    name = f"concat:{clips['h264.mp4'].name}"
    shutil.copy(clips["vfr.mp4"], tmp_path / name)
    assert open_index(name).n_frames == 200
    with pytest.raises(errors.MissingVideoError):
        open_index(f"concat:{clips['h264.ts']}")


@pytest.mark.parametrize(
    "name", ["h264.mp4", "h264.mkv", "h264.ts", "vfr.mp4", "vfr.mkv", "edit_list.mp4", "offset.ts"]
)
def test_times_are_those_of_a_full_decode(clips, name):
    index = open_index(clips[name])
    with av.open(str(clips[name])) as given:
        stream = given.streams.video[0]
        pts = [frame.pts for frame in given.decode(stream)]
        seconds = [float((value - pts[0]) * stream.time_base) for value in pts]
    assert index.pts.tolist() == pts
    np.testing.assert_allclose(index.seconds, seconds, atol=1e-9)
    assert index.seconds[0] == 0.0


def test_variable_rate_keeps_its_real_times(clips):
    index = open_index(clips["vfr.mp4"])
    gaps = np.where(np.random.default_rng(0).random(200) < 0.1, 40, 1) * 33
    expected = np.cumsum(gaps) / 1000
    np.testing.assert_allclose(index.seconds, expected - expected[0], atol=1e-3)
    assert index.fps == pytest.approx(200 / index.duration)
    assert index.fps < 8, "the mean rate counts the held frames, not the usual distance of 33 ms"


def test_a_start_time_is_taken_off(clips):
    assert open_index(clips["offset.ts"]).pts[0] > 90000 * 100
    assert open_index(clips["offset.mkv"]).seconds[0] == 0.0
    assert open_index(clips["offset.ts"]).duration == pytest.approx(200 / 30, abs=1e-6)


def test_rate_and_duration_of_a_constant_rate(clips):
    index = open_index(clips["h264.mp4"])
    assert (index.fps, index.duration) == pytest.approx((30.0, 200 / 30))
    assert (index.width, index.height, index.codec, index.rotation) == (192, 96, "h264", 0)
    assert index.time_base * int(index.pts[1] - index.pts[0]) == Fraction(1, 30)
    assert index.header_frames == 200


def test_an_edit_list_leaves_only_what_is_shown(clips):
    index = open_index(clips["edit_list.mp4"])
    assert (index.n_frames, index.header_frames) == (14, 47)
    assert index.duration == pytest.approx(14 / 30)


def test_one_frame(clips):
    index = open_index(clips["single.mp4"])
    assert index.n_frames == 1
    assert index.duration == pytest.approx(1 / 30)


@pytest.mark.parametrize("name", ["mpeg4.avi", "raw.h264", "raw.hevc", "mjpeg.avi", "duplicated_times.mkv"])
def test_files_without_reliable_times_say_so(clips, name):
    index = open_index(clips[name])
    assert not index.reliable
    assert index.pts.tolist() == list(range(len(clips.truth(clips[name]))))
    assert (np.diff(index.seconds) >= 0).all()


def test_a_header_that_claims_too_much_is_not_believed(clips):
    index = open_index(clips["overclaiming.avi"])
    assert (index.n_frames, index.header_frames) == (60, 75)
    with pytest.raises(errors.FrameCountError, match="holds 60 frames though its header claims 75"):
        check_indices(index, np.array([0, 60]))


@pytest.mark.parametrize("wrong", [-1, 200, 10**9])
def test_frames_outside_are_refused(clips, wrong):
    index = open_index(clips["h264.mp4"])
    with pytest.raises(errors.FrameCountError, match=str(wrong)):
        check_indices(index, np.array([0, wrong]))


MP4 = [
    "h264.mp4",
    "faststart.mp4",
    "vfr.mp4",
    "edit_list.mp4",
    "hevc_open_gop.mp4",
    "av1.mp4",
    "single.mp4",
    "cover.mp4",
    "short_gop.mp4",
    "two_tracks.mp4",
]


@pytest.mark.parametrize("name", MP4)
def test_the_sample_table_says_what_demuxing_says(clips, name):
    with open_stream(clips[name]) as (container, stream):
        table = scan_table(clips[name], container, stream)
    with open_stream(clips[name]) as (container, stream):
        demuxed = scan_packets(clips[name], container, stream)
    assert table is not None, "an ordinary MP4 must be indexed from its table"
    assert demuxed is not None
    for field in ("pts", "dts", "key", "shown"):
        np.testing.assert_array_equal(getattr(table, field), getattr(demuxed, field), err_msg=field)
    assert (table.last_duration, table.first_pts) == (demuxed.last_duration, demuxed.first_pts)


def test_fragments_are_demuxed(clips):
    with open_stream(clips["fragmented.mp4"]) as (container, stream):
        assert scan_table(clips["fragmented.mp4"], container, stream) is None
    assert open_index(clips["fragmented.mp4"]).n_frames == 200


@pytest.mark.parametrize("name", MP4)
def test_the_header_alone_says_what_ffmpegs_list_says(clips, name, monkeypatch):
    """The short way for films of millions of pictures, and the long way through FFmpeg's list."""
    import diagnostics.video.sample_table as module

    with open_stream(clips[name]) as (container, stream):
        short = scan_table(clips[name], container, stream)
    monkeypatch.setattr(module, "_quick", lambda *_: False)
    with open_stream(clips[name]) as (container, stream):
        long = scan_table(clips[name], container, stream)
    for field in ("pts", "dts", "key", "shown"):
        np.testing.assert_array_equal(getattr(short, field), getattr(long, field), err_msg=field)


@pytest.mark.parametrize("field", ["offsets", "times", "key"])
@pytest.mark.parametrize("place", [1, 100, -2], ids=["head", "middle", "tail"])
def test_a_header_that_contradicts_the_packets_is_not_believed(clips, monkeypatch, field, place):
    import diagnostics.video.sample_table as module

    read = module._read_table

    def wrong(path: Path, track: int, count: int):
        table = read(path, track, count)
        values = getattr(table, field).copy()
        values[place] = ~values[place] if field == "key" else values[place] + 512
        return table._replace(**{field: values})

    demuxed = open_index(clips["h264.mp4"])
    monkeypatch.setattr(module, "_read_table", wrong)
    found = open_index(clips["h264.mp4"])
    np.testing.assert_array_equal(found.pts, demuxed.pts)
    np.testing.assert_array_equal(found.key_pts, demuxed.key_pts)


@pytest.mark.parametrize(
    ("max_side", "expected"),
    [(None, (96, 192)), (192, (96, 192)), (400, (96, 192)), (96, (48, 96)), (1, (1, 1))],
)
def test_pictures_are_only_made_smaller_with_their_aspect_kept(clips, max_side, expected):
    assert size_within(open_index(clips["h264.mp4"]), max_side) == expected
