"""Records for the page of messages.

filter     a closed little grammar: what to show of what is read
reading    from the newest, an offset or a time; bounded in records, bytes and time
values     bytes as text, JSON, Avro, Protobuf or hex
"""
