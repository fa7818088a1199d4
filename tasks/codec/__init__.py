"""Values into bytes and back, safely: the wire format, and claim checks for what is too long for a message.

Other packages use `encode`, `decode`, `register` and `NAME`. Knows nothing of brokers, clients or workers.
"""

from tasks.codec.serializer import CONTENT_TYPE, NAME, STORED, decode, encode, register

__all__ = ["CONTENT_TYPE", "NAME", "STORED", "decode", "encode", "register"]
