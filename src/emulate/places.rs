//! Finds the ports of a box by interface, which takes the same time for any number of links.

use std::collections::HashMap;

use model::Side;

/// The place of a port: the number of its link, and its side.
pub(super) type Place = (usize, Side);

/// The ports of a box by the interfaces that they have or wait for.
#[derive(Debug, Default)]
pub(super) struct PortPlaces {
    /// The ports that have a leased interface, by its number.
    leased: HashMap<u32, Place>,
    /// The ports that wait for the return of an interface, by its name. Several can wait for one name, because an
    /// interface can be renamed to that of another one that is gone.
    waiting: HashMap<String, Vec<Place>>,
}

impl PortPlaces {
    /// Notes that the port at `place` has leased the interface with this number.
    pub(super) fn lease(&mut self, index: u32, place: Place) {
        self.leased.insert(index, place);
    }

    /// Notes that no port has the interface with this number any more.
    pub(super) fn forget(&mut self, index: u32) {
        self.leased.remove(&index);
    }

    /// Notes that the port at `place` waits for an interface of this name.
    pub(super) fn wait(&mut self, name: &str, place: Place) {
        self.waiting.entry(name.to_owned()).or_default().push(place);
    }

    /// Notes that the port at `place` does not wait for an interface of this name any more.
    pub(super) fn stop_waiting(&mut self, name: &str, place: Place) {
        if let Some(places) = self.waiting.get_mut(name) {
            places.retain(|waiting| *waiting != place);
            if places.is_empty() {
                self.waiting.remove(name);
            }
        }
    }

    /// Returns the port that has leased the interface with this number.
    pub(super) fn leased(&self, index: u32) -> Option<Place> {
        self.leased.get(&index).copied()
    }

    /// Returns the port that has waited longest for an interface of this name.
    pub(super) fn waiting(&self, name: &str) -> Option<Place> {
        self.waiting.get(name)?.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found_by_the_interfaces_that_they_have_or_wait_for() {
        let mut places = PortPlaces::default();
        let (first, second) = ((0, Side::A), (7, Side::B));
        places.lease(3, first);
        places.lease(4, second);
        assert_eq!([places.leased(3), places.leased(5)], [Some(first), None]);
        places.forget(3);
        places.wait("eth1", first);
        assert_eq!(
            (places.leased(3), places.waiting("eth1")),
            (None, Some(first))
        );
        // The interface that was renamed to eth1 disappears too.
        places.forget(4);
        places.wait("eth1", second);
        places.stop_waiting("eth1", first);
        places.lease(9, first);
        assert_eq!(
            [places.leased(9), places.waiting("eth1")],
            [Some(first), Some(second)]
        );
        places.stop_waiting("eth1", second);
        assert_eq!(places.waiting("eth1"), None);
    }
}
