"""Writes crates/postrider/tests/schema/cases.ndjson: schemas of the supported keywords, values, and what an independent validator
(jsonschema 4.26 for Python, draft 2020-12) says of them. Needs `pip install jsonschema==4.26.0`.

The seed is fixed, so the same cases come out again. Python reads \\w, \\d and a closing $ in other ways than ECMA-262 does: such
patterns are not among these cases.
"""

import json
import pathlib
import random

from jsonschema import Draft202012Validator

CASES = 2400
SCALARS = [None, True, False, 0, 1, 1.0, -1, 2, 3, 3.5, 0.5, 10, 1e3, 100000000000, "", "a", "ab", "abc", "a b", "\u00e9",
           "\U0001f600", "x1", "2024-01-02", "a/b~c"]
NAMES = "abcd~/"
PATTERNS = ["^a", "^[a-c]+", "^[0-9]{4}-[0-9]{2}", "a|b", "^(ab)?c?", "[^a]", "^..", "\\.", "^(?:a|b){1,2}", "[0-9\\-]", "/", "a b"]
TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"]

dice = random.Random(20261130)


def maybe(chance):
    return dice.random() < chance


def value(level=0):
    kind = dice.random()
    if level > 2 or kind < 0.45:
        return dice.choice(SCALARS)
    if kind < 0.7:
        items = [value(level + 1) for _ in range(dice.randint(0, 3))]
        return items + items[:1] if maybe(0.3) else items
    return {dice.choice(NAMES): value(level + 1) for _ in range(dice.randint(0, 4))}


PLAIN = {
    "type": (0.45, lambda: dice.choice(TYPES + [["string", "null"], ["integer", "object"], ["array", "object"]])),
    "enum": (0.07, lambda: [value(1) for _ in range(dice.randint(1, 4))]),
    "const": (0.05, lambda: value(1)),
    "required": (0.15, lambda: dice.sample("abcd", dice.randint(0, 2))),
    "minimum": (0.08, lambda: dice.choice([0, 1, 2.5, -1])),
    "maximum": (0.08, lambda: dice.choice([0, 1, 2.5, 100])),
    "exclusiveMinimum": (0.06, lambda: dice.choice([0, 1])),
    "exclusiveMaximum": (0.06, lambda: dice.choice([1, 3.5])),
    "multipleOf": (0.07, lambda: dice.choice([1, 2, 0.5, 3])),
    "minLength": (0.08, lambda: dice.choice([0, 1, 2])),
    "maxLength": (0.08, lambda: dice.choice([0, 1, 2, 3])),
    "pattern": (0.1, lambda: dice.choice(PATTERNS)),
    "minItems": (0.07, lambda: dice.choice([0, 1, 2])),
    "maxItems": (0.07, lambda: dice.choice([0, 1, 2])),
    "uniqueItems": (0.07, lambda: dice.choice([True, False])),
    "minProperties": (0.07, lambda: dice.choice([0, 1, 2])),
    "maxProperties": (0.07, lambda: dice.choice([0, 1, 2])),
    "title": (0.03, lambda: "a title"),
}


def schema(level, refs):
    if maybe(0.06):
        return maybe(0.5)
    made = {name: give() for name, (chance, give) in PLAIN.items() if maybe(chance)}
    if level < 2:
        if maybe(0.4):
            made["properties"] = {name: schema(level + 1, refs) for name in dice.sample(NAMES, dice.randint(0, 3))}
        for name in ("additionalProperties", "items", "not"):
            if maybe(0.12):
                made[name] = schema(level + 1, refs)
        for name in ("allOf", "anyOf", "oneOf"):
            if maybe(0.12):
                made[name] = [schema(level + 1, refs) for _ in range(dice.randint(1, 3))]
    if refs and maybe(0.12):
        made["$ref"] = "#/$defs/" + dice.choice(refs)
    return made


# which values a keyword says something about; of those that are not listed, all
ABOUT = {dict: {"required", "minProperties", "maxProperties"}, list: {"minItems", "maxItems", "uniqueItems"},
         str: {"minLength", "maxLength", "pattern"},
         (int, float): {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}


def focused():
    """A schema of one or two keywords, and a value that they are about."""
    names = dice.sample(sorted(PLAIN), dice.randint(1, 2))
    kinds = [kind for kind, about in ABOUT.items() if about & set(names)]
    data = value()
    while kinds and (not isinstance(data, kinds[0]) or isinstance(data, bool)):
        data = value()
    return {name: PLAIN[name][1]() for name in names}, data


def document():
    made = schema(0, ["x", "y"])
    if isinstance(made, dict) and "$ref" in json.dumps(made):
        made["$defs"] = {"x": schema(1, ["y"]), "y": schema(2, [])}
    return made


def cases():
    found = {True: [], False: []}
    while min(map(len, found.values())) < CASES // 2:
        asked, data = focused() if maybe(0.35) else (document(), value())
        if len(json.dumps(asked)) > 400:
            continue
        fits = Draft202012Validator(asked).is_valid(data)
        if len(found[fits]) < CASES // 2:
            found[fits].append({"schema": asked, "data": data, "fits": fits})
    return found[True] + found[False]


target = pathlib.Path(__file__).parent.parent / "crates/postrider/tests/schema/cases.ndjson"
target.write_text("".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases()), encoding="utf-8")
