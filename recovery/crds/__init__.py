"""Generates the CRDs and the field reference from the structs of `recovery.core`. For developers: nothing imports it.

`python -m recovery.crds` writes the files, and `--check` names those that have drifted. What a struct cannot express
(limits, CEL rules) is in `policy_overlay`, `config_overlay` and
`ledger_schemas`, by the path of the field.
"""
