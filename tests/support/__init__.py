"""Helpers and fixtures that tests share, and programs that they start as processes."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent  # the folder of the programs
