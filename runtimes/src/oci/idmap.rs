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
            let outside = User { uid: ROOT_RANGE_START + user.uid, gid: ROOT_RANGE_START + user.gid };
            let in_range = user.uid < RANGE_SIZE && user.gid < RANGE_SIZE;
            return (Self::as_root(user), if in_range { Supply::Mapped(outside) } else { Supply::Copied });
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
        Self { uids: vec![range], gids: vec![range], user }
    }

    /// Maps 0 to ourselves and everything else to subordinate ids; the sandbox's process gets only subordinate ids.
    fn with_subids(user: User, (uid, subuids): (u32, (u32, u32)), (gid, subgids): (u32, (u32, u32))) -> Self {
        let map = |own, (start, size): (u32, u32)| {
            let size = size.min(RANGE_SIZE - 1);
            vec![Range { inside: 0, outside: own, size: 1 }, Range { inside: 1, outside: start, size }]
        };
        let covered = |id: u32, (_, size): (u32, u32)| id <= size.min(RANGE_SIZE - 1);
        // A short range does not contain 65534; its last id is used by nobody either.
        let uid_inside = if covered(user.uid, subuids) { user.uid } else { subuids.1 };
        let gid_inside = if covered(user.gid, subgids) { user.gid } else { subgids.1 };
        Self {
            uids: map(uid, subuids),
            gids: map(gid, subgids),
            user: User { uid: uid_inside, gid: gid_inside },
        }
    }

    /// Maps only ourselves, as 0 inside: the kernel allows no other map without privileges, and the runtimes no other id. Without
    /// capabilities 0 has no more rights than another id.
    fn single(uid: u32, gid: u32) -> Self {
        let map = |own| vec![Range { inside: 0, outside: own, size: 1 }];
        Self { uids: map(uid), gids: map(gid), user: User { uid: 0, gid: 0 } }
    }

    /// Returns whether a group exists inside, for mounts that need it.
    pub(crate) fn has_gid(&self, gid: u32) -> bool {
        self.gids.iter().any(|range| (range.inside..range.inside + range.size).contains(&gid))
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
