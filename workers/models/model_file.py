"""An ONNX model of a trained policy, in a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from warren.errors import ConfigurationError
from warren.files import write_whole
from workers.models.backends import Int8Backend, OnnxBackend
from workers.models.export_settings import ExportConfig
from workers.models.exporting import labelled, names, to_int8, to_onnx
from workers.models.verifying import MODES, observations_of, verify
from workers.runtime.trained import load, run_in


def write(config: ExportConfig, file: Path) -> Iterator[str]:
    """Write the model, after checking that it acts as the policy does; yield lines that describe it.

    The model's metadata say how it was checked, and on which processor.

    Raises ConfigurationError for a policy that cannot be exported, a model that acts differently, and a file that
    cannot be written.
    """
    _refuse_unwritable(file)
    folder = run_in(Path(config.run))
    trained = load(folder, config.player, config.version)
    model = to_onnx(trained.policy)
    if config.int8:
        backend: OnnxBackend = Int8Backend(trained.policy, model=to_int8(model))
    else:
        backend = OnnxBackend(trained.policy, model=model)
    recorded = observations_of(trained, config.recorded)
    verdicts = [verify(backend, recorded, mode) for mode in MODES]  # a file may be used in either mode
    for verdict in verdicts:
        yield str(verdict)
        verdict.check(config.agreement)
    about = {"run": str(folder), "player": config.player, "version": trained.version, "env": trained.env_id}
    model = labelled(backend.model, {**about, "verified": [verdict.record for verdict in verdicts]})
    try:
        write_whole(file, model)
    except OSError as error:
        raise ConfigurationError(f"--to {file}: cannot be written ({error.strerror})") from None
    inputs, outputs = names(trained.policy)
    yield f"{file}: {len(model):,} bytes; {', '.join(inputs)} -> {', '.join(outputs)}"


def _refuse_unwritable(file: Path) -> None:
    """Raise ConfigurationError for a file that cannot be written: an export takes minutes, and would be lost."""
    folder = file.parent
    if not folder.is_dir():
        raise ConfigurationError(f"--to {file}: there is no folder {folder}; make it, or name another file")
    if file.is_dir():
        raise ConfigurationError(f"--to {file}: is a folder; name a file in it, as in --to {file / 'model.onnx'}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationError(f"--to {file}: nothing can be written in {folder}; name a file in a folder of yours")
