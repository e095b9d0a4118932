//! The operations of a document, and each of them as a tool.

use std::collections::HashSet;

use http::Method;
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::body::Body;
use super::document::{Document, DocumentError};
use super::hosts::{HostError, Hosts};
use super::media::is_json;
use super::names::names;
use super::parameters::{Parameter, Reserved, parameters};
use super::schema::{Limits, Sender, shortened};
use crate::mcp::bounds::count_values;

/// Operations of a document; a server has no more tools.
const MOST_OPERATIONS: usize = 10_000;
/// Values of all schemas of a document, and of one.
const ALL_VALUES: usize = 700_000;
const MOST_VALUES: usize = 1_200;
const FEWEST_VALUES: usize = 30;
/// Values of a tool beside its schemas.
const FIXED_VALUES: usize = 30;
/// Bytes of descriptions: of a tool, and within its schemas.
const DESCRIPTION: usize = 4_000;
const ARGUMENT_DESCRIPTION: usize = 1_000;
const RESULT_DESCRIPTION: usize = 160;
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// An operation, ready to be called.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) method: Method,
    /// With parameters in braces.
    pub(super) path: String,
    /// Where the path begins, or why it cannot be called.
    pub(super) base: Result<Url, HostError>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Body>,
    /// The types of its results.
    pub(super) accept: Vec<String>,
}

/// Those of a document, and the list of tools as JSON.
#[derive(Debug)]
pub(super) struct Operations {
    pub(super) all: Vec<Operation>,
    pub(super) tools: String,
}

/// An operation as the document has it.
struct Written<'a> {
    path: &'a str,
    method: &'static str,
    item: &'a Value,
    operation: &'a Value,
}

impl Operations {
    /// Reads the operations of a document. One that is broken is left out.
    pub(super) fn read(
        document: &Document,
        hosts: &Hosts<'_>,
        reserved: &Reserved,
    ) -> Result<Self, DocumentError> {
        let mut written = written(document);
        if written.is_empty() {
            return Err(DocumentError::NoOperations);
        }
        if written.len() > MOST_OPERATIONS {
            tracing::warn!(
                operations = written.len(),
                "an OpenAPI document has too many operations; only the first {MOST_OPERATIONS} are used"
            );
            written.truncate(MOST_OPERATIONS);
        }
        let values = (ALL_VALUES / written.len() / 2).clamp(FEWEST_VALUES, MOST_VALUES);
        let id = |operation: &Value| operation.get("operationId").and_then(Value::as_str).map(str::to_owned);
        let ids: Vec<_> = written.iter().map(|one| id(one.operation)).collect();
        let named = written.iter().zip(&ids).map(|(one, id)| (id.as_deref(), one.method, one.path));
        let mut all = Vec::new();
        let mut tools = String::from(r#"{"tools":["#);
        for (one, name) in written.iter().zip(names(named)) {
            let Some((operation, tool)) = one.within(name, document, hosts, reserved, values) else {
                tracing::warn!(
                    method = one.method,
                    path = one.path,
                    "left out an operation: a reference in it leads nowhere"
                );
                continue;
            };
            if !all.is_empty() {
                tools.push(',');
            }
            tools.push_str(&tool);
            all.push(operation);
        }
        tools.push_str("]}");
        Ok(Self { all, tools })
    }

    /// Returns why none of them can be called, if that is so.
    pub(super) fn none_can_be_called(&self) -> Option<&HostError> {
        let refused = |operation: &Operation| operation.base.is_err();
        self.all.iter().all(refused).then(|| self.all.first()?.base.as_ref().err()).flatten()
    }
}

/// Returns the operations in the order of the document.
fn written(document: &Document) -> Vec<Written<'_>> {
    let paths = document.root.get("paths").and_then(Value::as_object).into_iter().flatten();
    let mut written = Vec::new();
    for (path, item) in paths.filter(|(path, _)| path.starts_with('/')) {
        let Some(item) = document.follow(item) else { continue };
        for (name, operation) in item.as_object().into_iter().flatten() {
            if let Some(method) = METHODS.iter().find(|method| *method == name)
                && operation.is_object()
            {
                written.push(Written { path, method, item, operation });
            }
        }
    }
    written
}

