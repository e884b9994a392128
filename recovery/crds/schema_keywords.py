"""Keywords of a schema that several fields share: durations, names, bounds of numbers, CEL rules."""

from recovery.crds.schema import RULES, Schema

DURATION = "^([0-9]{1,5}h)?([0-9]{1,7}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$"
"""What `core.model.durations.parse_duration` reads. It also matches an empty text, which `minLength` refuses."""
DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
INT32_MAX = 2**31 - 1


def rule(cel: str, message: str, field_path: str = "") -> Schema:
    """A CEL rule. `field_path`: the path of the invalid field, if that is not the field with the rule."""
    return {"rule": cel, **({"fieldPath": field_path} if field_path else {}), "message": message}


def text(description: str = "", *, longest: int, pattern: str = "", shortest: int = 1) -> Schema:
    schema: Schema = {"type": "string", "maxLength": longest}
    if description:
        schema["description"] = description
    if shortest:
        schema["minLength"] = shortest
    return schema | ({"pattern": pattern} if pattern else {})


def one_of(*values: str, description: str = "", default: str = "") -> Schema:
    schema: Schema = {"type": "string", "enum": list(values)}
    return schema | ({"description": description} if description else {}) | ({"default": default} if default else {})


def integer(least: int, most: int) -> Schema:
    """Bounds and format of an int32."""
    return {"type": "integer", "format": "int32", "minimum": least, "maximum": most}


def limits(longest: int, *, pattern: str = "") -> Schema:
    """Limits of a text that is not empty. The struct provides its type."""
    return {"minLength": 1, "maxLength": longest} | ({"pattern": pattern} if pattern else {})


def sized(most: int, *, least: int = 0, unique: bool = False) -> Schema:
    """Limits of a list. The struct provides its type."""
    kind: Schema = {"x-kubernetes-list-type": "set"} if unique else {}
    return {"maxItems": most} | ({"minItems": least} if least else {}) | kind


def bounded_duration(*rules: Schema) -> Schema:
    """Limits of a duration. A CEL rule explains in words what is wrong, which a `pattern` does not."""
    format_rule = rule(f"self.matches('{DURATION}')", "not a duration; write it like 24h, 15m, 10s or 500ms")
    return {"minLength": 2, "maxLength": 16, RULES: [format_rule, *rules]}


def longer_than_nothing(why: str) -> Schema:
    return rule("!self.matches('^[0hms]*$')", f"must be longer than 0s, or {why}")


def no_longer_than(longest: str, because: str) -> Schema:
    """A CEL rule for the longest duration. Another rule reports a text that is not a duration: duration() would only
    fail on it again."""
    cel = f"!self.matches('{DURATION}') || duration(self) <= duration('{longest}')"
    return rule(cel, f"must not be longer than {longest}: {because}")
