"""The hash of a key by which Kafka's Java clients choose a partition, for one key at a time.

    partition = (murmur2(key) & 0x7FFFFFFF) % number of partitions

For columns of keys use `records.native`; this needs only Python.
"""


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with the seed of Kafka's Java clients, as a signed number."""
    mix, mask, whole = 0x5BD1E995, 0xFFFFFFFF, len(data) & ~3
    digest = 0x9747B28C ^ len(data)
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * mix & mask
        digest = digest * mix & mask ^ (word ^ word >> 24) * mix & mask
    if rest := data[whole:]:
        digest = (digest ^ int.from_bytes(rest, "little")) * mix & mask
    digest = (digest ^ digest >> 13) * mix & mask
    digest ^= digest >> 15
    return digest - (digest >> 31 << 32)
