"""A film of what an environment shows: an animated GIF, or an MP4 where OpenCV is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from warren.errors import ConfigurationError
from warren.user_code import install

KINDS = (".gif", ".mp4")


class Video:
    """Frames, uint8 [height, width, 3], to the file `path`, `fps` a second, until it is closed.

    Raises ConfigurationError for another kind of file than KINDS, and for an .mp4 that OpenCV cannot write.
    """

    fps = 30.0

    def __init__(self, path: Path) -> None:
        if path.suffix not in KINDS:
            raise ConfigurationError(f"--video {path}: it must end in {' or '.join(KINDS)}")
        self.path, self.frames = path, 0
        self._images: list[Any] = []  # of a GIF, which is written as a whole
        self._writer: Any = None
        if path.suffix == ".mp4":
            try:
                import cv2  # noqa: F401
            except ModuleNotFoundError:
                raise ConfigurationError(
                    f"--video {path}: an .mp4 needs OpenCV; {install('cv2')}; or take .gif"
                ) from None

    def add(self, frame: Any) -> None:
        """The next frame."""
        picture = np.ascontiguousarray(frame)
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise ConfigurationError(
                f"--video {self.path}: the environment draws {picture.dtype} {list(picture.shape)}; "
                "render() must give uint8 [height, width, 3] with render_mode='rgb_array'"
            )
        self.frames += 1
        if self.path.suffix == ".gif":
            from PIL import Image

            self._images.append(Image.fromarray(picture))
            return
        import cv2

        height, width = picture.shape[:2]
        if self._writer is None:
            self._writer = cv2.VideoWriter(str(self.path), cv2.VideoWriter.fourcc(*"mp4v"), self.fps, (width, height))
            if not self._writer.isOpened():
                raise ConfigurationError(f"--video {self.path}: OpenCV cannot write there; take .gif, or another place")
        self._writer.write(picture[:, :, ::-1])

    def close(self) -> None:
        """Ends the file."""
        if self._writer is not None:
            self._writer.release()
        if self._images:
            first, *others = self._images
            first.save(self.path, save_all=True, append_images=others, duration=round(1000 / self.fps), loop=0)
