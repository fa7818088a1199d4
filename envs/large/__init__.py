"""Games too large to be written out whose exploitability is exact all the same: their structure replaces the tree."""
