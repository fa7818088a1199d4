"""Games too large to be written out, whose exploitability is still exact: their structure replaces the tree."""
