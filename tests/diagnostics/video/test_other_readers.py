"""decord and TorchCodec: exact where they are let through, refused where they are known not to be."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from diagnostics import errors
from diagnostics.video.agreement import require_same_frames, require_same_size
from diagnostics.video.index import open_index, size_within
from diagnostics.video.readers import load_reader, reader_names
from diagnostics.video.reading import FrameReader

TRUSTED = [
    "h264.mp4",
    "h264.mkv",
    "vfr.mp4",
    "hevc.mp4",
    "vp9.webm",
    "odd444.mp4",
    "offset.mkv",
    "single.mp4",
]
REFUSED = {
    "h264.ts": "mpegts",
    "mpeg2.mpg": "mpeg",
    "mpeg4.avi": "no reliable presentation times",
    "raw.h264": "no reliable presentation times",
}
REFUSED_BY_DECORD = {
    "hevc_open_gop.mp4": "open groups",
    "open_gop_264.mp4": "open groups",
    "edit_list.mp4": "counts 47 frames, but 14 are shown",
    "av1.mp4": "cannot open",
}


def read(name, index, indices, max_side=None):
    out = np.zeros((len(indices), *size_within(index, max_side), 3), np.uint8)
    load_reader(name).read(index, np.array(indices), out, 1)
    return out


def test_registry():
    assert reader_names() == ("decord", "pyav", "torchcodec")


@pytest.mark.parametrize("name", TRUSTED)
def test_decord_agrees_where_it_is_trusted(clips, name):
    index = open_index(clips[name])
    indices = [0, index.n_frames - 1, *np.random.default_rng(0).integers(0, index.n_frames, 40).tolist()]
    np.testing.assert_array_equal(read("decord", index, indices), read("pyav", index, indices))


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_BY_DECORD])
def test_decord_is_refused_where_it_is_inexact(clips, name):
    reason = {**REFUSED, **REFUSED_BY_DECORD}[name]
    with pytest.raises(errors.InexactReaderError, match=reason) as caught:
        read("decord", open_index(clips[name]), [5])
    assert "pyav" in caught.value.remedy


def test_decord_is_refused_with_good_reason(clips, monkeypatch):
    """The list above is not superstition: without it, decord shows other frames and says nothing."""
    import diagnostics.video.readers.decord as module

    monkeypatch.setattr(module, "refuse_known_inexact", lambda *_: None)
    for name in ("h264.ts", "hevc_open_gop.mp4"):
        index, truth = open_index(clips[name]), clips.truth(clips[name])
        indices = np.random.default_rng(1).integers(0, index.n_frames, 30).tolist()
        shown = [clips.spelled(picture) for picture in read("decord", index, indices)]
        assert shown != [truth[i] for i in indices], f"decord now reads {name} rightly: let it"


def test_decord_scales_what_it_reads(clips):
    index = open_index(clips["h264.mp4"])
    shown = read("decord", index, [3, 150], max_side=96)
    assert shown.shape == (2, 48, 96, 3)
    assert [clips.spelled(picture) for picture in shown] == [3, 150]


def test_decord_can_be_chosen(clips):
    with FrameReader(reader="decord") as reader:
        assert [clips.spelled(p) for p in reader.read(clips["h264.mp4"], [9, 4])] == [9, 4]
        with pytest.raises(errors.InexactReaderError):
            reader.read(clips["h264.ts"], [9])


@pytest.fixture
def torchcodec(monkeypatch, tmp_path):
    """TorchCodec with the FFmpeg that PyAV's wheel brings, under the names TorchCodec looks for."""
    bundled = Path(av.__file__).parents[1] / "av.libs"
    for library in bundled.glob("lib*-*.so.*"):
        stem, _, version = library.name.partition(".so.")
        (tmp_path / f"{stem.rsplit('-', 1)[0]}.so.{version.split('.')[0]}").symlink_to(library)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with FrameReader(reader="torchcodec") as reader:
        yield reader


def test_torchcodec_agrees_where_it_is_trusted(clips, torchcodec):
    with FrameReader() as reference:
        for name in [*TRUSTED, "hevc_open_gop.mp4", "open_gop_264.mp4", "edit_list.mp4", "av1.mp4"]:
            n_frames = torchcodec.index(clips[name]).n_frames
            indices = [0, n_frames - 1, *np.random.default_rng(0).integers(0, n_frames, 40).tolist()]
            shown, expected = torchcodec.read(clips[name], indices), reference.read(clips[name], indices)
            np.testing.assert_array_equal(shown, expected, err_msg=name)


def test_torchcodec_is_refused_where_it_is_inexact(clips, torchcodec):
    for name, reason in REFUSED.items():
        with pytest.raises(errors.InexactReaderError, match=reason):
            torchcodec.read(clips[name], [5])
    with pytest.raises(errors.DamagedVideoError):
        torchcodec.read(clips["damaged_middle.mp4"], [100])


def test_torchcodec_turns_and_scales(clips, tmp_path, torchcodec):
    turned = clips.turn(clips["h264.mp4"], tmp_path / "turned.mp4", (0, 1, -1, 0))
    with FrameReader() as reference:
        np.testing.assert_array_equal(torchcodec.read(turned, [3, 9]), reference.read(turned, [3, 9]))
    with FrameReader(reader="torchcodec", max_side=96) as small:
        assert small.read(clips["h264.mp4"], [3]).shape == (1, 48, 96, 3)


def test_disagreement_on_count_time_or_size_is_told(clips):
    index = open_index(clips["h264.mp4"])
    numbers = np.arange(200)
    require_same_frames("other", index, 200, index.seconds + 0.01, numbers)
    require_same_size("other", index, (96, 192))
    with pytest.raises(errors.InexactReaderError, match="counts 199 frames, but 200"):
        require_same_frames("other", index, 199, index.seconds, numbers)
    with pytest.raises(errors.InexactReaderError, match=r"shows frame \d+ at"):
        require_same_frames("other", index, 200, index.seconds + 0.02, numbers)
    with pytest.raises(errors.InexactReaderError, match="192x96"):
        require_same_size("other", index, (96, 144, 4))
