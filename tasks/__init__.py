"""Everything that crosses a wire: the Celery app, its topology, its serializer, calls, chords and events.

Users import `tasks.service`, `tasks.solver` and `tasks.events`; workers/ puts the other packages together.
"""
