//! Why a request on a connection has no result, without credentials.

use std::sync::Arc;
use std::time::Duration;

use codebridge_runtimes::exec::visible;
use rmcp::model::ErrorData;
use rmcp::service::ServiceError;

use super::connection::Connection;
use super::http::{self, HttpError};
use crate::upstream::error::UpstreamError;

impl Connection {
    pub(super) fn failed(&self, method: &str, error: ServiceError) -> UpstreamError {
        let server = Arc::clone(&self.parts.server);
        match error {
            ServiceError::McpError(error) => self.refused(method, error),
            ServiceError::TransportSend(error) => {
                let (launch, secrets) = (&self.parts.definition.launch, &self.parts.secrets);
                if let Some(HttpError::Login(error)) = http::http_error(&*error.error) {
                    return UpstreamError::Login(Box::new(error.clone()));
                }
                if let Some(HttpError::Status { status, body }) = http::http_error(&*error.error)
                    && let Some(url) = launch.public_url()
                {
                    let (url, body) = (secrets.redact(&url), secrets.redact(body));
                    return UpstreamError::Http {
                        server,
                        status: *status,
                        url,
                        body,
                        has_login: launch.has_login(),
                    };
                }
                let why = http::message_of(&*error.error).unwrap_or_else(|| error.error.to_string());
                UpstreamError::Unreachable { server, why: self.parts.secrets.redact(&why) }
            }
            error => {
                UpstreamError::Unreachable { server, why: self.parts.secrets.redact(&error.to_string()) }
            }
        }
    }

    pub(super) fn refused(&self, method: &str, error: ErrorData) -> UpstreamError {
        UpstreamError::Refused {
            server: Arc::clone(&self.parts.server),
            method: method.to_owned(),
            code: error.code.0,
            message: visible(&self.parts.secrets.redact(&error.message)),
            data: error.data.map(|data| Box::new(self.parts.secrets.redact_value(data))),
        }
    }

    pub(super) fn malformed(&self, method: &str, why: &str) -> UpstreamError {
        UpstreamError::Malformed {
            server: Arc::clone(&self.parts.server),
            method: method.to_owned(),
            why: self.parts.secrets.redact(why),
        }
    }

    pub(super) fn dropped(&self, tool: &str, bytes: usize) -> UpstreamError {
        UpstreamError::Unread { server: Arc::clone(&self.parts.server), tool: tool.to_owned(), bytes }
    }

    pub(super) fn cancelled(&self, method: &str) -> UpstreamError {
        UpstreamError::Cancelled { server: Arc::clone(&self.parts.server), method: method.to_owned() }
    }

    pub(super) fn timed_out(&self, method: &str, limit: Duration) -> UpstreamError {
        UpstreamError::TimedOut {
            server: Arc::clone(&self.parts.server),
            method: method.to_owned(),
            limit,
            by_definition: self.parts.definition.call_timeout == Some(limit),
        }
    }

    pub(super) async fn ended(&self) -> UpstreamError {
        let how = self.parts.exit_status().await.unwrap_or_else(|| "it closed the connection".into());
        UpstreamError::Ended { server: Arc::clone(&self.parts.server), how, stderr: self.parts.stderr() }
    }
}
