//! Maps the ids of a sandbox's user namespace to ids of the host.

use std::fs;

use oci_spec::OciSpecError;
use oci_spec::runtime::{LinuxIdMapping, LinuxIdMappingBuilder};

use crate::plan::Supply;
use crate::spec::User;
use crate::subids::{parse_subids, user_name};

/// As root: a range above those that systemd, distributions and `useradd` hand out
/// (<https://systemd.io/UIDS-GIDS/>), so that no file and no process of the host has such an owner.
const ROOT_RANGE_START: u32 = 1_900_000_000;
/// Ids 0 to 65535, as a container expects them.
const RANGE_SIZE: u32 = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    inside: u32,
    outside: u32,
    size: u32,
}

/// The maps of a sandbox's user namespace, and the user of its process inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdMaps {
    uids: Vec<Range>,
    gids: Vec<Range>,
    /// The user of the process; not the requested one when only a single id can be mapped.
    pub(crate) user: User,
}

impl IdMaps {
    /// Returns the best maps that this user can have, and how the sandbox gets its shares with them: a high range for root; for
    /// others their subordinate ids, or only themselves. With `as_owner`, the sandbox's user is this user, and nobody else is.
    pub(crate) fn of_this_user(user: User, as_owner: bool) -> (Self, Supply) {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        if uid.is_root() {
            let maps = Self::as_root(user);
            let User { uid, gid } = maps.user;
            return (maps, Supply::Mapped(User { uid: ROOT_RANGE_START + uid, gid: ROOT_RANGE_START + gid }));
        }
        let name = user_name(uid.as_raw());
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let helpers = ["newuidmap", "newgidmap"].iter().all(|name| which::which(name).is_ok());
        let subuids = parse_subids(&read("/etc/subuid"), name.as_deref(), uid.as_raw()).next();
        let subgids = parse_subids(&read("/etc/subgid"), name.as_deref(), uid.as_raw()).next();
        match (subuids, subgids) {
            (Some(subuids), Some(subgids)) if helpers => {
                let (uids, gids) = ((uid.as_raw(), subuids), (gid.as_raw(), subgids));
                match Self::as_owner(user, uids, gids).filter(|_| as_owner) {
                    Some(maps) => (maps, Supply::Mounted),
                    None => (Self::with_subids(user, uids, gids), Supply::Copied),
                }
            }
            _ => (Self::single(uid.as_raw(), gid.as_raw()), Supply::Mounted),
        }
    }

    /// Maps the sandbox's user to ourselves, and everything below it to subordinate ids. The runtime sets the sandbox up as 0, which
    /// is a subordinate id. None if there are too few of them.
    fn as_owner(
        user: User,
        (uid, subuids): (u32, (u32, u32)),
        (gid, subgids): (u32, (u32, u32)),
    ) -> Option<Self> {
        let map = |inside: u32, own: u32, (start, size): (u32, u32)| {
            let below = Range { inside: 0, outside: start, size: inside };
            (inside > 0 && size >= inside).then(|| vec![below, Range { inside, outside: own, size: 1 }])
        };
        Some(Self { uids: map(user.uid, uid, subuids)?, gids: map(user.gid, gid, subgids)?, user })
    }

    fn as_root(user: User) -> Self {
        let range = Range { inside: 0, outside: ROOT_RANGE_START, size: RANGE_SIZE };
        // The last id takes the place of those beyond the range.
        let inside = |id: u32| id.min(RANGE_SIZE - 1);
        Self {
            uids: vec![range],
            gids: vec![range],
            user: User { uid: inside(user.uid), gid: inside(user.gid) },
        }
    }

    /// Maps 0 to ourselves and everything else to subordinate ids; the sandbox's process gets only subordinate ids.
    fn with_subids(user: User, (uid, subuids): (u32, (u32, u32)), (gid, subgids): (u32, (u32, u32))) -> Self {
        let map = |own, (start, size): (u32, u32)| {
            let size = size.min(RANGE_SIZE - 1);
            vec![Range { inside: 0, outside: own, size: 1 }, Range { inside: 1, outside: start, size }]
        };
        // A short range does not contain 65534; its last id is used by nobody either.
        let inside = |id: u32, (_, size): (u32, u32)| id.min(size.min(RANGE_SIZE - 1));
        let user = User { uid: inside(user.uid, subuids), gid: inside(user.gid, subgids) };
        Self { uids: map(uid, subuids), gids: map(gid, subgids), user }
    }

    /// Maps only ourselves, as 0 inside: the kernel allows no other map without privileges, and the runtimes no other id. Without
    /// capabilities 0 has no more rights than another id.
    fn single(uid: u32, gid: u32) -> Self {
        let map = |own| vec![Range { inside: 0, outside: own, size: 1 }];
        Self { uids: map(uid), gids: map(gid), user: User { uid: 0, gid: 0 } }
    }

    /// Returns whether a group exists inside, for mounts that need it.
    pub(crate) fn has_gid(&self, gid: u32) -> bool {
        self.gids.iter().any(|range| gid.checked_sub(range.inside).is_some_and(|at| at < range.size))
    }

