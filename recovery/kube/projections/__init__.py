"""Decodes the API server's JSON into the records of `core`, without ever building the whole object.

msgspec decodes into structs that name only the fields that are read, so a pod of 8 KB becomes a record of a few hundred
bytes in some 40 µs. Fields that `core` does not read take no memory in this process. Each module has one decoder per
kind. Decoders raise msgspec.ValidationError, whose message names the path of the field.
"""
