//! Calls as tasks: the client gets an answer at once, looks at the task as often as it likes, and fetches the result.
//!
//! ```text
//! registry (the tasks of a user) ─▶ task (one: its state, what it asks, its result)
//! older (protocol 2025-11-25, where the call asks for a task) , newer (the extension, where the bridge decides)
//! ```

mod newer;
mod older;
mod registry;
mod task;

pub(super) use newer::{cancel_task, get_task, task_or_result, update_task, wants_task};
pub(super) use older::{Asked, answer, begun, listed, notify_changes, speaks};
pub(super) use registry::Tasks;
pub(super) use task::{Task, TaskAnswers};
