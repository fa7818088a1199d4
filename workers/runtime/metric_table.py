"""The table of all metrics that roles and launchers give to Prometheus; dashboards and alerts name no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Metric(NamedTuple):
    """A metric: its kind ("gauge" or "counter"), its meaning, and the names of its labels."""

    kind: str
    meaning: str
    labels: tuple[str, ...] = ()


# Metrics of a role's process. A launcher gives those of all its processes, each with a label `process`.
OF_ROLES: Mapping[str, Metric] = {
    "warren_info": Metric("gauge", "1, for the labels", ("run", "role", "player", "release")),
    "warren_resident_memory_bytes": Metric("gauge", "memory of the process"),
    "warren_cpu_seconds_total": Metric("counter", "processor time of the process"),
    "warren_open_files": Metric("gauge", "open file descriptors of the process"),
    "warren_started_timestamp_seconds": Metric("gauge", "start of the process, Unix time"),
    "warren_stage_seconds_total": Metric("counter", "time in a stage of the work, waits included", ("stage",)),
    "warren_weights_version": Metric("gauge", "version of the weights that it has", ("player",)),
    "warren_learner_steps_total": Metric("counter", "environment steps learned from", ("player",)),
    "warren_learner_updates_total": Metric("counter", "updates", ("player",)),
    "warren_learner_episodes_total": Metric("counter", "episodes that ended", ("player",)),
    "warren_learner_steps_per_second": Metric("gauge", "environment steps per second", ("player",)),
    "warren_learner_mean_return": Metric("gauge", "mean return of the last env.goal_episodes episodes", ("player",)),
    "warren_learner_data_age_seconds": Metric("gauge", "age of the data of an update", ("player",)),
    "warren_learner_staleness_versions": Metric("gauge", "weight versions between data and update", ("player",)),
    "warren_learner_stale_steps_total": Metric("counter", "steps dropped as too old", ("player",)),
    "warren_learner_refused_total": Metric("counter", "segments that could not be used", ("player",)),
    "warren_learner_loss": Metric("gauge", "a term of the last update", ("player", "term")),
    "warren_learner_trouble": Metric("gauge", "1 while something cannot be written", ("player",)),
    "warren_service_calls_total": Metric("counter", "calls that ran", ("service",)),
    "warren_service_failures_total": Metric("counter", "calls that failed", ("service",)),
    "warren_service_batches_total": Metric("counter", "batches of calls", ("service",)),
    "warren_service_dropped_total": Metric("counter", "calls dropped as expired or revoked", ("service",)),
    "warren_service_refused_total": Metric("counter", "messages that are no calls", ("service",)),
    "warren_service_waiting": Metric("gauge", "calls that wait in this process", ("service",)),
    "warren_service_busy_ratio": Metric("gauge", "share of the time spent in services"),
}
# Metrics of a launcher, about its host and its run.
OF_LAUNCHERS: Mapping[str, Metric] = {
    "warren_process_up": Metric("gauge", "1 while the process runs", ("process", "role")),
    "warren_process_restarts_total": Metric("counter", "restarts of the process", ("process", "role")),
    "warren_process_given_up": Metric("gauge", "1 once the process is not started again", ("process", "role")),
    "warren_process_answers": Metric("gauge", "1 if its own metrics could be read", ("process",)),
    "warren_server_away_seconds": Metric("gauge", "time for which a server has been away", ("server",)),
    "warren_queue_messages": Metric("gauge", "messages that wait", ("queue",)),
    "warren_dead_letters": Metric("gauge", "messages that failed for good"),
    "warren_run_steps_total": Metric("counter", "environment steps, as the launcher sees them", ("player",)),
    "warren_last_progress_timestamp_seconds": Metric("gauge", "last change of the steps, Unix time", ("player",)),
    "warren_disk_free_bytes": Metric("gauge", "free space of the run folder's disk"),
    "warren_disk_size_bytes": Metric("gauge", "size of the run folder's disk"),
    "warren_memory_available_bytes": Metric("gauge", "memory of the host that is free or can be freed"),
    "warren_memory_size_bytes": Metric("gauge", "memory of the host"),
}
TABLE: Mapping[str, Metric] = {**OF_ROLES, **OF_LAUNCHERS}
