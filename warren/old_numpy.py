"""Names that numpy 2 dropped and old gym uses: gym 0.26.2 asks for `np.bool8` in every step that it checks.

Code that imports a user's module restores them first, as the module may import gym by itself.
"""

from __future__ import annotations

import numpy as np

NAMES = {"bool8": np.bool_, "float_": np.float64}


def restore_names() -> None:
    """Set the names that this numpy lacks."""
    for name, kind in NAMES.items():
        if not hasattr(np, name):
            setattr(np, name, kind)
