"""Everything that crosses a wire: the Celery app, its topology, its serializer, calls, chords and events.

Users take `tasks.service`, `tasks.solver` and `tasks.events`; the other rooms are for workers/ to put together.
"""
