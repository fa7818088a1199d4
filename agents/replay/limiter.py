"""Limiter: how many sequences are drawn for each stored step, limited as by Reverb's SampleToInsertRatio."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Limiter:
    """Keeps `samples_per_insert * inserts - samples` within `error_buffer` of its value when drawing begins.

    Inserts are environment steps, samples drawn sequences. Drawing begins at `begin_at` inserts. Too many inserts wait
    for samples, too many samples for inserts. See Cassirer et al. 2021 (Reverb), section 3.4.
    """

    samples_per_insert: float
    begin_at: int
    error_buffer: float = 0.0
    inserts: int = 0
    samples: int = 0

    @property
    def ahead(self) -> float:
        """Samples that the inserts pay for, beyond those that were drawn and those before drawing begins."""
        return self.samples_per_insert * (self.inserts - self.begin_at) - self.samples

    def may_insert(self, steps: int) -> bool:
        """Return True where `steps` more may be stored before others are drawn."""
        if self.inserts + steps < self.begin_at:
            return True
        return self.ahead + self.samples_per_insert * steps <= self.error_buffer

    def may_sample(self, slots: int) -> bool:
        """Return True where `slots` more sequences may be drawn before others are stored."""
        return self.inserts >= self.begin_at and self.ahead - slots >= -self.error_buffer
