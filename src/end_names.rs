//! The names of the ends of a link, which may change while the link runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The names of the client's side and of the server's side of a link, as nodes or interfaces. All clones have the same
/// names: a container that is attached again has another interface.
#[derive(Clone, Debug)]
pub(crate) struct EndNames(Arc<Mutex<[String; 2]>>);

impl EndNames {
    /// Returns the current names.
    pub(crate) fn now(&self) -> [String; 2] {
        self.lock().clone()
    }

    /// Replaces both names.
    pub(crate) fn replace(&self, names: [String; 2]) {
        *self.lock() = names;
    }

    fn lock(&self) -> MutexGuard<'_, [String; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<[String; 2]> for EndNames {
    fn from(names: [String; 2]) -> Self {
        Self(Arc::new(Mutex::new(names)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_has_the_names_that_replaced_the_first_ones() {
        let names = EndNames::from(["veth2", "farw5a"].map(str::to_owned));
        let shown = names.clone();
        names.replace(["veth4", "farw7a"].map(str::to_owned));
        assert_eq!(shown.now(), ["veth4", "farw7a"]);
    }
}
