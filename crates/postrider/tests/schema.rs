//! The data of an event against the schema of its type: the verdict of an independent validator, and what is read by hand.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test asks the database itself")]

use postrider_testkit::TestDb;
use serde_json::{Value, json};
use sqlx::PgPool;

/// What does not fit, if anything; an error if the schema is none that can be checked.
async fn verdict(pool: &PgPool, schema: &Value, data: &Value) -> Result<Option<String>, String> {
    let sql = "select postrider.schema_error(postrider.compile_schema(s, s), $2::text::jsonb) from (select $1::text::jsonb) x (s)";
    let asked = sqlx::query_scalar(sql).bind(schema.to_string()).bind(data.to_string()).fetch_one(pool).await;
    asked.map_err(|e| e.as_database_error().unwrap().message().to_owned())
}

/// The cases are written by `scripts/schema_cases.py`, with the verdict of a validator that is not ours.
#[tokio::test]
async fn b7_the_verdict_is_that_of_an_independent_validator() {
    let db = TestDb::fresh().await;
    let lines: Vec<&str> = include_str!("schema/cases.ndjson").lines().collect();
    let sql = "select postrider.schema_error(postrider.compile_schema(x -> 'schema', x -> 'schema'), x -> 'data')
                 from unnest($1::text[]) with ordinality u (line, n) cross join lateral (select line::jsonb) j (x) order by n";
    let told: Vec<Option<String>> = sqlx::query_scalar(sql).bind(&lines).fetch_all(db.pool()).await.unwrap();
    for (line, told) in lines.iter().zip(&told) {
        let fits = line.ends_with("\"fits\": true}");
        assert_eq!(told.is_none(), fits, "{told:?} in {line}");
    }
    let fitted = told.iter().filter(|told| told.is_none()).count();
    assert_eq!((told.len(), fitted), (2_400, 1_200));
}

#[tokio::test]
async fn what_does_not_fit_is_told_with_its_pointer_and_never_with_the_value() {
    let db = TestDb::fresh().await;
    let item =
        json!({"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string", "maxLength": 4}}});
    let schema = json!({
        "type": "object", "required": ["total"], "additionalProperties": false,
        "properties": {"total": {"type": "integer", "minimum": 1}, "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
                       "a/b~c": {"const": 1}, "state": {"enum": ["open", "done"]}},
        "$defs": {"item": item}
    });
    for (data, told) in [
        (json!({"total": 1}), None),
        (json!([]), Some(" is of type array, not object")),
        (json!({}), Some("/total is missing")),
        (json!({"total": 0}), Some("/total is less than 1")),
        (json!({"total": 1.5}), Some("/total is not an integer")),
        (json!({"total": "secret"}), Some("/total is of type string, not integer")),
        (json!({"total": 1, "secret": 2}), Some("/secret is not allowed")),
        (json!({"total": 1, "a/b~c": "secret"}), Some("/a~1b~0c is not the one value that it can be")),
        (json!({"total": 1, "state": "secret"}), Some("/state is none of the values that it can be")),
        (json!({"total": 1, "items": [{"sku": "a"}, {}]}), Some("/items/1/sku is missing")),
        (json!({"total": 1, "items": [{"sku": "secret"}]}), Some("/items/0/sku is longer than 4 characters")),
    ] {
        assert_eq!(verdict(db.pool(), &schema, &data).await.unwrap().as_deref(), told, "{data}");
    }
}

