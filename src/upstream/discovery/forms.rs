//! Reads definitions in the forms of the programs that write them.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use codebridge_runtimes::exec::visible_line;

use super::definition::{Definition, Launch, Skip};
use super::document::{Node, Problem, Value};
use super::expand::Scope;
use super::http_options::{HttpOptions, OAuthOptions, Redirect};
use super::profiles;
use super::sources::Form;
use super::surroundings::Surroundings;

/// Characters of a wrong number that are shown.
const LONGEST_NUMBER: usize = 40;

/// Where files of any form have their definitions.
const KEYS: [&str; 6] = ["mcpServers", "projects", "servers", "mcp", "mcp.servers", "mcp_servers"];

/// A definition as written in a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) node: &'a Node,
    /// Whether it has the form of opencode.
    pub(super) opencode: bool,
}

/// Finds the definitions of a file. `projects` are the folders whose own definitions are used, the nearest first.
pub(super) fn entries<'a>(root: &'a Node, form: Form, projects: &[PathBuf]) -> Found<'a> {
    let mut found = Found::default();
    if !root.is_table() {
        found.misplaced("the file", root);
        return found;
    }
    let any = form == Form::Any;
    if any || form == Form::ClaudeCode {
        let table = root.get("projects");
        for project in projects {
            let project = table.and_then(|table| table.get(&project.to_string_lossy()));
            found.add("mcpServers", project.and_then(|project| project.get("mcpServers")), false);
        }
    }
    if any || matches!(form, Form::McpServers | Form::ClaudeCode) {
        found.add("mcpServers", root.get("mcpServers"), false);
    }
    if any || form == Form::VsCode {
        found.add("servers", root.get("servers"), false);
    }
    let mcp = root.get("mcp");
    let in_mcp = mcp.and_then(|mcp| mcp.get("servers"));
    if any || form == Form::VsCodeSettings {
        found.add("mcp.servers", root.get("mcp.servers"), false);
        found.add("mcp.servers", in_mcp, false);
    }
    // opencode 2 has its servers one level deeper. A server of opencode 1 may have this name; it has a type.
    let of_opencode_2 = in_mcp.filter(|servers| servers.get("type").is_none());
    match (form, of_opencode_2) {
        (Form::OpenCode, Some(servers)) => found.add("mcp.servers", Some(servers), true),
        (Form::OpenCode, None) => found.add("mcp", mcp, true),
        (Form::Any, _) if in_mcp.is_none() => found.add("mcp", mcp, true),
        _ => {}
    }
    if any || form == Form::Codex {
        found.add("mcp_servers", root.get("mcp_servers"), false);
    }
    let has_key = KEYS.iter().chain([&profiles::KEY]).any(|key| root.get(key).is_some());
    if any && !root.members().is_empty() && !has_key {
        let message = "it has no 'mcpServers'".to_owned();
        found.misplaced.push(Problem { line: root.line, message });
    }
    found
}

/// The definitions of a file, and its parts that should contain definitions and do not.
#[derive(Default)]
pub(super) struct Found<'a> {
    pub(super) entries: Vec<Entry<'a>>,
    pub(super) misplaced: Vec<Problem>,
}

impl<'a> Found<'a> {
    fn add(&mut self, key: &str, table: Option<&'a Node>, opencode: bool) {
        let Some(table) = table else { return };
        if !table.is_table() {
            self.misplaced(&format!("'{key}'"), table);
        }
        let entry = |(name, node): &'a (String, Node)| Entry { name, node, opencode };
        self.entries.extend(table.members().iter().map(entry));
    }

    fn misplaced(&mut self, what: &str, node: &Node) {
        let message = format!("{what} must be an object, not {}", node.kind());
        self.misplaced.push(Problem { line: node.line, message });
    }
}

