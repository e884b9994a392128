"""Writes the CRDs and the field reference from the structs of `recovery.core`. For developers: nothing else imports it.

`python -m recovery.crds` writes, `--check` names what has drifted. What a struct cannot say (limits, CEL rules, fields
that are declared and not built) stands in `policy_overlay`, `config_overlay` and `ledger_schemas`, each
by the path of its field.
"""
