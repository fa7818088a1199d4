"""The file in which Hydra keeps the settings of `--multirun`, without passwords."""

from __future__ import annotations

from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, flag_override

from workers.servers.checks import redact

URLS = ("url", "redis_url")


class HidePasswords(Callback):
    """A callback that hides passwords in the configuration that Hydra saves; each run composes its own again."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        with flag_override(config, ["readonly", "struct"], False):
            for name in URLS:
                if url := OmegaConf.select(config, f"broker.{name}"):
                    config.broker[name] = redact(url)
            given = config.hydra.overrides.task
            with flag_override(given, "readonly", False):
                given[:] = [redact(str(override)) for override in given]
            config.hydra.job.override_dirname = ",".join(given)
