"""What every package may use: the error tree, the name registry, user code in a process of its own. Nothing else."""