    /// Returns the maps of uids and gids for `config.json`.
    pub(crate) fn to_oci(&self) -> Result<(Vec<LinuxIdMapping>, Vec<LinuxIdMapping>), OciSpecError> {
        let convert = |ranges: &[Range]| {
            ranges
                .iter()
                .map(|range| {
                    LinuxIdMappingBuilder::default()
                        .container_id(range.inside)
                        .host_id(range.outside)
                        .size(range.size)
                        .build()
                })
                .collect::<Result<Vec<_>, _>>()
        };
        Ok((convert(&self.uids)?, convert(&self.gids)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: User = User { uid: 65534, gid: 65534 };

    #[test]
    fn the_process_does_not_get_our_own_id_when_there_are_others() {
        let maps = IdMaps::with_subids(NOBODY, (1000, (100_000, 65_536)), (1000, (100_000, 65_536)));
        assert_eq!(maps.user, NOBODY);
        let short = IdMaps::with_subids(NOBODY, (1000, (100_000, 1000)), (1000, (100_000, 1000)));
        assert_eq!(short.user, User { uid: 1000, gid: 1000 });
        assert!(short.has_gid(1000) && !short.has_gid(1001));
    }

    #[test]
    fn the_process_is_the_owner_of_shares_and_never_0() {
        let (uids, gids) = ((1000, (100_000, 65_536)), (1001, (200_000, 65_536)));
        let maps = IdMaps::as_owner(NOBODY, uids, gids).unwrap();
        assert_eq!(maps.user, NOBODY);
        assert_eq!(maps.uids[1], Range { inside: 65534, outside: 1000, size: 1 });
        assert_eq!(maps.gids[0], Range { inside: 0, outside: 200_000, size: 65534 });
        assert!(IdMaps::as_owner(User { uid: 0, gid: 0 }, uids, gids).is_none());
        assert!(IdMaps::as_owner(NOBODY, (1000, (100_000, 1000)), gids).is_none());
    }

    #[test]
    fn root_maps_no_host_id() {
        let maps = IdMaps::as_root(NOBODY);
        assert!(maps.uids.iter().chain(&maps.gids).all(|range| range.outside >= ROOT_RANGE_START));
    }
}

#[cfg(test)]
mod fuzz {
    use codebridge_fuzz::{Choices, fuzz};

    use super::*;

    /// Where a range goes on the other side.
    fn image(range: &Range) -> (u64, u64) {
        (range.outside.into(), u64::from(range.outside) + u64::from(range.size))
    }

    /// Checks that a map is one to one, that it maps to nothing else than `allowed`, and has the id.
    fn check(map: &[Range], allowed: &[(u32, u32)], id: u32) {
        for (at, range) in map.iter().enumerate() {
            let (start, end) = image(range);
            let is_in = |(first, size): &(u32, u32)| {
                start >= u64::from(*first) && end <= u64::from(*first) + u64::from(*size)
            };
            assert!(
                end <= u64::from(u32::MAX) && allowed.iter().any(is_in),
                "{range:?} is not in {allowed:?}"
            );
            for other in &map[..at] {
                let (other_start, other_end) = image(other);
                assert!(end <= other_start || other_end <= start, "{map:?} maps to one id twice");
                let apart =
                    range.inside >= other.inside + other.size || other.inside >= range.inside + range.size;
                assert!(apart, "{map:?} maps one id twice");
            }
        }
        let holds = |range: &Range| id.checked_sub(range.inside).is_some_and(|at| at < range.size);
        assert!(map.iter().any(holds), "{id} is not in {map:?}");
    }

    #[test]
    fn id_maps_are_one_to_one_and_within_their_ranges() {
        fuzz("id_maps", &[], |bytes| {
            let mut choices = Choices::new(bytes);
            let mut id = || match choices.below(4) {
                0 => choices.below(3) as u32,
                1 => 65_533 + choices.below(5) as u32,
                2 => 99_990 + choices.below(20) as u32,
                _ => choices.below(usize::try_from(u32::MAX).unwrap()) as u32,
            };
            let user = User { uid: id(), gid: id() };
            let own = (id(), id());
            let text = format!("ann:{}:{}\nann:{}:{}\n", id(), id(), id(), id());
            let ranges: Vec<_> = parse_subids(&text, Some("ann"), 1).collect();
            let root = IdMaps::as_root(user);
            let range = [(ROOT_RANGE_START, RANGE_SIZE)];
            check(&root.uids, &range, root.user.uid);
            check(&root.gids, &range, root.user.gid);
            let single = IdMaps::single(own.0, own.1);
            check(&single.uids, &[(own.0, 1)], single.user.uid);
            let Some(range) = ranges.first().copied() else { return };
            // The kernel refuses a map with an id of ours that is also a subordinate one.
            let is_own = |id: u32| id.checked_sub(range.0).is_some_and(|at| at < range.1);
            if is_own(own.0) || is_own(own.1) {
                return;
            }
            let (uids, gids) = ((own.0, range), (own.1, range));
            let shared = IdMaps::with_subids(user, uids, gids);
            let owner = IdMaps::as_owner(user, uids, gids);
            assert!(owner.as_ref().is_none_or(|maps| maps.user == user));
            for maps in [Some(shared), owner].into_iter().flatten() {
                check(&maps.uids, &[(own.0, 1), range], maps.user.uid);
                check(&maps.gids, &[(own.1, 1), range], maps.user.gid);
                assert!(maps.has_gid(maps.user.gid));
            }
        });
    }
}
