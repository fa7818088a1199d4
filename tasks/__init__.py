"""Everything that crosses a wire: the Celery app, its topology, its serializer, calls, chords and events."""
