//! What can be removed without a question of the user's wishes: versions beyond the limit, as there are when it was lowered, and
//! what bridges that were killed have left.

use std::fs::File;
use std::path::PathBuf;

use super::ArtifactError;
use super::space::cost;
use super::store::{Artifact, Artifacts};
use crate::sizes::{Amount, disk_usage};

/// What there is of it.
#[derive(Debug, Default)]
struct Surplus {
    versions: Vec<Artifact>,
    left_over: Vec<PathBuf>,
}

impl Surplus {
    fn amount(&self) -> Amount {
        let left_over: u64 = self.left_over.iter().map(|path| disk_usage(path)).sum();
        let bytes = self.versions.iter().map(|artifact| cost(artifact.bytes)).sum::<u64>() + left_over;
        Amount { count: self.versions.len() + self.left_over.len(), bytes }
    }
}

impl Artifacts {
    /// Returns what [`Artifacts::remove_surplus`] would remove.
    ///
    /// # Errors
    /// The folder cannot be locked.
    pub fn surplus(&self) -> Result<Amount, ArtifactError> {
        let Some(_lock) = self.lock_if_any()? else { return Ok(Amount::default()) };
        Ok(self.find_surplus()?.amount())
    }

    /// Removes versions until the others are within the limit, and what dead bridges have left. Versions that a later one of their
    /// name has replaced go first, then the oldest.
    ///
    /// # Errors
    /// A version cannot be removed.
    pub fn remove_surplus(&self) -> Result<Amount, ArtifactError> {
        let Some(_lock) = self.lock_if_any()? else { return Ok(Amount::default()) };
        let surplus = self.find_surplus()?;
        surplus.versions.iter().try_for_each(|artifact| self.remove_version(artifact))?;
        self.sweep(&self.staging()?);
        Ok(surplus.amount())
    }

    fn lock_if_any(&self) -> Result<Option<File>, ArtifactError> {
        if self.exists() { self.lock().map(Some) } else { Ok(None) }
    }

    fn find_surplus(&self) -> Result<Surplus, ArtifactError> {
        let left_over = self.left_over(&self.staging()?);
        let (mut used, _) = self.kept();
        if used <= self.limit() {
            return Ok(Surplus { versions: Vec::new(), left_over });
        }
        let all = self.all();
        let is_latest = |index: usize| all.get(index + 1).is_none_or(|next| next.name != all[index].name);
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|index| (is_latest(*index), all[*index].created, *index));
        let mut versions = Vec::new();
        for index in order {
            if used <= self.limit() {
                break;
            }
            used = used.saturating_sub(cost(all[index].bytes));
            versions.push(all[index].clone());
        }
        Ok(Surplus { versions, left_over })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Origin;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn save(state: &Path, name: &str) {
        let mut staged = Artifacts::at(state, 100 * MIB).begin(name, None).unwrap();
        staged.write(&vec![0; MIB as usize]).unwrap();
        let _ = staged.commit(Origin::default()).unwrap();
    }

    fn left(artifacts: &Artifacts) -> Vec<String> {
        artifacts.all().iter().map(|one| format!("{} {}", one.name, one.version)).collect()
    }

    #[test]
    fn within_the_limit_nothing_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::at(dir.path(), 2 * MIB);
        assert_eq!(artifacts.remove_surplus().unwrap(), Amount::default());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is made");
        save(dir.path(), "a");
        save(dir.path(), "a");
        assert_eq!(artifacts.remove_surplus().unwrap(), Amount::default());
        assert_eq!(left(&artifacts), ["a 1", "a 2"]);
    }

    #[test]
    fn replaced_versions_go_first_and_then_the_oldest() {
        let dir = tempfile::tempdir().unwrap();
        for (age, (name, version)) in [("b", 1), ("a", 1), ("a", 2), ("c", 1), ("a", 3)].iter().enumerate() {
            save(dir.path(), name);
            // They are saved within a second, which is as exact as the time is kept.
            let about = dir.path().join(format!("artifacts/{name}/{version}/about.json"));
            let mut artifact: Artifact = serde_json::from_slice(&std::fs::read(&about).unwrap()).unwrap();
            artifact.created = jiff::Timestamp::from_second(1_700_000_000 + age as i64).unwrap();
            std::fs::write(&about, serde_json::to_vec(&artifact).unwrap()).unwrap();
        }
        let at = |limit: u64| Artifacts::at(dir.path(), limit * MIB);
        assert_eq!(at(4).surplus().unwrap(), Amount { count: 1, bytes: MIB });
        assert_eq!(left(&at(4)).len(), 5, "a look removes nothing");
        let _ = at(4).remove_surplus().unwrap();
        assert_eq!(left(&at(4)), ["a 2", "a 3", "b 1", "c 1"]);
        let _ = at(2).remove_surplus().unwrap();
        assert_eq!(left(&at(2)), ["a 3", "c 1"]);
    }

    #[test]
    fn what_a_dead_bridge_left_is_removed_and_what_is_being_saved_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::at(dir.path(), 100 * MIB);
        let staged = artifacts.begin("kept", None).unwrap();
        let dead = dir.path().join("artifacts/.staging/0123");
        std::fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join("content"), vec![1; 9000]).unwrap();
        assert_eq!(artifacts.surplus().unwrap().count, 1);
        assert_eq!(artifacts.remove_surplus().unwrap().count, 1);
        assert!(!dead.exists());
        let _ = staged.commit(Origin::default()).unwrap();
        assert_eq!(left(&artifacts), ["kept 1"]);
    }
}
