//! What kind of act a query asks for and a tool performs, as far as verbs tell.

/// A set of kinds of acts; empty when nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Acts(u8);

impl Acts {
    const LOOK: Self = Self(1);
    const MAKE: Self = Self(1 << 1);
    const CHANGE: Self = Self(1 << 2);
    const UNMAKE: Self = Self(1 << 3);
    const RUN: Self = Self(1 << 4);

    /// Adds what a verb says.
    pub(super) fn add_verb(&mut self, stem: &str) {
        if let Ok(at) = VERBS.binary_search_by_key(&stem, |(verb, _)| verb) {
            self.0 |= VERBS[at].1.0;
        }
    }

    /// Who asks a question wants to look, unless a verb said otherwise.
    pub(super) fn or_look(self, question: bool) -> Self {
        if question && self == Self::default() { Self::LOOK } else { self }
    }

    /// Whether both are known and have nothing in common.
    pub(super) fn contradict(self, other: Self) -> bool {
        self != Self::default() && other != Self::default() && self.0 & other.0 == 0
    }
}

/// Whether a word begins a question.
pub(super) fn asks(word: &str) -> bool {
    const QUESTIONS: [&str; 13] = [
        "are", "do", "does", "how", "is", "what", "when", "where", "whether", "which", "who", "whose", "why",
    ];
    QUESTIONS.binary_search(&word).is_ok()
}