impl Written<'_> {
    /// Reads it as a tool of a limited size: many small schemas may be as large as one that is too large.
    fn within(
        &self,
        name: String,
        document: &Document,
        hosts: &Hosts<'_>,
        reserved: &Reserved,
        values: usize,
    ) -> Option<(Operation, String)> {
        let mut read = None;
        for share in [1, 4, 16, 64] {
            let (operation, tool) =
                self.read(name.clone(), document, hosts, reserved, (values / share).max(2))?;
            let tool = tool.to_string();
            let fits = count_values(tool.as_bytes()) <= 2 * values + FIXED_VALUES;
            read = Some((operation, tool));
            if fits {
                break;
            }
        }
        read
    }

    fn read(
        &self,
        name: String,
        document: &Document,
        hosts: &Hosts<'_>,
        reserved: &Reserved,
        values: usize,
    ) -> Option<(Operation, Value)> {
        let limits = Limits { values, description: ARGUMENT_DESCRIPTION };
        let mut found = parameters(document, self.item, self.operation, self.path, reserved, limits)?;
        let mut properties = Map::new();
        let mut required = Vec::new();
        for parameter in &mut found {
            if parameter.required {
                required.push(parameter.argument.clone());
            }
            properties.insert(parameter.argument.clone(), parameter.schema.take());
        }
        let body = match self.operation.get("requestBody") {
            Some(body) if self.may_have_body(body) => {
                Body::read(document, body, &mut properties, &mut required, limits)?
            }
            _ => None,
        };
        let is_open = body.as_ref().is_some_and(Body::is_open);
        let (output, accept) = self.result(document, Limits { values, description: RESULT_DESCRIPTION });
        let mut input = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            input["required"] = json!(required);
        }
        input["additionalProperties"] = json!(is_open);
        let mut tool = json!({ "name": name, "description": self.description(), "inputSchema": input });
        if let Some(output) = output {
            tool["outputSchema"] = output;
        }
        tool["annotations"] = annotations(self.method);
        let own_servers = self.operation.get("servers").or_else(|| self.item.get("servers"));
        let operation = Operation {
            name,
            method: Method::from_bytes(self.method.to_ascii_uppercase().as_bytes()).ok()?,
            path: self.path.to_owned(),
            base: hosts.base_of(own_servers),
            parameters: found,
            body,
            accept,
        };
        Some((operation, tool))
    }

    /// Some generators write an empty body for everything.
    fn may_have_body(&self, body: &Value) -> bool {
        !matches!(self.method, "get" | "head") || body.get("required") == Some(&Value::Bool(true))
    }

    fn description(&self) -> String {
        let text =
            |key: &str| self.operation.get(key).and_then(Value::as_str).map(str::trim).unwrap_or_default();
        let (summary, description) = (text("summary"), text("description"));
        let mut whole = match (summary, description) {
            ("", "") => format!("{} {}", self.method.to_ascii_uppercase(), self.path),
            (text, "") | ("", text) => text.to_owned(),
            (summary, description) if description.starts_with(summary) => description.to_owned(),
            (summary, description) => {
                let end = if summary.ends_with(['.', '!', '?']) { "" } else { "." };
                format!("{summary}{end}\n\n{description}")
            }
        };
        if self.operation.get("deprecated") == Some(&Value::Bool(true)) {
            whole.push_str("\n\nIt is deprecated.");
        }
        shortened(&whole, DESCRIPTION)
    }

    /// Returns the schema of its result, and all types that it may have.
    fn result(&self, document: &Document, limits: Limits) -> (Option<Value>, Vec<String>) {
        let responses = self.operation.get("responses").and_then(Value::as_object);
        let of_success = |status: &str| status.len() == 3 && status.starts_with('2');
        let mut found: Vec<_> =
            responses.into_iter().flatten().filter(|(status, _)| of_success(status)).collect();
        found.sort_by_key(|(status, _)| *status);
        if found.is_empty() {
            found.extend(responses.and_then(|all| all.get_key_value("default")));
        }
        let (mut schema, mut accept, mut seen) = (None, Vec::new(), HashSet::new());
        for (_, response) in found {
            let content = document.follow(response).and_then(|response| response.get("content"));
            for (kind, media) in content.and_then(Value::as_object).into_iter().flatten() {
                if seen.insert(kind.as_str()) && kind.contains('/') && kind.is_ascii() {
                    accept.push(kind.clone());
                }
                if schema.is_none() && is_json(kind) {
                    schema = media.get("schema").map(|schema| document.plain(schema, Sender::Api, limits));
                }
            }
        }
        accept.sort_by_key(|kind| !is_json(kind));
        (schema.filter(|schema| schema.as_object().is_some_and(|members| !members.is_empty())), accept)
    }
}

