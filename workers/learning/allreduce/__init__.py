"""Ranks: several learners of one player that hold the same weights and average their gradients by ring-allreduce.

Others take `ranks.Ranks` and `ring.RanksChanged`. `ring` is the interface of a backend, `torch_ring` and `horovod_ring`
are the two there are, `compression` is what of a gradient goes through one; `membership` says in Redis who lives, and
forms the next ring when that changes.
"""