/// By ECMA-262, without flags; where Postgres or Python read the same signs in another way.
#[tokio::test]
async fn a_pattern_means_what_it_means_in_json_schema() {
    let db = TestDb::fresh().await;
    for (pattern, data, fits) in [
        (r"^\d+$", "123", true),
        (r"^\d+$", "\u{663}", false),
        (r"^\w+$", "a_1", true),
        (r"^\w+$", "\u{e9}", false),
        (r"^a$", "a\n", false),
        (r"^a$", "b\na", false),
        (r"^.$", "\n", false),
        (r"^.$", "\u{2028}", false),
        (r"^.$", "\u{1f600}", true),
        (r"^[\w]+$", "Az_9", true),
        (r"b", "abc", true),
        (r"^[\w.-]+@[\w-]+\.[a-z]{2,10}$", "a.b-c@x-y.org", true),
        (r"^[\w.-]+@[\w-]+\.[a-z]{2,10}$", "a@b", false),
        (r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "019ace2e-5c00-7a3f-8000-000000000001", true),
        (r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "019ace2e-5c00-7a3f-8000-00000000000g", false),
        (r"^(a|b|)$", "", true),
        (r"^[^\]]$", "]", false),
        (r"^[\^]$", "^", true),
        (r"^[\\]$", "\\", true),
        (r"^\$\.\*$", "$.*", true),
        (r"^A$", "a", false),
    ] {
        let told = verdict(db.pool(), &json!({ "pattern": pattern }), &json!(data)).await.unwrap();
        assert_eq!(told.is_none(), fits, "{pattern} over {data:?}");
    }
    for refused in [
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<n>a)",
        r"(a)\1",
        r"\bword",
        r"\p{L}",
        "a*?",
        "a**",
        "(",
        "a)",
        "[a",
        "a{256}",
        "((a{99}){99}){99}",
        "***:a",
        "(?i)a",
        r"\u0041",
        "[[:alpha:]]",
        "[z-a]",
        "{1}",
        "+",
        "a{2,1}",
        "]",
        r"\s",
        r"\D",
        "\\",
    ] {
        let told = verdict(db.pool(), &json!({ "pattern": refused }), &json!("a")).await.unwrap_err();
        assert!(told.contains("#/pattern is not a pattern that can be checked"), "{refused}: {told}");
    }
}

#[tokio::test]
async fn a_schema_that_cannot_be_checked_as_a_whole_is_refused_with_a_pointer_to_what_cannot() {
    let db = TestDb::fresh().await;
    for (schema, told) in [
        (
            json!({"properties": {"a": {"patternProperties": {}}}}),
            "#/properties/a/patternProperties is a keyword that is not supported",
        ),
        (json!({"if": true}), "#/if is a keyword"),
        (json!({"anyOf": [true, {"contains": {}}]}), "#/anyOf/1/contains is a keyword"),
        (json!({"$defs": {"unused": {"prefixItems": []}}}), "#/$defs/unused/prefixItems is a keyword"),
        (json!({"properties": {"$defs": {"$defs": {}}}}), "#/properties/$defs/$defs is a keyword"),
        (json!({"items": {"$id": "https://example.com/a"}}), "#/items/$id is a keyword"),
        (json!({"$schema": "http://json-schema.org/draft-07/schema#"}), "#/$schema is another dialect"),
        (json!({"type": "text"}), "#/type is not a type"),
        (json!({"type": []}), "#/type is not a type"),
        (json!({"required": "a"}), "#/required is not a list of names"),
        (json!({"enum": []}), "#/enum is not a list of values"),
        (json!({"properties": []}), "#/properties holds no schemas"),
        (json!({"allOf": []}), "#/allOf holds no schemas"),
        (json!({"items": [true]}), "#/items is not a schema"),
        (json!({"minLength": -1}), "#/minLength is not a count"),
        (json!({"maxItems": 1.5}), "#/maxItems is not a count"),
        (json!({"minimum": "1"}), "#/minimum is not a number"),
        (json!({"multipleOf": 0}), "#/multipleOf is not a number"),
        (json!({"uniqueItems": 1}), "#/uniqueItems is neither"),
        (json!({"$ref": "#"}), "#/$ref leads nowhere"),
        (json!({"$ref": "https://example.com/a"}), "#/$ref leads nowhere"),
        (json!({"$ref": "#/$defs/gone", "$defs": {}}), "#/$ref leads nowhere"),
        (json!({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}), "#/$defs/a/items/$ref leads back to itself"),
        (json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}}), "leads back to itself"),
        (json!([]), "# is not a schema"),
    ] {
        let refused = verdict(db.pool(), &schema, &json!(1)).await.unwrap_err();
        assert!(refused.starts_with("schema: ") && refused.contains(told), "{schema}: {refused}");
    }
    let described = json!({"title": "t", "description": "d", "default": 1, "examples": [1], "deprecated": true, "readOnly": true,
        "writeOnly": true, "$comment": "c", "format": "date", "$id": "https://example.com/a",
        "$schema": "https://json-schema.org/draft/2020-12/schema"});
    assert_eq!(verdict(db.pool(), &described, &json!("no date")).await, Ok(None), "what describes is no rule");
}