/// Returns what a method says of its effects. Nothing is said of POST and PATCH, which may do anything.
fn annotations(method: &str) -> Value {
    match method {
        "get" | "head" | "options" | "trace" => json!({ "readOnlyHint": true, "openWorldHint": true }),
        "delete" => {
            json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": true })
        }
        "put" => json!({ "readOnlyHint": false, "idempotentHint": true, "openWorldHint": true }),
        _ => json!({ "readOnlyHint": false, "openWorldHint": true }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::discovery::{DocumentPlace, HttpOptions, OpenApi};

    fn operations(root: Value) -> Result<(Operations, Value), DocumentError> {
        let openapi = OpenApi {
            document: DocumentPlace::File("/x".into()),
            base_url: Some("http://h.example".into()),
            auth: None,
            headers: Vec::new(),
            filled_in: Vec::new(),
            options: HttpOptions::default(),
        };
        let document = Document::parse(&root.to_string())?;
        let hosts = Hosts::new(&openapi, &document.root).unwrap();
        let read = Operations::read(&document, &hosts, &Reserved::of(&openapi))?;
        let tools = serde_json::from_str(&read.tools).unwrap();
        Ok((read, tools))
    }

    #[test]
    fn an_operation_is_a_tool() {
        let pet = json!({ "type": "object", "required": ["name"], "properties": {
            "name": { "type": "string" }, "id": { "type": "integer", "readOnly": true },
        }});
        let (_, tools) = operations(json!({
            "openapi": "3.0.3",
            "paths": { "/pets/{petId}": {
                "parameters": [{ "name": "petId", "in": "path", "required": true, "schema": { "type": "integer" } }],
                "get": {
                    "operationId": "getPet", "summary": "Finds a pet", "description": "By its id.", "deprecated": true,
                    "responses": { "404": {}, "200": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Pet" } } } } },
                },
                "put": {
                    "requestBody": { "required": true, "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Pet" } } } },
                },
                "delete": { "operationId": "get_pet", "responses": { "204": {} } },
            }},
            "components": { "schemas": { "Pet": pet } },
        }))
        .unwrap();
        assert_eq!(
            tools["tools"],
            json!([
                {
                    "name": "get_pet",
                    "description": "Finds a pet.\n\nBy its id.\n\nIt is deprecated.",
                    "inputSchema": {
                        "type": "object", "properties": { "petId": { "type": "integer" } }, "required": ["petId"],
                        "additionalProperties": false,
                    },
                    "outputSchema": {
                        "type": "object", "required": ["name"],
                        "properties": { "name": { "type": "string" }, "id": { "type": "integer" } },
                    },
                    "annotations": { "readOnlyHint": true, "openWorldHint": true },
                },
                {
                    "name": "put_pets_pet_id",
                    "description": "PUT /pets/{petId}",
                    "inputSchema": {
                        "type": "object", "properties": { "petId": { "type": "integer" }, "name": { "type": "string" } },
                        "required": ["petId", "name"], "additionalProperties": false,
                    },
                    "annotations": { "readOnlyHint": false, "idempotentHint": true, "openWorldHint": true },
                },
                {
                    "name": "get_pet_2",
                    "description": "DELETE /pets/{petId}",
                    "inputSchema": {
                        "type": "object", "properties": { "petId": { "type": "integer" } }, "required": ["petId"],
                        "additionalProperties": false,
                    },
                    "annotations": {
                        "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": true,
                    },
                },
            ])
        );
    }

    #[test]
    fn a_body_with_the_name_of_a_parameter_is_one_argument() {
        let schema = json!({ "type": "object", "properties": { "id": {}, "name": {} } });
        let (_, tools) = operations(json!({ "openapi": "3.1.0", "paths": { "/a/{id}": { "patch": {
            "requestBody": { "required": true, "content": { "application/json": { "schema": schema } } },
        }}}}))
        .unwrap();
        let input = &tools["tools"][0]["inputSchema"];
        assert_eq!(input["required"], json!(["id", "body"]));
    }

    #[test]
    fn five_thousand_operations_are_read_and_a_broken_one_is_left_out() {
        let node = json!({ "type": "object", "properties": {
            "left": { "$ref": "#/components/schemas/Node" }, "right": { "$ref": "#/components/schemas/Node" },
        }});
        let result = json!({ "200": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Node" } } } } });
        let mut paths: Map<_, _> = (0..5_000)
            .map(|at| {
                (
                    format!("/p{at}"),
                    json!({ "get": { "operationId": format!("op{at}"), "responses": result } }),
                )
            })
            .collect();
        paths.insert(
            "/lost".into(),
            json!({ "get": { "parameters": [{ "$ref": "#/components/parameters/None" }] } }),
        );
        paths.insert("/circle".into(), json!({ "$ref": "#/paths/~1circle" }));
        let root =
            json!({ "openapi": "3.0.0", "paths": paths, "components": { "schemas": { "Node": node } } });
        let (read, tools) = operations(root).unwrap();
        assert_eq!((read.all.len(), tools["tools"].as_array().unwrap().len()), (5_000, 5_000));
        assert_eq!(read.all[4_999].name, "op4999");
    }

    #[test]
    fn an_operation_with_many_large_parameters_has_a_limited_size() {
        let properties: Map<_, _> =
            (0..300).map(|at| (format!("p{at}"), json!({ "type": "string" }))).collect();
        let schema = json!({ "type": "object", "properties": properties });
        let parameters: Vec<_> =
            (0..200).map(|at| json!({ "name": format!("q{at}"), "in": "query", "schema": schema })).collect();
        let (_, tools) = operations(
            json!({ "openapi": "3.0.0", "paths": { "/a": { "get": { "parameters": parameters } } } }),
        )
        .unwrap();
        let input = &tools["tools"][0]["inputSchema"]["properties"];
        assert_eq!(input["q199"], json!({ "type": "object" }));
        assert!(tools.to_string().len() < 20_000);
    }

    #[test]
    fn a_document_without_operations_is_refused() {
        let refused = operations(json!({ "openapi": "3.0.0", "paths": { "/a": {}, "b": { "get": {} } } }));
        assert_eq!(refused.unwrap_err(), DocumentError::NoOperations);
    }
}