/// Stems of verbs, sorted.
const VERBS: [(&str, Acts); 131] = [
    ("abort", Acts::RUN),
    ("add", Acts::MAKE),
    ("adjust", Acts::CHANGE),
    ("analyz", Acts::LOOK),
    ("append", Acts::MAKE),
    ("approv", Acts::CHANGE),
    ("assign", Acts::CHANGE),
    ("associ", Acts::MAKE),
    ("attach", Acts::MAKE),
    ("audit", Acts::LOOK),
    ("brows", Acts::LOOK),
    ("build", Acts::MAKE),
    ("calcul", Acts::LOOK),
    ("cancel", Acts::RUN),
    ("chang", Acts::CHANGE),
    ("check", Acts::LOOK),
    ("clear", Acts::UNMAKE),
    ("clone", Acts::MAKE),
    ("compar", Acts::LOOK),
    ("compos", Acts::MAKE),
    ("configur", Acts::CHANGE),
    ("connect", Acts::MAKE),
    ("convert", Acts::CHANGE),
    ("copi", Acts::MAKE),
    ("count", Acts::LOOK),
    ("creat", Acts::MAKE),
    ("delet", Acts::UNMAKE),
    ("deploy", Acts::RUN),
    ("describ", Acts::LOOK),
    ("destroy", Acts::UNMAKE),
    ("detach", Acts::UNMAKE),
    ("diagnos", Acts::LOOK),
    ("diff", Acts::LOOK),
    ("disabl", Acts::CHANGE),
    ("discard", Acts::UNMAKE),
    ("disconnect", Acts::UNMAKE),
    ("discov", Acts::LOOK),
    ("display", Acts::LOOK),
    ("download", Acts::LOOK),
    ("draft", Acts::MAKE),
    ("draw", Acts::MAKE),
    ("drop", Acts::UNMAKE),
    ("duplic", Acts::MAKE),
    ("edit", Acts::CHANGE),
    ("enabl", Acts::CHANGE),
    ("enumer", Acts::LOOK),
    ("eras", Acts::UNMAKE),
    ("estim", Acts::LOOK),
    ("execut", Acts::RUN),
    ("explain", Acts::LOOK),
    ("fetch", Acts::LOOK),
    ("find", Acts::LOOK),
    ("fork", Acts::MAKE),
    ("format", Acts::CHANGE),
    ("generat", Acts::MAKE),
    ("get", Acts::LOOK),
    ("import", Acts::MAKE),
    ("insert", Acts::MAKE),
    ("inspect", Acts::LOOK),
    ("invit", Acts::MAKE),
    ("invok", Acts::RUN),
    ("kill", Acts::RUN),
    ("launch", Acts::RUN),
    ("link", Acts::MAKE),
    ("list", Acts::LOOK),
    ("lock", Acts::CHANGE),
    ("log", Acts::MAKE),
    ("look", Acts::LOOK),
    ("lookup", Acts::LOOK),
    ("mark", Acts::CHANGE),
    ("merg", Acts::CHANGE),
    ("modifi", Acts::CHANGE),
    ("move", Acts::CHANGE),
    ("mute", Acts::CHANGE),
    ("new", Acts::MAKE),
    ("patch", Acts::CHANGE),
    ("paus", Acts::CHANGE),
    ("peek", Acts::LOOK),
    ("play", Acts::RUN),
    ("post", Acts::MAKE),
    ("prepend", Acts::MAKE),
    ("preview", Acts::LOOK),
    ("protect", Acts::CHANGE),
    ("publish", Acts::MAKE),
    ("purg", Acts::UNMAKE),
    ("queri", Acts::LOOK),
    ("read", Acts::LOOK),
    ("regist", Acts::MAKE),
    ("remov", Acts::UNMAKE),
    ("renam", Acts::CHANGE),
    ("reorder", Acts::CHANGE),
    ("replac", Acts::CHANGE),
    ("repli", Acts::MAKE),
    ("rerun", Acts::RUN),
    ("resiz", Acts::CHANGE),
    ("resolv", Acts::CHANGE),
    ("restart", Acts::RUN),
    ("restor", Acts::CHANGE),
    ("resum", Acts::CHANGE),
    ("retri", Acts::RUN),
    ("retriev", Acts::LOOK),
    ("revert", Acts::CHANGE),
    ("revok", Acts::UNMAKE),
    ("rollback", Acts::CHANGE),
    ("run", Acts::RUN),
    ("scale", Acts::CHANGE),
    ("search", Acts::LOOK),
    ("send", Acts::MAKE),
    ("set", Acts::CHANGE),
    ("show", Acts::LOOK),
    ("silenc", Acts::CHANGE),
    ("sort", Acts::CHANGE),
    ("start", Acts::RUN),
    ("stop", Acts::RUN),
    ("submit", Acts::MAKE),
    ("summar", Acts::LOOK),
    ("teardown", Acts::UNMAKE),
    ("toggl", Acts::CHANGE),
    ("transit", Acts::CHANGE),
    ("trigger", Acts::RUN),
    ("uninstal", Acts::UNMAKE),
    ("unlink", Acts::UNMAKE),
    ("unlock", Acts::CHANGE),
    ("unprotect", Acts::CHANGE),
    ("unsubscrib", Acts::UNMAKE),
    ("updat", Acts::CHANGE),
    ("upgrad", Acts::CHANGE),
    ("upload", Acts::MAKE),
    ("verifi", Acts::LOOK),
    ("view", Acts::LOOK),
    ("write", Acts::MAKE),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::search::stem::stem;

    fn acts(verbs: &[&str]) -> Acts {
        let mut acts = Acts::default();
        verbs.iter().for_each(|verb| acts.add_verb(&stem(verb)));
        acts
    }

    #[test]
    fn the_verbs_are_sorted_stems() {
        assert!(VERBS.is_sorted_by(|left, right| left.0 < right.0));
        for (verb, _) in VERBS {
            let with_y = verb.strip_suffix('i').map(|rest| format!("{rest}y"));
            let forms = ["", "e", "ate", "ize", "ion"].map(|end| format!("{verb}{end}"));
            assert!(forms.iter().chain(&with_y).any(|form| stem(form) == verb), "{verb}");
        }
    }

    #[test]
    fn only_known_and_different_acts_contradict() {
        assert!(acts(&["delete"]).contradict(acts(&["listing"])));
        assert!(!acts(&["delete", "list"]).contradict(acts(&["show"])));
        assert!(!acts(&["bake"]).contradict(acts(&["show"])));
        assert!(acts(&[]).or_look(true).contradict(acts(&["erase"])));
        assert!(acts(&["update"]).or_look(true).contradict(acts(&["get"])));
    }
}
