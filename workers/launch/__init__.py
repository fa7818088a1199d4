"""Starting and ending runs: processes watched and restarted, hosts, scaling, cleaning up.

Only entries import this.
"""