/// A reference to two parts that each refer to two … doubles with each level: it may not take for ever, nor fill the memory.
#[tokio::test]
async fn a_schema_that_grows_without_end_where_its_references_are_put_in_is_refused() {
    let db = TestDb::fresh().await;
    let mut parts = serde_json::Map::new();
    for n in 0..30 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        parts.insert(format!("d{n}"), json!({"anyOf": [next, next]}));
    }
    parts.insert("d30".to_owned(), json!({"type": "string", "pattern": "^a+$"}));
    let refused = verdict(db.pool(), &json!({"$ref": "#/$defs/d0", "$defs": parts}), &json!(1)).await.unwrap_err();
    assert!(refused.contains("131072 bytes") || refused.contains("deeper than 32"), "{refused}");
    let mut deep = json!({"type": "string"});
    for _ in 0..33 {
        deep = json!({ "items": deep });
    }
    assert!(verdict(db.pool(), &deep, &json!(1)).await.unwrap_err().contains("deeper than 32 levels"));
}

/// The largest and the deepest data that pass the gate, against schemas as deep as they may be.
#[tokio::test]
async fn whatever_passes_the_gate_gets_a_verdict() {
    let db = TestDb::fresh().await;
    let sql = "select postrider.schema_error(postrider.compile_schema(s, s), $2::text::jsonb) from (select $1::text::jsonb) x (s)";
    let mut deep = json!({"type": "integer"});
    for n in 0..30 {
        deep = if n % 2 == 0 { json!({ "anyOf": [{"type": "null"}, deep] }) } else { json!({ "items": deep }) };
    }
    let nested = "[".repeat(128) + &"]".repeat(128);
    let long = format!("[{}]", vec!["1"; 30_000].join(","));
    let number = format!("[1e9999,-1e-9999,{}]", "9".repeat(4_096));
    let text = format!("\"{}b\"", "a".repeat(262_100));
    let cases = [
        (deep.to_string(), nested, false),
        (r#"{"items": {"type": "integer", "minimum": 1, "multipleOf": 0.5}}"#.to_owned(), long, true),
        (
            r#"{"items": {"type": "number", "multipleOf": 1e-9, "maximum": 1e9999}, "uniqueItems": true}"#.to_owned(),
            number,
            false,
        ),
        (r#"{"pattern": "^(a|aa|a*)*$"}"#.to_owned(), text, false),
    ];
    for (schema, data, fits) in cases {
        let told: Option<String> =
            sqlx::query_scalar(sql).bind(&schema).bind(&data).fetch_one(db.pool()).await.unwrap();
        assert_eq!(told.is_none(), fits, "{schema}: {told:?}");
    }
}

/// What was and what comes after it, and what is said if that is not compatible: worked out by hand.
#[tokio::test]
async fn a_version_may_add_what_is_optional_and_allow_more_and_nothing_else() {
    let db = TestDb::fresh().await;
    let object =
        |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required});
    let one = |schema: Value| object(json!({ "a": schema }), json!(["a"]));
    let cases = [
        (one(json!({})), one(json!({})), None),
        (one(json!({})), object(json!({"a": {}, "b": {"type": "string"}}), json!(["a"])), None),
        (one(json!({})), object(json!({"a": {}, "b": {}}), json!(["a", "b"])), Some("/b is required and was not")),
        (one(json!({})), object(json!({"a": {}}), json!([])), Some("/a was required and is not any more")),
        (one(json!({})), object(json!({}), json!(["a"])), Some("/a was required and is not any more")),
        (object(json!({"a": {}, "b": {}}), json!(["a"])), one(json!({})), None),
        (one(json!({"type": "integer"})), one(json!({"type": "number"})), None),
        (
            one(json!({"type": "number"})),
            one(json!({"type": "integer"})),
            Some("/a may not have every type that it had"),
        ),
        (one(json!({"type": "string"})), one(json!({"type": ["string", "null"]})), None),
        (one(json!({"type": ["string", "null"]})), one(json!({"type": "string"})), Some("/a may not have every type")),
        (one(json!({})), one(json!({"type": "string"})), Some("/a may not have every type")),
        (one(json!({"enum": ["x"]})), one(json!({"enum": ["x", "y"]})), None),
        (one(json!({"enum": ["x", "y"]})), one(json!({"enum": ["x"]})), Some("/a may not have every value")),
        (one(json!({})), one(json!({"enum": [null]})), Some("/a may not have every value")),
        (one(json!({"const": "x"})), one(json!({"enum": ["x", "y"]})), None),
        (one(json!({"enum": ["x"]})), one(json!({"const": "x"})), Some("/a may not have every value")),
        (one(json!({"minimum": 1, "maxLength": 9})), one(json!({"minimum": 0, "maxLength": 10})), None),
        (one(json!({"minimum": 1})), one(json!({"minimum": 2})), Some("/a has a larger minimum")),
        (one(json!({})), one(json!({"exclusiveMinimum": 0})), Some("/a has a larger exclusiveMinimum")),
        (one(json!({})), one(json!({"minLength": 0})), None),
        (one(json!({"maxItems": 3})), one(json!({"maxItems": 2})), Some("/a has a smaller maxItems")),
        (one(json!({})), one(json!({"maxLength": 9})), Some("/a has a smaller maxLength")),
        (one(json!({"pattern": "^a"})), one(json!({})), None),
        (one(json!({})), one(json!({"pattern": "^a"})), Some("/a has another pattern")),
        (one(json!({"multipleOf": 2})), one(json!({"multipleOf": 4})), Some("/a has another multipleOf")),
        (one(json!({"anyOf": [true]})), one(json!({"anyOf": [false]})), Some("/a has another anyOf")),
        (one(json!({"uniqueItems": false})), one(json!({"uniqueItems": true})), Some("/a may not have an item twice")),
        (one(json!({"items": {"type": "string"}})), one(json!({"items": {}})), None),
        (
            one(json!({"items": {}})),
            one(json!({"items": {"type": "string"}})),
            Some("/a/items may not have every type"),
        ),
        (one(json!({})), one(json!(false)), Some("/a is not allowed any more")),
        (json!({}), json!({"additionalProperties": false}), Some("/* is not allowed any more")),
        (json!({"additionalProperties": false}), json!({"additionalProperties": {"type": "string"}}), None),
        (
            json!({"additionalProperties": false}),
            json!({"additionalProperties": false, "properties": {"b": {"type": "string"}}}),
            None,
        ),
        (
            json!({"additionalProperties": {"type": "string"}}),
            json!({"properties": {"b": {"type": "null"}}}),
            Some("/b may not have every type"),
        ),
        (
            json!({"properties": {"b": {}}, "additionalProperties": false}),
            json!({"additionalProperties": false}),
            Some("/b is not allowed any more"),
        ),
        (json!({"properties": {"b": {}}}), json!({}), None),
        (json!({"$ref": "#/$defs/x", "$defs": {"x": one(json!({}))}}), one(json!({"title": "a"})), None),
        (json!(true), json!({"type": "object"}), Some(" may not have every type")),
    ];
    let sql = "select postrider.schema_narrowed(postrider.compile_schema(o, o), postrider.compile_schema(n, n))
                 from (select $1::text::jsonb, $2::text::jsonb) x (o, n)";
    for (old, new, told) in cases {
        let narrowed: Option<String> =
            sqlx::query_scalar(sql).bind(old.to_string()).bind(new.to_string()).fetch_one(db.pool()).await.unwrap();
        match told {
            None => assert_eq!(narrowed, None, "{old} then {new}"),
            Some(told) => {
                assert!(narrowed.as_ref().is_some_and(|n| n.starts_with(told)), "{old} then {new}: {narrowed:?}");
            }
        }
    }
}

