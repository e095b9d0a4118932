//! Servers that code wants to add. The person approves each, whatever the policy says.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::Upstream;
use crate::audit::{Approved, Denied as DeniedLine};
use crate::policy::{Kind, Verdict};
use crate::upstream::additions::{AddError, NewFrom, NewServer, Planned, plan};
use crate::upstream::called_by::CalledBy;
use crate::upstream::denied::Denied;
use crate::upstream::discovery::{ChangeError, Server};
use crate::upstream::error::UpstreamError;
use crate::upstream::person::{Decision, ask_person};
use crate::upstream::questions::Answers;

/// Servers that the person has not approved before nothing more is asked: code could show one form after the other.
const MOST_UNAPPROVED: u32 = 3;

impl Upstream {
    /// Adds a server that code wants, once the person has approved it.
    ///
    /// # Errors
    /// It cannot be added, the policy denies it, or nobody has approved it. Then nothing has changed.
    pub async fn add_server(
        &self,
        new: NewServer,
        by: &CalledBy,
        answers: &dyn Answers,
    ) -> Result<Arc<Server>, AddError> {
        let is_one_of_many = self.0.user.operator_dir.is_some();
        if is_one_of_many && new.for_good {
            return Err(AddError::NotForGood);
        }
        self.usable()?;
        let entry = match &new.from {
            NewFrom::Registry(name) => Some(self.0.registry.get(name).await?),
            NewFrom::Url { .. } | NewFrom::Command { .. } => None,
        };
        let planned = plan(&new, entry.as_ref())?;
        if is_one_of_many && planned.is_command {
            return Err(AddError::OnlyUrls);
        }
        self.0.discovery.check_new(&planned.name)?;
        self.0.discovery.check_definition(&planned.name, &planned.definition)?;
        if let Err(error) = self.approve(&planned, new.for_good, by, answers).await {
            if error.is_denial() {
                self.record(&planned, by, &error).await;
            }
            return Err(error);
        }
        let outcome = if new.for_good { "added-for-good" } else { "added" };
        let kind = Kind::Server.to_string();
        let line = Approved::new(Arc::clone(&by.facts), &kind, &planned.subject, outcome).of(&planned.name);
        self.0.audit.approved(line).await.map_err(|why| AddError::Unrecorded(planned.name.clone(), why))?;
        tracing::info!(server = planned.name, for_good = new.for_good, "the user has approved a new server");
        let Planned { name, definition, .. } = planned;
        let (upstream, added) = (self.clone(), name.clone());
        let write = move || {
            let discovery = &upstream.0.discovery;
            match new.for_good {
                true => discovery.add(&added, &definition).map(drop),
                false => discovery.add_for_now(&added, &definition),
            }
        };
        spawn_blocking(write).await.unwrap_or_else(|_| Err(ChangeError::Unknown(name.clone())))?;
        Ok(self.server(&name)?)
    }

    /// Asks policy and person.
    async fn approve(
        &self,
        planned: &Planned,
        for_good: bool,
        by: &CalledBy,
        answers: &dyn Answers,
    ) -> Result<(), AddError> {
        let denied = |why| UpstreamError::NotAllowed {
            kind: Kind::Server,
            name: planned.subject.clone(),
            why: Arc::new(why),
        };
        match self.0.policy.rules().map_err(|error| denied(Denied::Policy(error)))? {
            None if self.0.user.operator_dir.is_some() => return Err(AddError::NoPolicy),
            None => {}
            Some(rules) => {
                if let Verdict::Deny(denial) = rules.of(Kind::Server, &planned.subject, &by.caller()) {
                    return Err(denied(Denied::Rule(denial)).into());
                }
            }
        }
        let mut unapproved = self.0.unapproved.lock().await;
        if *unapproved >= MOST_UNAPPROVED {
            return Err(AddError::AskedTooOften);
        }
        let request = planned.request(by.session.as_deref(), for_good);
        let decision = ask_person(answers, &request).await;
        self.0.telemetry.answered(decision.name());
        let name = || planned.name.clone();
        match decision {
            Decision::Approved => Ok(()),
            Decision::NotAsked => Err(AddError::NobodyToAsk(name())),
            Decision::Refused => {
                *unapproved += 1;
                Err(AddError::Refused(name()))
            }
            Decision::Unanswered => {
                *unapproved += 1;
                Err(AddError::Unanswered(name()))
            }
        }
    }

