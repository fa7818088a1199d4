"""The places of a launcher's run among machines: its lease, who leads and who follows, how many processes each has."""
