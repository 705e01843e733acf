"""Whether a value fits a JSON Schema, and whether any value can.

The library matches patterns by `re`, which may take hours, and compares items of an array with one another: both are
done here in another way. The schemas are checked ones: they are small, and refer to themselves only within a value.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, cast
from urllib.parse import unquote

from massmem.core.patterns import PatternError, compile_pattern

Json = Mapping[str, Any]
_Above = frozenset[frozenset[int]]
"""The schemas, by their ids, that each of the values around a value has to fit."""

DRAFTS = {
    "draft-04/schema": "Draft4Validator",
    "draft-06/schema": "Draft6Validator",
    "draft-07/schema": "Draft7Validator",
    "draft/2019-09/schema": "Draft201909Validator",
    "draft/2020-12/schema": (_NEWEST := "Draft202012Validator"),
}
"""How the `$schema` of a draft ends, and what the library calls its validator."""
_MAX_PROBLEM = 500
"""Characters of why a value does not fit: the library quotes the value."""


class Comparison:
    """Compares values with a checked schema and with its parts, until a time is over."""

    def __init__(self, root: Json, seconds: float) -> None:
        from referencing import Registry

        named = str(root.get("$schema")).rstrip("#")
        kind = _adapt_validator(next((kind for draft, kind in DRAFTS.items() if named.endswith(draft)), _NEWEST))
        self.keywords = frozenset(kind.VALIDATORS)
        """Those that the schema's draft has."""
        self.root = {name: value for name, value in root.items() if name not in ("$schema", "$id", "id")}
        self._validator = kind(self.root, registry=Registry[Any](), format_checker=_build_clock(seconds))

    def explain(self, value: Any, part: Any = None) -> str:
        """Return why a value does not fit, "" when it does. part: of the schema; None: all of it.

        Raises TimeoutError: the time is over. Raises RecursionError: the value is nested too deeply.
        """
        validator = self._validator if part is None else self._validator.evolve(schema=part)
        error = next(validator.iter_errors(value), None)
        if error is None:
            return ""
        where = "/".join(map(str, error.absolute_path))
        return f"{error.message[:_MAX_PROBLEM]}{f' (at {where})' if where else ''}"


def _build_clock(seconds: float) -> Any:
    """Return what tells the keywords when the time is over. The library hands its checker of formats to each of them;
    formats themselves are not checked."""
    from jsonschema import FormatChecker

    class Clock(FormatChecker):
        end = time.monotonic() + seconds

        def check(self, instance: object, format: str) -> None:
            del instance, format

    return Clock()


@cache
def _adapt_validator(name: str) -> Any:
    """Return the library's validator of a draft with keywords that take no longer than their values are large."""
    from jsonschema import validators

    kind: Any = getattr(validators, name)
    own: dict[str, Callable[..., Any]] = {
        "pattern": _check_pattern,
        "patternProperties": _check_named,
        "additionalProperties": _check_additional,
        "uniqueItems": _check_unique,
        "multipleOf": _check_multiple,
    }
    known: dict[str, Callable[..., Any]] = kind.VALIDATORS
    watched = {name: _watch(own.get(name, check)) for name, check in known.items()}
    return cast("Any", validators).extend(kind, watched)


def _watch(check: Callable[..., Any]) -> Callable[..., Any]:
    def check_in_time(validator: Any, value: Any, instance: Any, schema: Json) -> Any:
        if time.monotonic() > validator.format_checker.end:
            raise TimeoutError
        return check(validator, value, instance, schema)

    return check_in_time


def _matches(pattern: str, text: str) -> bool:
    return compile_pattern(pattern, javascript=True).search(text) is not None


def _check_pattern(_: Any, pattern: str, instance: Any, __: Json) -> Iterator[Any]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield _build_error(f"{instance!r} does not match {pattern!r}")


