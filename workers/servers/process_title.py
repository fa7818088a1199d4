"""The command line that `ps` shows for a forked process: its own instead of its parent's."""

from __future__ import annotations

import ctypes
from pathlib import Path

ARG_START, ARG_END, ENV_END = 45, 46, 48  # fields of /proc/PID/stat, counted after the name: see proc_pid_stat(5)


def set_title(title: str) -> None:
    """Show `title` as this process's command line, cut to the room of the original one and its environment.

    The kernel keeps the addresses of those, and shows the text there up to the first NUL, if the last byte of the
    original command line is no longer NUL (fs/proc/base.c, get_mm_cmdline). The original strings of the environment are
    overwritten: set variables that `getenv` needs again beforehand, by os.environ.
    """
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end, limit = (int(fields[index]) for index in (ARG_START, ARG_END, ENV_END))
    if not 0 < start < end <= limit:  # this kernel does not report the addresses
        return
    text = title.encode(errors="replace")[: limit - start - 1] + b"\0"
    if len(text) < end - start:
        text = text.ljust(end - start - 1, b"\0") + b" "
    elif len(text) == end - start:
        text = text[:-1] + b" \0"
    ctypes.memmove(start, text, len(text))