/// Returns the user's description of a definition or of a whole file.
pub(super) fn description(node: &Node) -> Option<String> {
    match &node.get("description")?.value {
        Value::Text(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        _ => None,
    }
}

/// Reads an entry; `expands` = with its variables expanded.
pub(super) fn definition(
    entry: &Entry<'_>,
    surroundings: &Surroundings,
    expands: bool,
) -> Result<Definition, Skip> {
    let Surroundings { home, cwd, environment, .. } = surroundings;
    let filled_in = RefCell::default();
    let scope = Scope {
        environment,
        home: home.as_deref(),
        cwd,
        expands,
        bare_braces: entry.opencode,
        filled_in: &filled_in,
    };
    let fields = Fields { node: entry.node, scope };
    if !entry.node.is_table() {
        return Err(invalid(format!("it must be an object, not {}", entry.node.kind())));
    }
    // `*` asks for all servers.
    if matches!(entry.name.trim(), "" | "*") || entry.name.chars().any(char::is_control) {
        return Err(invalid(format!("{:?} is not a valid server name", entry.name)));
    }
    if fields.boolean("disabled")? == Some(true) || fields.boolean("enabled")? == Some(false) {
        return Err(Skip::Disabled);
    }
    let url = ["url", "httpUrl", "serverUrl"].into_iter().find(|key| fields.get(key).is_some());
    let has_command = fields.get("command").is_some();
    let kind = if fields.get("openapi").is_some() { None } else { fields.transport()? };
    let is_http = match kind {
        Some(kind) => kind != Transport::Stdio,
        None => url.is_some() && !has_command,
    };
    let launch = match url {
        _ if fields.get("openapi").is_some() => Launch::OpenApi(Arc::new(fields.openapi()?)),
        Some(key) if is_http => fields.http(key, kind == Some(Transport::Older))?,
        None if is_http => return Err(invalid("it is an HTTP server without 'url'".into())),
        None if kind.is_none() && !has_command => {
            return Err(invalid("it has neither 'command' nor 'url' nor 'openapi'".into()));
        }
        _ => fields.stdio()?,
    };
    Ok(Definition {
        launch,
        startup_timeout: fields.seconds("startup_timeout_sec")?,
        call_timeout: fields.seconds("tool_timeout_sec")?,
        filled_in: filled_in.into_inner(),
    })
}

/// Returns the command line of an entry unexpanded, for a definition with a missing variable.
pub(super) fn command_as_written(node: &Node) -> Option<Vec<String>> {
    let words = |node: &Node| match &node.value {
        Value::List(items) => items.iter().filter_map(scalar).collect(),
        _ => Vec::from_iter(scalar(node)),
    };
    let mut command: Vec<String> = words(node.get("command")?);
    command.extend(node.get("args").map(words).unwrap_or_default());
    (!command.is_empty()).then_some(command)
}

pub(super) fn invalid(why: String) -> Skip {
    // It may cite the definition, in which a control character can be written as an escape.
    Skip::Invalid(visible_line(&why))
}

/// The transport that a definition names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Stdio,
    Http,
    Older,
}

/// The members of one definition, read with their types.
pub(super) struct Fields<'a> {
    pub(super) node: &'a Node,
    pub(super) scope: Scope<'a>,
}

