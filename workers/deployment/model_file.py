"""An ONNX model of a trained policy, in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from warren.errors import ConfigurationError
from warren.files import write_whole
from workers.deployment.backends import Int8Backend, OnnxBackend
from workers.deployment.exporting import names, to_int8, to_onnx
from workers.deployment.settings import ExportConfig
from workers.deployment.verifying import observations_of, verify
from workers.runtime.trained import load, run_in


def write(config: ExportConfig, file: Path) -> Iterator[str]:
    """Write the model, once it acts as the policy does; lines that say what it is.

    Raises ConfigurationError for what cannot be exported, or acts otherwise, and for a file that cannot be written.
    """
    folder = run_in(Path(config.run))
    trained = load(folder, config.player, config.version)
    about = {"run": str(folder), "player": config.player, "version": trained.version, "env": trained.env_id}
    model = to_onnx(trained.policy, about)
    if config.int8:
        backend: OnnxBackend = Int8Backend(trained.policy, model=to_int8(model))
    else:
        backend = OnnxBackend(trained.policy, model=model)
    verdict = verify(backend, observations_of(trained, config.recorded))
    yield str(verdict)
    verdict.check(config.agreement)
    try:
        write_whole(file, backend.model)
    except OSError as error:
        raise ConfigurationError(f"--to {file}: cannot be written ({error.strerror})") from None
    inputs, outputs = names(trained.policy)
    yield f"{file}: {len(backend.model):,} bytes; {', '.join(inputs)} -> {', '.join(outputs)}"
