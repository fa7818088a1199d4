"""The kinds of run that a launcher starts: training and services, each with its specification and its monitor."""
