"""Ranks: several learners of one player that hold the same weights and average their gradients by ring-allreduce.

Other modules use `ranks.Ranks` and `ring.RanksChanged`. `ring` is the interface of a backend, implemented by
`torch_ring` and `horovod_ring`; `compression` makes gradients smaller on their way through it. `membership` keeps the
list of living ranks in Redis, and forms the next ring when it changes.
"""
