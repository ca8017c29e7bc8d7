"""The hash of a key, by which Kafka's Java clients choose a partition, for one key at a time.

    partition = (murmur2(key) & 0x7FFFFFFF) % number of partitions

Columns of keys are for `records.native`; this needs nothing but Python.
"""


def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits with the seed that Kafka's Java clients have, as a signed number."""
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
