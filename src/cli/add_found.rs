//! `codebridge servers add NAME` for a server of a registry: shows what it is, and asks for what it needs.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::AddArgs;
use super::ask::{Person, Typed};
use super::find::need;
use super::say::say;
use super::servers_error::ServersError;
use crate::upstream::registry::{Entry, Listed, Recipe, Wanted};
use crate::upstream::short_name;
use crate::workspace::Workspace;

/// Whether a text is the name of a server in registries.
pub(super) fn is_name(text: &str) -> bool {
    !text.contains("://")
        && text.split_once('/').is_some_and(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
}

/// Returns the name and the definition of a server, once the person has agreed.
pub(super) async fn plan(
    workspace: &Workspace,
    args: &AddArgs,
    wanted: &str,
) -> Result<(String, Map<String, Value>), ServersError> {
    let entry = workspace.upstream.registry().get(wanted).await?;
    let recipe = choose(&entry, args.from.as_deref())?;
    let name = args.name.clone().or_else(|| short_name(&entry.name)).ok_or(ServersError::NoName)?;
    workspace.upstream.definitions().check_new(&name)?;
    show(&entry, &recipe);
    let person = Person::find();
    if !args.yes {
        let confirmed = person.confirms(&format!("Add it as '{name}'?"));
        match confirmed.map_err(|source| ServersError::Value { name: name.clone(), source })? {
            Some(true) => {}
            Some(false) => return Err(ServersError::Stopped),
            None => return Err(ServersError::Unconfirmed(entry.name)),
        }
    }
    let mut answers = BTreeMap::new();
    for wanted in recipe.wanted().into_iter().filter(Wanted::is_asked) {
        let answer = answer(&person, &wanted)?;
        answers.insert(wanted.id, answer);
    }
    let Value::Object(mut definition) = recipe.definition(&answers) else { return Err(ServersError::NoName) };
    if args.description.is_none() && !entry.description.is_empty() {
        definition.insert("description".into(), entry.description.into());
    }
    Ok((name, definition))
}

fn choose(entry: &Entry, from: Option<&str>) -> Result<Recipe, ServersError> {
    let recipes = entry.recipes();
    let is_wanted = |recipe: &&Recipe| from.is_none_or(|from| recipe.kind == from);
    if let Some(recipe) = recipes.iter().flatten().find(is_wanted) {
        return Ok(recipe.clone());
    }
    let kinds: Vec<&str> = recipes.iter().flatten().map(|recipe| recipe.kind).collect();
    let reasons: Vec<String> = recipes.iter().filter_map(|it| Some(it.as_ref().err()?.to_string())).collect();
    let why = match (kinds.is_empty(), reasons.is_empty(), from) {
        (false, _, Some(from)) => format!("it has no '{from}', only {}", kinds.join(", ")),
        (_, false, _) => reasons.join("; "),
        _ => "the registry says of no package and no URL".into(),
    };
    Err(ServersError::NoRecipe { name: entry.name.clone(), why })
}

fn show(entry: &Entry, recipe: &Recipe) {
    let listed = Listed::of(entry);
    say(format_args!("{} {}, published by {}", listed.name, listed.version, listed.publisher));
    if !listed.description.is_empty() {
        say(format_args!("  {}", listed.description));
    }
    if listed.deprecated {
        say("  its publisher advises against it: deprecated");
    }
    let does = if recipe.transport() == "stdio" { "runs, with your rights" } else { "connects to" };
    say(format_args!("  {does}: {}", recipe.shown()));
    for given in recipe.given() {
        say(format_args!("  sets: {given}"));
    }
    if let Some(option) = listed.options.iter().find(|option| option.runs == recipe.shown())
        && !option.needs.is_empty()
    {
        say(format_args!("  needs: {}", option.needs.iter().map(need).collect::<Vec<_>>().join(", ")));
    }
}

/// Asks for a value until it can be one.
fn answer(person: &Person, wanted: &Wanted) -> Result<String, ServersError> {
    let mut about = wanted.name.clone();
    if !wanted.description.is_empty() {
        about.push_str(&format!(", {}", wanted.description));
    }
    if !wanted.choices.is_empty() {
        about.push_str(&format!(" ({})", wanted.choices.join(", ")));
    }
    if !wanted.is_required {
        about.push_str(" (may be empty)");
    }
    loop {
        let typed = match wanted.is_secret {
            true => person.secret(&format!("{about} (not shown): ")),
            false => person.text(&format!("{about}: ")),
        };
        let name = || wanted.name.clone();
        match typed.map_err(|source| ServersError::Value { name: name(), source })? {
            Typed::Line(value) if value.is_empty() && !wanted.is_required => return Ok(value),
            Typed::Line(value)
                if !value.is_empty() && (wanted.choices.is_empty() || wanted.choices.contains(&value)) =>
            {
                return Ok(value);
            }
            Typed::Line(_) if person.is_there() => {}
            Typed::Stopped => return Err(ServersError::Stopped),
            Typed::End if !wanted.is_required => return Ok(String::new()),
            Typed::Line(_) | Typed::End => return Err(ServersError::NoValue(name())),
        }
    }
}
