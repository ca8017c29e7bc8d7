"""Records for the Messages page.

filter     a small filter language: which records to show
reading    from the newest, an offset or a time; bounded in records, bytes and time
values     bytes as text, JSON, Avro, Protobuf or hex
"""
