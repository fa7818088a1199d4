"""The lowest level of the pyramid: functions and blocks that know nothing of a policy or an algorithm."""
