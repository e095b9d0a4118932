//! Sends requests to one server, with the credentials of its definition or the login of the user.

use codebridge_runtimes::exec::visible_line;
use http::{HeaderMap, Method, StatusCode, header};
use reqwest::{Client, Response};
use rmcp::transport::WWWAuthenticateParams;

use super::client::{HttpError, client, error_response, header_map};
use crate::upstream::discovery::HttpOptions;
use crate::upstream::login::Bearer;

/// Permissions that a server may ask for at once, and characters of their names.
const MOST_SCOPES: usize = 32;
const LONGEST_SCOPE: usize = 200;

/// A server, as its definition has it.
#[derive(Debug, Clone)]
pub(in crate::upstream::pool) struct Remote<'a> {
    pub(in crate::upstream::pool) url: &'a str,
    pub(in crate::upstream::pool) headers: &'a [(String, String)],
    pub(in crate::upstream::pool) options: &'a HttpOptions,
    /// The login of the user; None if the definition has one.
    pub(in crate::upstream::pool) bearer: Option<Bearer>,
}

/// Sends requests to one server.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    http: Client,
    headers: HeaderMap,
    bearer: Option<Bearer>,
}

impl Sender {
    pub(super) fn new(remote: Remote<'_>) -> Result<Self, HttpError> {
        let Remote { url, headers, options, bearer } = remote;
        Ok(Self { http: client(url, options)?, headers: header_map(headers), bearer })
    }

    /// Sends a request with the headers of the definition and these; these win. If the server refuses the login, it is renewed once.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &str,
        more: HeaderMap,
        body: Option<Vec<u8>>,
    ) -> Result<Response, HttpError> {
        let mut headers = self.headers.clone();
        // A `HeaderMap` replaces headers, other collections add to them.
        headers.extend(more);
        let Some(bearer) = &self.bearer else { return self.attempt(method, url, headers, body).await };
        let Some(login) = bearer.header().await.map_err(HttpError::Login)? else {
            return self.attempt(method, url, headers, body).await;
        };
        headers.insert(header::AUTHORIZATION, login.clone());
        let response = self.attempt(method.clone(), url, headers.clone(), body.clone()).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let Some(login) = bearer.header_after(&login).await.map_err(HttpError::Login)? else {
            return Ok(response);
        };
        headers.insert(header::AUTHORIZATION, login);
        self.attempt(method, url, headers, body).await
    }

    async fn attempt(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: Option<Vec<u8>>,
    ) -> Result<Response, HttpError> {
        let mut request = self.http.request(method, url).headers(headers);
        if let Some(body) = body {
            request = request.body(body);
        }
        Ok(request.send().await?)
    }

    /// Returns the error for an error response, and its body. The permissions that it asks for are those of the next login.
    pub(super) async fn refused(&self, response: Response) -> (HttpError, Vec<u8>) {
        let status = response.status();
        let scopes = missing_scopes(&response);
        let (error, bytes) = error_response(response).await;
        match (&self.bearer, scopes) {
            (Some(bearer), Some(scopes)) => {
                bearer.wants(&scopes).await;
                let body = format!(": it wants the permissions '{}'", visible_line(&scopes.join(" ")));
                (HttpError::Status { status, body }, bytes)
            }
            _ => (error, bytes),
        }
    }
}

/// Returns the permissions that the login lacks, if the server says that.
fn missing_scopes(response: &Response) -> Option<Vec<String>> {
    if response.status() != StatusCode::FORBIDDEN {
        return None;
    }
    let challenges = response.headers().get_all(header::WWW_AUTHENTICATE).iter();
    challenges.filter_map(|value| value.to_str().ok()).find_map(|value| {
        let challenge = WWWAuthenticateParams::parse(value, response.url());
        let scopes = challenge.scope.as_deref().filter(|_| challenge.is_insufficient_scope())?;
        let is_scope =
            |scope: &&str| scope.len() <= LONGEST_SCOPE && scope.bytes().all(|byte| byte.is_ascii_graphic());
        let scopes = scopes.split_whitespace().filter(is_scope).take(MOST_SCOPES);
        let scopes: Vec<String> = scopes.map(str::to_owned).collect();
        (!scopes.is_empty()).then_some(scopes)
    })
}
