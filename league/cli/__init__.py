"""The league's command lines: show, manage, models, replay.

Nothing else imports these; `python -m league.NAME` starts them.
"""
