"""What every package may use: the error tree and the name registry. Nothing else lives here."""
