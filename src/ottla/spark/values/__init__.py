"""Record values as Spark columns: JSON, Avro and Protobuf, with or without the header of a schema registry. No JAR.

    registry = Registry("http://registry:8081")
    orders = spark.read.format("ottla")...load()
    orders.select(avro.decode("value", registry.latest("orders-value")).alias("order")).select("order.*")
    frame.select(avro.encode(F.struct("id", "total"), registry.register("orders-value", "order.avsc")).alias("value"))

registry    schemas by id or by subject, and registering; each id is fetched once per process
header      the five bytes before a value that name its schema
outcome     what happens to bytes that cannot be read: null, null with a reason, or a failed query
avro        on fastavro;          avro_schema: a schema as a Spark type, avro_rows: Arrow and Python values
protobuf    on Google's runtime;  protobuf_schema: descriptors from a registry, a file or protoc, protobuf_rows
json        on Spark's own from_json and to_json; json_schema: JSON Schema as a Spark type
"""

from ottla.spark.values.registry import Registered, Registry

__all__ = ["Registered", "Registry"]
