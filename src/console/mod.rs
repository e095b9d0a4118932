//! The web console: what runs, what ran, and what waits for an answer, for one user in a browser.
//!
//! Its pages are HTML that the server writes; the one script brings news into a page that is open. Everything that comes from code,
//! servers and files is text here: templates escape it, `text` shows what would steer or hide, and files are never documents of
//! this origin.
//!
//! ```text
//! routes        paths and the headers of all answers
//! visitor       who sends a request ─▶ visits (browsers that are signed in) ─▶ cookie, form
//! login         logs the user in to a remote server ─▶ logins (those that have begun)
//! sign_in, now, runs, run, …   one file for each page, with the template of the same name in `pages`
//! live          news for pages that are open
//! history       runs of the audit log ─▶ text, page
//! ```

mod approvals;
mod artifacts;
mod assets;
mod calls;
mod cookie;
mod fields;
mod files;
mod form;
mod frame;
mod history;
mod live;
mod login;
mod logins;
mod now;
mod numbers;
mod page;
mod routes;
mod run;
mod runs;
mod servers;
mod session_files;
mod sessions;
mod sign_in;
mod text;
mod visitor;
mod visits;

pub use routes::routes;
