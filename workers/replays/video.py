"""A film of an environment's pictures: an animated GIF, or an MP4 if OpenCV is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from warren.errors import ConfigurationError
from warren.user_code import install

KINDS = (".gif", ".mp4")
END = b";"  # last byte of a GIF


class Video:
    """Writes frames, uint8 [height, width, 3], to the file `path`, `fps` per second, until it is closed.

    Raises ConfigurationError for another kind of file than KINDS, and for an .mp4 that OpenCV cannot write.
    """

    fps = 30.0

    def __init__(self, path: Path) -> None:
        if path.suffix not in KINDS:
            raise ConfigurationError(f"--video {path}: it must end in {' or '.join(KINDS)}")
        self.path, self.frames = path, 0
        self._last: np.ndarray | None = None  # the frame before, for a GIF: only changes are written
        self._gif: BinaryIO | None = None
        self._writer: Any = None
        if path.suffix == ".mp4":
            try:
                import cv2  # noqa: F401
            except ModuleNotFoundError:
                raise ConfigurationError(
                    f"--video {path}: an .mp4 needs OpenCV; {install('cv2')}; or take .gif"
                ) from None

    def add(self, frame: Any) -> None:
        """Add the next frame."""
        picture = np.ascontiguousarray(frame)
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise ConfigurationError(
                f"--video {self.path}: the environment draws {picture.dtype} {list(picture.shape)}; "
                "render() must give uint8 [height, width, 3] with render_mode='rgb_array'"
            )
        self.frames += 1
        if self.path.suffix == ".gif":
            self._add_to_gif(picture)
            return
        import cv2

        height, width = picture.shape[:2]
        if self._writer is None:
            self._writer = cv2.VideoWriter(str(self.path), cv2.VideoWriter.fourcc(*"mp4v"), self.fps, (width, height))
            if not self._writer.isOpened():
                raise ConfigurationError(f"--video {self.path}: OpenCV cannot write there; take .gif, or another place")
        self._writer.write(picture[:, :, ::-1])

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.release()
        if self._gif is not None:
            self._gif.write(END)
            self._gif.close()

    def _add_to_gif(self, picture: np.ndarray) -> None:
        """Write the part of a frame that has changed, at once: the frames of a long film would fill the memory."""
        from PIL import GifImagePlugin, Image

        rows, columns = _changed(picture, self._last)
        frame = Image.fromarray(np.ascontiguousarray(picture[rows, columns])).quantize()
        if self._gif is None:
            header, _ = GifImagePlugin.getheader(frame, info={"loop": 0})
            try:
                self._gif = self.path.open("wb")
            except OSError as error:
                raise ConfigurationError(f"--video {self.path}: cannot be written ({error.strerror})") from None
            self._gif.write(b"".join(header))
        place = (columns.start, rows.start)
        told = {"duration": round(1000 / self.fps), "include_color_table": True}
        self._gif.write(b"".join(GifImagePlugin.getdata(frame, place, **told)))
        self._last = picture.copy()


def _changed(picture: np.ndarray, before: np.ndarray | None) -> tuple[slice, slice]:
    """Return (rows, columns) of the smallest rectangle, of a pixel at least, outside which two frames are the same."""
    if before is None:
        return slice(0, picture.shape[0]), slice(0, picture.shape[1])
    differs = (picture != before).any(-1)
    if not differs.any():
        return slice(0, 1), slice(0, 1)
    down, across = (np.flatnonzero(differs.any(axis)) for axis in (1, 0))
    return slice(int(down[0]), int(down[-1]) + 1), slice(int(across[0]), int(across[-1]) + 1)
