"""From JSON as the API server sends it to the records of `core`, without ever building the whole object.

msgspec decodes into structs that name only the fields that are read, so a pod of 8 KB becomes a record of a few hundred
bytes in some 40 µs, and what `core` does not read does not exist in this process. Each module has one decoder per kind;
decoders raise msgspec.ValidationError, whose message carries the path of the field.
"""
