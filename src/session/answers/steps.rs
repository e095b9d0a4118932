//! Steps of a workflow: what code reports of them goes to its journal.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::session::questions::{Answer, FailedStep, FinishedStep, QuestionError, Step, ok};
use crate::workflows::{Journal, WorkflowError};

/// What a step that begins learns.
#[derive(Serialize)]
struct Known {
    finished: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
}

pub(super) fn begin(journal: Arc<Journal>, step: Step) -> Result<Answer, QuestionError> {
    Answer::work(move || {
        let result = journal.begin_step(&step.id(), step.arguments())?;
        ok(&Known { finished: result.is_some(), result })
    })
}

pub(super) fn finish(
    journal: Arc<Journal>,
    FinishedStep { step, result }: FinishedStep,
) -> Result<Answer, QuestionError> {
    Answer::work(move || {
        journal.finish_step(&step.id(), step.arguments(), &result)?;
        ok(&())
    })
}

pub(super) fn fail(
    journal: Arc<Journal>,
    FailedStep { step, attempt, error }: FailedStep,
) -> Result<Answer, QuestionError> {
    Answer::work(move || {
        journal.fail_step(&step.id(), attempt, &error)?;
        ok(&())
    })
}

impl From<WorkflowError> for QuestionError {
    fn from(error: WorkflowError) -> Self {
        // The folder of the journal is none of the sandbox's business.
        let message = match (&error, error.hint()) {
            (WorkflowError::Io { source, .. }, _) => {
                format!("the workflow has stopped: its journal could not be written: {source}")
            }
            (WorkflowError::Stopped(_), _) => {
                "the workflow has stopped: its journal could not be written".into()
            }
            (_, Some(hint)) => format!("{error}; hint: {hint}"),
            (_, None) => error.to_string(),
        };
        Self { kind: Some("workflow"), message }
    }
}
