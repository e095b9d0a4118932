//! What kind of act a query asks for and a tool performs.

/// A set of kinds of acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Acts(u8);

impl Acts {
    pub(super) const NONE: Self = Self(0);
    pub(super) const LOOK: Self = Self(1);
    pub(super) const MAKE: Self = Self(2);
    pub(super) const CHANGE: Self = Self(4);
    pub(super) const UNMAKE: Self = Self(8);
    pub(super) const RUN: Self = Self(16);

    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether both are known and have nothing in common.
    pub(super) fn contradicts(self, other: Self) -> bool {
        self.0 != 0 && other.0 != 0 && self.0 & other.0 == 0
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// What a verb, given by its stem, says.
    pub(super) fn of_verb(stem: &str) -> Self {
        match stem {
            "get" | "list" | "read" | "search" | "find" | "show" | "fetch" | "retriev" | "describ" | "view" | "queri"
            | "count" | "inspect" | "check" | "lookup" | "browse" | "brows" | "explain" | "analyz" | "compar" | "diff"
            | "verifi" | "valid" | "display" | "enumer" | "discov" | "download" | "peek" | "look" | "preview" | "estim"
            | "audit" | "diagnos" | "summar" | "calcul" => Self::LOOK,
            "creat" | "add" | "insert" | "new" | "append" | "generat" | "post" | "compos" | "draft" | "draw" | "build"
            | "upload" | "import" | "attach" | "copi" | "duplic" | "clone" | "fork" | "invit" | "regist" | "send" | "write"
            | "publish" | "submit" | "prepend" | "connect" | "link" | "associ" | "repli" | "log" => Self::MAKE,
            "updat" | "edit" | "modifi" | "chang" | "set" | "patch" | "renam" | "move" | "assign" | "replac" | "adjust"
            | "configur" | "resiz" | "format" | "convert" | "merg" | "toggl" | "approv" | "resolv" | "transit" | "reorder"
            | "sort" | "protect" | "unprotect" | "enabl" | "disabl" | "lock" | "unlock" | "mark" | "mute" | "silenc"
            | "paus" | "resum" | "upgrad" | "scale" | "restor" | "revert" | "rollback" => Self::CHANGE,
            "delet" | "remov" | "drop" | "eras" | "destroy" | "clear" | "purg" | "uninstal" | "unlink" | "detach"
            | "revok" | "unsubscrib" | "teardown" | "discard" | "disconnect" => Self::UNMAKE,
            "run" | "execut" | "start" | "launch" | "trigger" | "invok" | "play" | "deploy" | "stop" | "cancel" | "retri"
            | "rerun" | "restart" | "kill" | "abort" => Self::RUN,
            _ => Self::NONE,
        }
    }
}