/// The promise behind the comparison, over the cases of the independent validator: what fitted the old one fits the new one, but for new
/// properties where anything could have stood.
#[tokio::test]
async fn what_fitted_a_schema_fits_each_one_that_is_compatible_with_it() {
    let db = TestDb::fresh().await;
    let lines: Vec<Value> =
        include_str!("schema/cases.ndjson").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lines = Value::from(lines).to_string();
    let sql = "with c as materialized (
            select n, postrider.compile_schema(x -> 'schema', x -> 'schema') as s, x -> 'data' as d
              from jsonb_array_elements($1::text::jsonb) with ordinality u (x, n)
        ), pairs as materialized (
            select o.s as old, w.s as new from c o join c w on w.n % 150 = o.n % 150
             where o.s <> w.s and o.s <> 'true' and o.s <> '{}' and o.s <> 'false' and w.s <> 'true' and w.s <> '{}'
               and postrider.schema_narrowed(o.s, w.s) is null
        )
        select count(*), count(*) filter (where postrider.schema_error(p.old, c.d) is null and postrider.schema_error(p.new, c.d) is not null
                                          and not coalesce(p.new::text ~ 'properties', false))
          from pairs p cross join (select d from c where n % 20 = 0) c";
    let (compared, broken): (i64, i64) = sqlx::query_as(sql).bind(lines).fetch_one(db.pool()).await.unwrap();
    assert!(compared > 1_000, "{compared}");
    assert_eq!(broken, 0);
}