impl<'a> Fields<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a Node> {
        self.node.get(key).filter(|node| node.value != Value::Null)
    }

    /// Reads a string without expanding it.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, Skip> {
        match self.get(key).map(|node| (node, &node.value)) {
            None => Ok(None),
            Some((_, Value::Text(text))) => Ok(Some(text)),
            Some((node, _)) => Err(invalid(format!("'{key}' must be a string, not {}", node.kind()))),
        }
    }

    /// Returns the transport that the definition names, if any.
    fn transport(&self) -> Result<Option<Transport>, Skip> {
        let kind = ["type", "transport"].into_iter().find_map(|key| self.get(key));
        let Some(Node { value: Value::Text(kind), .. }) = kind else { return Ok(None) };
        match kind.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
            "stdio" | "local" => Ok(Some(Transport::Stdio)),
            "http" | "streamablehttp" | "remote" => Ok(Some(Transport::Http)),
            "sse" | "httpsse" | "http+sse" => Ok(Some(Transport::Older)),
            _ => Err(invalid(format!("transport '{kind}' is not supported: use stdio, http or sse"))),
        }
    }

    fn stdio(&self) -> Result<Launch, Skip> {
        let mut words = match self.get("command") {
            Some(Node { value: Value::List(_), .. }) => self.list("command")?.into_iter(),
            _ => {
                let text = self.text("command")?.ok_or_else(|| invalid("it has no 'command'".into()))?;
                vec![self.scope.expand_path(text)?].into_iter()
            }
        };
        let command = words.next().filter(|command| !command.trim().is_empty());
        let command = command.ok_or_else(|| invalid("'command' is empty".into()))?;
        let args: Vec<_> = words.chain(self.list("args")?).collect();
        // Codex lists variables to pass on without their values.
        let inherited = |name: String| Some((name.clone(), self.scope.variable(&name).ok()?));
        let mut env: Vec<_> = self.list("env_vars")?.into_iter().filter_map(inherited).collect();
        for key in ["env", "environment"] {
            env.extend(self.pairs(key)?);
        }
        if let Some((name, _)) = env.iter().find(|(name, _)| name.is_empty() || name.contains(['=', '\0'])) {
            // Someone may have written `NAME=value` there.
            let name = name.split('=').next().unwrap_or_default();
            return Err(invalid(format!("{name:?} in 'env' is not a valid variable name")));
        }
        if std::iter::once(&command).chain(&args).chain(env.iter().map(|(_, v)| v)).any(|v| v.contains('\0'))
        {
            return Err(invalid("it contains a NUL character".into()));
        }
        let cwd = self.text("cwd")?.map(|text| self.scope.absolute(text)).transpose()?;
        Ok(Launch::Stdio { command, args, env, cwd })
    }

    fn http(&self, key: &str, older: bool) -> Result<Launch, Skip> {
        let url = self.scope.expand(self.text(key)?.unwrap_or_default())?.trim().to_owned();
        let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        if !matches!(scheme.as_deref(), Some("http" | "https")) || url.contains(char::is_whitespace) {
            return Err(invalid(format!("'{key}' must be a URL that starts with http:// or https://")));
        }
        let mut headers = self.pairs("headers")?;
        headers.extend(self.pairs("http_headers")?);
        for (name, variable) in self.pairs("env_http_headers")? {
            headers.push((name, self.scope.variable(&variable)?));
        }
        if let Some(Value::Text(variable)) = self.get("bearer_token_env_var").map(|node| &node.value) {
            headers.push(("Authorization".into(), format!("Bearer {}", self.scope.variable(variable)?)));
        }
        check_headers(&headers)?;
        Ok(Launch::Http { url, headers, older, options: Arc::new(self.http_options()?) })
    }

    /// Reads what else is said of a remote server.
    fn http_options(&self) -> Result<HttpOptions, Skip> {
        Ok(HttpOptions { oauth: self.oauth()?, ..self.certificates()? })
    }

    /// Reads which certificates connections use.
    pub(super) fn certificates(&self) -> Result<HttpOptions, Skip> {
        let file = |key| self.text(key)?.map(|text| self.scope.absolute(text)).transpose();
        let (client_cert, client_key) = (file("clientCert")?, file("clientKey")?);
        if client_key.is_some() && client_cert.is_none() {
            return Err(invalid("it has 'clientKey' without 'clientCert'".into()));
        }
        Ok(HttpOptions { ca_file: file("caFile")?, client_cert, client_key, ..HttpOptions::default() })
    }

    /// Reads how to log in. Programs of others write `false` there, or settings of their own, which are ignored.
    fn oauth(&self) -> Result<OAuthOptions, Skip> {
        let node = match self.get("oauth") {
            None | Some(Node { value: Value::Bool(_), .. }) => return Ok(OAuthOptions::default()),
            Some(node) if node.is_table() => node,
            Some(node) => return Err(invalid(format!("'oauth' must be an object, not {}", node.kind()))),
        };
        let fields = Fields { node, scope: self.scope };
        let text = |key| fields.text(key)?.map(|text| self.scope.expand(text)).transpose();
        let (client_id, client_secret) = (text("clientId")?, text("clientSecret")?);
        if client_secret.is_some() && client_id.is_none() {
            return Err(invalid("'oauth' has 'clientSecret' without 'clientId'".into()));
        }
        let client_metadata_url = text("clientMetadataUrl")?;
        if client_metadata_url.as_ref().is_some_and(|url| !url.starts_with("https://")) {
            return Err(invalid(
                "'clientMetadataUrl' in 'oauth' must be a URL that starts with https://".into(),
            ));
        }
        let mut scopes: Vec<String> = match fields.get("scopes") {
            Some(Node { value: Value::List(_), .. }) => fields.list("scopes")?,
            _ => text("scopes")?.into_iter().collect(),
        };
        scopes.extend(text("scope")?);
        let scopes = scopes.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect();
        let redirect = match (fields.port("redirectPort")?, fields.port("callbackPort")?) {
            (Some(port), _) => Some(Redirect { host: "127.0.0.1", port }),
            // Claude Code registers with this name.
            (None, Some(port)) => Some(Redirect { host: "localhost", port }),
            (None, None) => None,
        };
        Ok(OAuthOptions { client_id, client_secret, client_metadata_url, scopes, redirect })
    }

    fn port(&self, key: &str) -> Result<Option<u16>, Skip> {
        let Some(node) = self.get(key) else { return Ok(None) };
        let port = scalar(node).and_then(|text| text.parse().ok()).filter(|port| *port != 0);
        port.map(Some).ok_or_else(|| invalid(format!("'{key}' in 'oauth' must be a port, 1 to 65535")))
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>, Skip> {
        match self.get(key).map(|node| (node, &node.value)) {
            None => Ok(None),
            Some((_, Value::Bool(value))) => Ok(Some(*value)),
            Some((node, _)) => Err(invalid(format!("'{key}' must be true or false, not {}", node.kind()))),
        }
    }

    fn seconds(&self, key: &str) -> Result<Option<Duration>, Skip> {
        let Some(node) = self.get(key) else { return Ok(None) };
        let seconds = match &node.value {
            Value::Scalar(number) => number.parse::<f64>().ok(),
            _ => None,
        };
        match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).filter(|d| !d.is_zero()) {
            Some(duration) => Ok(Some(duration)),
            None => {
                let given = match &node.value {
                    Value::Scalar(number) => number.chars().take(LONGEST_NUMBER).collect(),
                    _ => node.kind().to_owned(),
                };
                Err(invalid(format!("'{key}' must be a number of seconds above zero, not {given}")))
            }
        }
    }

    /// Reads a list of strings, empty if there is none. Numbers and booleans are taken as written.
    pub(super) fn list(&self, key: &str) -> Result<Vec<String>, Skip> {
        let Some(node) = self.get(key) else { return Ok(Vec::new()) };
        let Value::List(items) = &node.value else {
            return Err(invalid(format!("'{key}' must be a list of strings, not {}", node.kind())));
        };
        let word = |item: &Node| match scalar(item) {
            Some(text) => self.scope.expand_path(&text),
            None => Err(invalid(format!("'{key}' must be a list of strings; {} is in it", item.kind()))),
        };
        items.iter().map(word).collect()
    }

    /// Reads a table of strings likewise. A null counts as missing.
    pub(super) fn pairs(&self, key: &str) -> Result<Vec<(String, String)>, Skip> {
        let Some(node) = self.get(key) else { return Ok(Vec::new()) };
        if !node.is_table() {
            return Err(invalid(format!("'{key}' must be an object of strings, not {}", node.kind())));
        }
        let mut pairs = Vec::new();
        for (name, value) in node.members() {
            match scalar(value) {
                Some(text) => pairs.push((name.clone(), self.scope.expand_path(&text)?)),
                None if value.value == Value::Null => {}
                None => {
                    return Err(invalid(format!(
                        "'{name}' in '{key}' must be a string, not {}",
                        value.kind()
                    )));
                }
            }
        }
        Ok(pairs)
    }
}

/// Checks headers, so that each of them can be sent.
pub(super) fn check_headers(headers: &[(String, String)]) -> Result<(), Skip> {
    for (name, value) in headers {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            return Err(invalid(format!("{name:?} is not a valid header name")));
        }
        if value.chars().any(|c| c.is_control() && c != '\t') {
            return Err(invalid(format!("header '{name}' has an invalid value")));
        }
    }
    Ok(())
}

fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) | Value::Scalar(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}
