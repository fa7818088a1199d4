"""Programs that measure other systems, each run by the Python of an environment that has that system."""
