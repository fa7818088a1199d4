"""What `ps` shows of a process that was forked: its own command line in place of its parent's."""

from __future__ import annotations

import ctypes
from pathlib import Path

ARG_START, ARG_END, ENV_END = 45, 46, 48  # of /proc/PID/stat, counted after the name: see proc_pid_stat(5)


def set_title(title: str) -> None:
    """Show `title` as this process's command line, cut to the room that the first one and its environment took.

    The kernel keeps where those were, and shows what is written over them up to the first NUL, provided that the last
    byte of the command line is not NUL any more (fs/proc/base.c, get_mm_cmdline). The environment's strings are lost to
    `getenv` with it: set those that are needed anew beforehand, as os.environ does.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end, limit = (int(fields[index]) for index in (ARG_START, ARG_END, ENV_END))
    if not 0 < start < end <= limit:  # a kernel that does not tell
        return
    text = title.encode(errors="replace")[: limit - start - 1] + b"\0"
    if len(text) < end - start:
        text = text.ljust(end - start - 1, b"\0") + b" "
    elif len(text) == end - start:
        text = text[:-1] + b" \0"
    ctypes.memmove(start, text, len(text))
