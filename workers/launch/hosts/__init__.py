"""The hosts of a run: leases of their launchers, leader and followers, numbers of processes."""
