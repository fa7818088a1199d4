"""A module that each Python of a watched run imports: it gives league actors the hosts of support/match_weights.py."""

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

ACTOR = "workers.leagues.actor"
WRAPPER = Path(__file__).parents[1] / "match_weights.py"


class ActorFinder(MetaPathFinder):
    """Replaces PlayerHost in the actor's module once that is loaded."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != ACTOR:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_and_replace(module: ModuleType) -> None:
            load(module)
            wrapper_spec = importlib.util.spec_from_file_location("match_weights", WRAPPER)
            assert wrapper_spec is not None and wrapper_spec.loader is not None
            wrapper = importlib.util.module_from_spec(wrapper_spec)
            wrapper_spec.loader.exec_module(wrapper)
            module.PlayerHost = wrapper.WatchingHost  # type: ignore[attr-defined]

        spec.loader.exec_module = load_and_replace  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, ActorFinder())