def _check_named(validator: Any, named: Json, instance: Any, _: Json) -> Iterator[Any]:
    for pattern, schema in named.items() if isinstance(instance, dict) else ():
        for name, value in cast("Json", instance).items():
            if _matches(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _check_additional(validator: Any, more: Any, instance: Any, schema: Json) -> Iterator[Any]:
    for name, value in cast("Json", instance).items() if isinstance(instance, dict) else ():
        if is_additional(name, schema):
            if more is False:
                yield _build_error(f"{name!r} is not one of the properties, and there may be no others")
            else:
                yield from validator.descend(value, more, path=name)


def is_additional(name: str, schema: Json) -> bool:
    """Whether a schema has nothing for a property of this name but `additionalProperties`."""
    return name not in schema.get("properties", ()) and not any(
        _matches(pattern, name) for pattern in schema.get("patternProperties", ())
    )


def _check_unique(_: Any, must_be: bool, instance: Any, __: Json) -> Iterator[Any]:
    if must_be and isinstance(instance, list):
        items = cast("list[Any]", instance)
        if len({write_plainly(item) for item in items}) < len(items):
            yield _build_error("an item stands there twice")


def _check_multiple(_: Any, factor: float, instance: Any, __: Json) -> Iterator[Any]:
    """As decimal numbers: 19.99 is a multiple of 0.01."""
    is_number = isinstance(instance, int | float) and not isinstance(instance, bool)
    if is_number and (_to_fraction(instance) / _to_fraction(factor)).denominator != 1:
        yield _build_error(f"{instance!r} is not a multiple of {factor}")


def _build_error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _to_fraction(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def write_plainly(value: Any) -> str:
    """Return a value as JSON, equal for values that JSON Schema takes for equal: 1 and 1.0, but not 1 and true."""
    return json.dumps(_make_plain(value), sort_keys=True)


def _make_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _make_plain(inner) for name, inner in cast("Json", value).items()}
    if isinstance(value, list):
        return [_make_plain(inner) for inner in cast("list[Any]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def resolve(root: Json, reference: str) -> Any:
    """Return what a reference within the schema points to. Raises LookupError, ValueError: there is no such place."""
    place: Any = root
    for step in unquote(reference[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(place, dict | list):
            raise LookupError(name)
        place = cast("Any", place)[int(name) if isinstance(place, list) else name]
    return place


REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
"""Keywords whose schemas are about the same value as the schema that they stand in."""

_KINDS = frozenset({"null", "boolean", "string", "array", "object", "number", "integer"})
_ALONE = frozenset({
    *("type", "enum", "const", "multipleOf", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"),
    *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required"),
    *("properties", "patternProperties", "propertyNames", "dependentRequired", "allOf", "anyOf", "oneOf", "not"),
    *("pattern", "$ref"),
})  # fmt: skip
"""Keywords that mean the same whatever stands beside them."""
_MAX_STEPS, _SECONDS = 100_000, 0.1
"""Schemas that are looked at, and seconds: what is not decided then counts as possible."""
_MAX_EXACT = 2**53
"""Above it a number may be written in other words than it is compared in."""
_MAX_WHOLE_NUMBERS = 100
"""Whole numbers between two bounds that are tried one by one."""


def find_contradiction(root: Json) -> str:
    """Return why no value fits a checked schema, "" when one may. A schema that some value fits is never accused."""
    finder = _Finder(Comparison(root, _SECONDS))
    try:
        return finder.find([finder.root], "", frozenset()) or ""
    except (TimeoutError, RecursionError, PatternError):
        return ""


class _Finder:
    """Looks for the reason why no value fits. Each method returns one, or None when a value may fit."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self.root = comparison.root
        self._knows = comparison.keywords
        self._steps = _MAX_STEPS
        self._possible = set[frozenset[int]]()
        """Schemas that a value may fit. Reasons why not are not kept: they may be those of a value around it."""
        self._end = time.monotonic() + _SECONDS

    def find(self, schemas: Sequence[Any], where: str, above: _Above) -> str | None:
        """schemas: those that one value has to fit. A value that has to hold one that fits the same has no end."""
        key = frozenset(id(schema) for schema in schemas if schema is not True)
        if key in above:
            return f"{_name(where)} would have to hold itself without end"
        if not key or key in self._possible:
            return None
        reason = self._find_here(schemas, where, above | {key}, frozenset())
        if reason is None:
            self._possible.add(key)
        return reason

    def _find_here(self, schemas: Sequence[Any], where: str, above: _Above, chosen: frozenset[int]) -> str | None:
        """chosen: lists of alternatives of which one is among the schemas, by their ids."""
        parts = self._join(schemas)
        if parts is None:
            return f"no value is allowed for {_name(where)}"
        self._spend(len(parts))
        if reason := self._refute_parts(parts, where, above):
            return reason
        choices = {key: options for key, options in self._list_choices(parts) if key not in chosen}
        for options in choices.values():
            reason = f"no alternative is left for {_name(where)}"
            for option in options:
                reason = self._find_here([*schemas, *option], where, above, chosen | choices.keys())
                if reason is None:
                    break
            if reason is not None:
                return reason
        return None

    def _refute_parts(self, parts: Sequence[Json], where: str, above: _Above) -> str | None:
        if self._is_excluded(parts):
            return f"`not` forbids all that {_name(where)} may be"
        reason = f"no type is left for {_name(where)}"
        for kind in self._list_kinds(parts):
            reason = self._refute(kind, parts, where, above)
            if reason is None:
                break
        values = self._list_values(parts) if reason is None else None
        if values is not None and not any(self._fits(value, parts) for value in values):
            return f"none of the values that {_name(where)} is left with fits all that is said"
        return reason

    def _spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0 or time.monotonic() > self._end:
            raise TimeoutError

    def _join(self, schemas: Sequence[Any]) -> list[Json] | None:
        """Return all that a value has to fit, with what references and `allOf` bring; None when `false` is among it."""
        parts: list[Json] = []
        rows, seen = list(schemas), set[int]()
        refers_alone = "unevaluatedItems" not in self._knows
        while rows:
            part = rows.pop()
            if part is False:
                return None
            if part is True or id(part) in seen:
                continue
            seen.add(id(part))
            targets = [resolve(self.root, part[name]) for name in REFERENCES if name in part and name in self._knows]
            rows += targets
            if targets and refers_alone:
                continue  # older drafts read nothing beside a reference
            parts.append(part)
            rows += part.get("allOf", ())
            rows += [options[0] for name in ("anyOf", "oneOf") if len(options := part.get(name, ())) == 1]
            excluded = part.get("not")
            rows += [excluded["not"]] if isinstance(excluded, dict) and [*excluded] == ["not"] else []
        return parts

    def _get(self, parts: Sequence[Json], name: str) -> list[Any]:
        return [part[name] for part in parts if name in part] if name in self._knows else []

    def _is_excluded(self, parts: Sequence[Json]) -> bool:
        """Whether a `not` is about something that always is so."""
        for excluded in self._get(parts, "not"):
            if excluded is False:
                continue
            self._spend(len(parts))
            excluding = cast("Json", {} if excluded is True else excluded)
            facts = {name: value for name, value in excluding.items() if name in self._knows}
            is_plain = facts.keys() <= _ALONE and not any(
                facts.get(f"exclusive{m}imum") is True for m in ("Min", "Max")
            )
            if is_plain and all(
                any(write_plainly(other) == write_plainly(value) for other in self._get(parts, name))
                for name, value in facts.items()
            ):
                return True
        return False

    def _list_kinds(self, parts: Sequence[Json]) -> list[str]:
        """Return the types that a value may have. Whole numbers are among the numbers."""
        kinds = set(_KINDS)
        for named in self._get(parts, "type"):
            kinds &= _list_types(named)
        for excluded in self._get(parts, "not"):
            if isinstance(excluded, dict) and [*excluded] == ["type"]:
                kinds -= _list_types(cast("Json", excluded)["type"])
        return sorted(kinds - {"integer"} if "number" in kinds else kinds)

    def _list_values(self, parts: Sequence[Json]) -> list[Any] | None:
        """Return all values that there can be at most, None when there may be many."""
        if choices := [[value] for value in self._get(parts, "const")] + self._get(parts, "enum"):
            return min(choices, key=len)
        values: list[Any] = []
        for kind in self._list_kinds(parts):
            match kind:
                case "null":
                    values.append(None)
                case "boolean":
                    values += [False, True]
                case "string" if 0 in self._get(parts, "maxLength"):
                    values.append("")
                case "array" if 0 in self._get(parts, "maxItems"):
                    values.append([])
                case "object" if 0 in self._get(parts, "maxProperties"):
                    values.append({})
                case "integer" if (low := self._find_bound(parts, 1)) and (high := self._find_bound(parts, -1)):
                    first, last = math.ceil(low[0]), math.floor(-high[0])
                    if last - first >= _MAX_WHOLE_NUMBERS:
                        return None
                    values += range(first, last + 1)
                case _:
                    return None
        return values

    def _fits(self, value: Any, parts: Sequence[Json]) -> bool:
        return not any(self._comparison.explain(value, part) for part in parts)

    def _list_choices(self, parts: Sequence[Json]) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
        """Yield lists of alternatives, of which a value has to fit one, with their ids."""
        for part in parts:
            for name in ("anyOf", "oneOf"):
                options: list[Any] = part.get(name, [])
                if name == "oneOf":  # of two equal ones, neither can be the only one that fits
                    counts = Counter(texts := [*map(write_plainly, options)])
                    options = [option for option, text in zip(options, texts, strict=True) if counts[text] == 1]
                if name in part:
                    yield id(part[name]), [(option,) for option in options]
            if "if" in part and "if" in self._knows:
                otherwise = [] if part["if"] in (True, {}) else [(part.get("else", True),)]
                yield id(part), [(part["if"], part.get("then", True)), *otherwise]

    def _refute(self, kind: str, parts: Sequence[Json], where: str, above: _Above) -> str | None:
        match kind:
            case "string":
                return self._refute_size(parts, where, "Length")
            case "number" | "integer":
                return self._refute_number(parts, where, is_whole=kind == "integer")
            case "array":
                return self._refute_size(parts, where, "Items") or self._refute_array(parts, where, above)
            case "object":
                return self._refute_size(parts, where, "Properties") or self._refute_object(parts, where, above)
            case _:
                return None

    def _refute_size(self, parts: Sequence[Json], where: str, of: str) -> str | None:
        low, high = max(self._get(parts, f"min{of}"), default=0), min(self._get(parts, f"max{of}"), default=math.inf)
        return f"{_name(where)} has a min{of} of {low} above its max{of} of {high}" if low > high else None

    def _find_bound(self, parts: Sequence[Json], sign: int) -> tuple[Fraction, bool] | None:
        """Return the least that a number may be, and whether it has to be above that. sign -1: of its opposite."""
        name = "Minimum" if sign > 0 else "Maximum"
        bounds = [(sign * _to_fraction(value), False) for value in self._get(parts, name.lower())]
        above = [value for value in self._get(parts, f"exclusive{name}") if not isinstance(value, bool)]  # draft 4
        return max([*bounds, *((sign * _to_fraction(value), True) for value in above)], default=None)

    def _refute_number(self, parts: Sequence[Json], where: str, *, is_whole: bool) -> str | None:
        low, high = self._find_bound(parts, 1), self._find_bound(parts, -1)
        if low is None or high is None or max(abs(low[0]), abs(high[0])) > _MAX_EXACT:
            return None
        first, last = low[0], -high[0]
        if first > last or (first == last and (low[1] or high[1])):
            return f"{_name(where)} has a minimum of {float(first):g} above its maximum of {float(last):g}"
        for factor in [*map(_to_fraction, self._get(parts, "multipleOf")), *[Fraction(1)] * is_whole]:
            number = math.ceil(first / factor) * factor
            number += factor if low[1] and number == first else 0
            if number > last or (high[1] and number == last):
                return f"{_name(where)} has no multiple of {float(factor):g} from {float(first):g} to {float(last):g}"
        return None

    def _refute_array(self, parts: Sequence[Json], where: str, above: _Above) -> str | None:
        least = max(self._get(parts, "minItems"), default=0)
        rows = [self._split_items(part) for part in parts]
        longest = max((len(prefix) for prefix, _ in rows), default=0)
        others = [rest for _, rest in rows]
        for part in parts if "contains" in self._knows else ():
            if "contains" not in part:
                continue
            count = part.get("minContains", 1) if "unevaluatedItems" in self._knows else 1
            least = max(least, count)
            inner = [part["contains"], *([] if longest else others)]
            if count and (reason := self.find(inner, f"{where}/[contained]", above)):
                return reason
            if "unevaluatedItems" in self._knows and count > part.get("maxContains", math.inf):
                return f"{_name(where)} has a minContains above its maxContains"
        if least > (most := min(self._get(parts, "maxItems"), default=math.inf)):
            return f"{_name(where)} has to hold {least} items, and may hold {most}"
        for number in range(min(least, longest + 1)):
            inner = [prefix[number] if number < len(prefix) else rest for prefix, rest in rows]
            if reason := self.find(inner, f"{where}/{number}", above):
                return reason
        if any(self._get(parts, "uniqueItems")) and not longest and least > 1:
            count = self._count_values(others)
            if count is not None and count < least:
                return f"{_name(where)} has to hold {least} different items, and there are {count}"
        return None

    def _split_items(self, part: Json) -> tuple[list[Any], Any]:
        """Return the schemas of the first items, and that of all others."""
        items = part.get("items", True)
        if "prefixItems" in self._knows:
            return part.get("prefixItems", []), items
        return (cast("list[Any]", items), part.get("additionalItems", True)) if isinstance(items, list) else ([], items)

    def _count_values(self, schemas: Sequence[Any]) -> int | None:
        """Return how many values fit at most, None when there may be many."""
        parts = self._join(schemas)
        values = None if parts is None else self._list_values(parts)
        if parts is None or values is None:
            return None
        return len({write_plainly(value) for value in values if self._fits(value, parts)})

    def _refute_object(self, parts: Sequence[Json], where: str, above: _Above) -> str | None:
        required = {name for names in self._get(parts, "required") for name in names}
        brought: list[Any] = [
            {"required": more} if isinstance(more, list) else more
            for keyword in ("dependentRequired", "dependentSchemas", "dependencies")
            for by_name in self._get(parts, keyword)
            for name, more in by_name.items()
            if name in required
        ]
        if (joined := self._join([*parts, *brought])) is None:
            return f"no value is allowed for {_name(where)} with the properties that it has to have"
        parts = joined
        required = {name for names in self._get(parts, "required") for name in names}
        for name in sorted(required):
            place = f"{where}/{name}"
            if any(self._comparison.explain(name, naming) for naming in self._get(parts, "propertyNames")):
                return f"{_name(place)} is required, and propertyNames forbids its name"
            if reason := self.find(self._list_property(parts, name), place, above):
                return reason
        if len(required) > (most := min(self._get(parts, "maxProperties"), default=math.inf)):
            return f"{_name(where)} has {len(required)} required properties, and a maxProperties of {most}"
        least = max(self._get(parts, "minProperties"), default=0)
        for part in parts if least > len(required) else ():
            count = self._count_names(part, parts, where, above)
            if count is not None and count < least:
                return f"{_name(where)} has a minProperties of {least}, and {count} can be there"
        return None

    def _count_names(self, part: Json, parts: Sequence[Json], where: str, above: _Above) -> int | None:
        """Return how many properties a part allows at most, None when there may be many."""
        naming = part.get("propertyNames", True) if "propertyNames" in self._knows else True
        names: list[Any] | None = [] if naming is False else None
        if isinstance(naming, dict):
            names = self._list_values([cast("Json", naming)])
        is_listed = "additionalProperties" in part and "patternProperties" not in part
        if is_listed and self.find([part["additionalProperties"]], f"{where}/[others]", above):
            own = [*part.get("properties", {})]
            names = own if names is None else [name for name in own if name in names]
        if names is None:
            return None
        possible = {name for name in names if isinstance(name, str)}
        return sum(not self.find(self._list_property(parts, name), f"{where}/{name}", above) for name in possible)

    def _list_property(self, parts: Sequence[Json], name: str) -> list[Any]:
        """Return the schemas that a property of this name has to fit."""
        self._spend(len(parts))
        schemas: list[Any] = []
        for part in parts:
            own = part.get("properties", {})
            schemas += [own[name]] if name in own else []
            schemas += [s for text, s in part.get("patternProperties", {}).items() if _matches(text, name)]
            if is_additional(name, part):
                schemas += [part["additionalProperties"]] if "additionalProperties" in part else []
                closes = part.get("unevaluatedProperties") is False and "unevaluatedProperties" in self._knows
                is_alone = part.keys().isdisjoint((*SAME_VALUE, *REFERENCES, "additionalProperties"))
                schemas += [False] if closes and is_alone else []
        return schemas


def _list_types(named: str | list[str]) -> set[str]:
    names = {named} if isinstance(named, str) else {*named}
    return names | {"integer"} if "number" in names else names


def _name(where: str) -> str:
    return where.lstrip("/") or "the whole value"
