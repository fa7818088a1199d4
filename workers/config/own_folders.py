"""Folders of the user's own settings, which Hydra finds beside Warren's: conf/ in the working directory, --config-dir.

Warren's folder is searched first, so that a user's file adds an option, as conf/experiment/mine.yaml does, and hides
none.
"""

from __future__ import annotations

from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from workers.config.schema import CONF


class OwnFolders(SearchPathPlugin):
    """The Hydra plugin that adds these folders wherever a configuration is composed."""

    config_dir: str | None = None  # --config-dir of this process

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the folders that exist."""
        search_path.append("schema", "structured://")  # searched before them, too
        for folder in own_folders():
            search_path.append("own", f"file://{folder}")


def own_folders() -> list[Path]:
    """Return the folders of settings beside Warren's that exist."""
    given = [Path(OwnFolders.config_dir)] if OwnFolders.config_dir else []
    found = [folder.resolve() for folder in (*given, Path("conf")) if folder.is_dir()]
    return [folder for folder in found if folder != CONF]


Plugins.instance().register(OwnFolders)
