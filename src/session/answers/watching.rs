//! Lets code watch resources of servers that its run may use.

use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::access::{ServerAccess, UnderWay};
use super::watches::MOST;
use crate::policy::Kind;
use crate::session::questions::{Answer, OneWatch, QuestionError, ResourceWanted, ok};

/// What code waits for, beside the name of the server.
const CHANGE: &str = "resources/subscribe";

impl ServerAccess {
    /// Begins to watch a resource, if the current run may use its server.
    pub(in crate::session) async fn watch(
        &self,
        wanted: ResourceWanted,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let ResourceWanted { server, uri, line } = wanted;
        let granted = self.granted_for(&server, (Some(Kind::Resource), &uri), cancel).await?;
        if self.watches.is_full() {
            return Err(QuestionError::plain(format!(
                "this session watches {MOST} resources, which is the limit; hint: close() those that are not needed"
            )));
        }
        let server = Arc::clone(&granted.server);
        let options = self.options(granted, CHANGE, line, cancel);
        let _under_way = UnderWay::new(self, &server, Some(CHANGE));
        let watch = self.upstream.watch(&server, &uri, options).await?;
        let number = self.watches.add(server, watch);
        Answer::work(move || ok(&json!({ "watch": number })))
    }

    /// Waits for the next change of a resource.
    pub(in crate::session) async fn next_change(
        &self,
        wanted: OneWatch,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let open = self.watches.get(wanted.watch);
        let open = open.ok_or_else(|| QuestionError::plain("this resource is not watched any more"))?;
        // A later run may not be allowed what an earlier one was.
        self.granted(&open.server.name, cancel).await?;
        let _under_way = UnderWay::new(self, &open.server, Some(CHANGE));
        let mut watch = tokio::select! {
            watch = open.watch.lock() => watch,
            () = cancel.cancelled() => return Err(QuestionError::plain("cancelled")),
        };
        watch.changed(cancel).await?;
        let uri = watch.uri().to_owned();
        Answer::work(move || ok(&json!({ "uri": uri })))
    }

    /// Ends a watch.
    pub(in crate::session) fn end_watch(&self, wanted: &OneWatch) -> Result<Answer, QuestionError> {
        self.watches.end(wanted.watch);
        Answer::work(|| ok(&()))
    }
}