    async fn record(&self, planned: &Planned, by: &CalledBy, error: &AddError) {
        let verdict = match error {
            AddError::Refused(_) => "refused",
            AddError::Unanswered(_) => "unanswered",
            AddError::NobodyToAsk(_) => "nobody-to-ask",
            _ => "denied",
        };
        let (facts, kind, name) = (Arc::clone(&by.facts), Kind::Server.to_string(), planned.subject.clone());
        let error = error.to_string();
        self.0.audit.denied(DeniedLine { facts, kind, name, verdict, rule: None, error }).await;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;
    use crate::audit::Audit;
    use crate::policy::{Policy, Source};
    use crate::reaper::Reaper;
    use crate::telemetry::Telemetry;
    use crate::upstream::discovery::{Surroundings, User};
    use crate::upstream::pool::Limits;
    use crate::upstream::questions::{Answering, ClientId, NoAnswers, Offers, Question};

    /// Gives the same answer to every question, and keeps the questions.
    #[derive(Debug)]
    struct Says(&'static str, Mutex<Vec<String>>);

    impl Says {
        fn asked(&self) -> usize {
            self.1.lock().unwrap().len()
        }
    }

    impl Answers for Says {
        fn client(&self) -> ClientId {
            ClientId::default()
        }

        fn offers(&self) -> Offers {
            Offers { elicitation: true, ..Offers::default() }
        }

        fn answer(&self, question: Question) -> Answering<'_> {
            let message = question.params.unwrap()["message"].as_str().unwrap().to_owned();
            self.1.lock().unwrap().push(message);
            let answer = match self.0 {
                "yes" => json!({ "action": "accept", "content": { "approve": true } }),
                other => json!({ "action": other }),
            };
            Box::pin(async move { Ok::<Value, _>(answer) })
        }
    }

    fn says(answer: &'static str) -> Says {
        Says(answer, Mutex::default())
    }

    fn upstream(dir: &Path, rules: Option<&str>, is_one_of_many: bool) -> Upstream {
        let user = User { principal: "ann".into(), operator_dir: is_one_of_many.then(|| dir.to_owned()) };
        let surroundings =
            Surroundings { cwd: dir.join("cwd"), state_dir: dir.to_owned(), user, ..Surroundings::default() };
        let policy = rules.map(|rules| {
            let file = dir.join("policy.toml");
            std::fs::write(&file, rules).unwrap();
            Policy::new(Source::Named(file), dir.join("pins"))
        });
        let policy = Arc::new(policy.unwrap_or_else(Policy::none));
        Upstream::with(
            surroundings,
            Limits::default(),
            Reaper::of(None),
            policy,
            Telemetry::default(),
            Audit::off(),
        )
    }

    fn new(name: &str, from: NewFrom) -> NewServer {
        NewServer { name: Some(name.into()), description: None, from, for_good: false }
    }

    fn command(name: &str) -> NewServer {
        new(name, NewFrom::Command { words: vec!["some-program".into()], env: Default::default() })
    }

    fn url(name: &str, url: &str) -> NewServer {
        new(name, NewFrom::Url { url: url.into(), headers: Default::default() })
    }

    async fn add(upstream: &Upstream, new: NewServer, answers: &dyn Answers) -> Result<Arc<Server>, String> {
        upstream.add_server(new, &CalledBy::default(), answers).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_server_is_there_once_the_person_has_said_yes() {
        let dir = tempfile::tempdir().unwrap();
        let upstream = upstream(dir.path(), None, false);
        let yes = says("yes");
        assert_eq!(&*add(&upstream, command("a-b"), &yes).await.unwrap().alias, "a_b");
        assert!(!dir.path().join("servers.json").exists());
        let exists = add(&upstream, command("a-b"), &yes).await.unwrap_err();
        assert!(exists.contains("is defined already, in approved in this session"), "{exists}");
        let for_good = NewServer { for_good: true, ..url("c", "https://c.example/mcp") };
        let _ = add(&upstream, for_good, &yes).await.unwrap();
        let written = std::fs::read_to_string(dir.path().join("servers.json")).unwrap();
        assert!(written.contains("https://c.example/mcp") && !written.contains("some-program"), "{written}");
        let asked = yes.1.lock().unwrap().clone();
        assert!(
            asked.len() == 2 && asked[0].contains("some-program") && asked[1].contains("for good"),
            "{asked:?}"
        );
    }

    #[tokio::test]
    async fn without_a_yes_nothing_is_added_and_the_person_is_not_asked_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let upstream = upstream(dir.path(), None, false);
        let nobody = add(&upstream, command("a"), &NoAnswers::default()).await.unwrap_err();
        assert!(nobody.contains("nobody can be asked"), "{nobody}");
        let (no, closed) = (says("decline"), says("cancel"));
        assert!(add(&upstream, command("a"), &no).await.unwrap_err().contains("said no"));
        assert!(add(&upstream, command("b"), &closed).await.unwrap_err().contains("gave no answer"));
        assert!(add(&upstream, command("c"), &no).await.unwrap_err().contains("said no"));
        let yes = says("yes");
        assert!(add(&upstream, command("d"), &yes).await.unwrap_err().contains("has not approved"));
        assert_eq!((no.asked(), closed.asked(), yes.asked()), (2, 1, 0));
        assert!(upstream.snapshot().servers.is_empty());
    }

    #[tokio::test]
    async fn the_policy_denies_before_anybody_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let rules = "[[rule]]\nkind = 'server'\nname = '*.good.example'\neffect = 'allow'\n\
                     [[rule]]\nkind = 'server'\nname = 'some-program'\neffect = 'deny'\nreason = 'by hand'\n";
        let upstream = upstream(dir.path(), Some(rules), false);
        let yes = says("yes");
        let denied = add(&upstream, command("a"), &yes).await.unwrap_err();
        assert!(
            denied.contains("the server 'some-program' is denied") && denied.contains("by hand"),
            "{denied}"
        );
        for other in ["https://evil.example/?x=.good.example", "https://evil.example/a.good.example"] {
            assert!(add(&upstream, url("b", other), &yes).await.unwrap_err().contains("no rule"), "{other}");
        }
        assert_eq!(yes.asked(), 0);
        let _ = add(&upstream, url("b", "https://mcp.good.example/"), &yes).await.unwrap();
        assert_eq!(yes.asked(), 1);
    }

    #[tokio::test]
    async fn one_of_many_users_adds_urls_only_where_a_policy_says_so_and_not_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let yes = says("yes");
        let without = upstream(dir.path(), None, true);
        let refused = add(&without, url("a", "https://a.example/"), &yes).await.unwrap_err();
        assert!(refused.contains("only where a policy says which"), "{refused}");
        let allowed = upstream(dir.path(), Some("[[rule]]\nkind = 'server'\neffect = 'allow'\n"), true);
        assert!(add(&allowed, command("a"), &yes).await.unwrap_err().contains("with a URL only"));
        let for_good = NewServer { for_good: true, ..url("a", "https://a.example/") };
        assert!(add(&allowed, for_good, &yes).await.unwrap_err().contains("only the operator"));
        assert_eq!(yes.asked(), 0);
        let _ = add(&allowed, url("a", "https://a.example/"), &yes).await.unwrap();
        assert!(!dir.path().join("servers.json").exists());
    }
}
