//! The interfaces of a set's ports.

use libc::c_int;

use super::socket;

/// The interface of each port and the port of each interface. Interfaces are numbers within one namespace.
#[derive(Debug)]
pub(super) struct Interfaces {
    of_port: Vec<c_int>,
    /// The interfaces with their ports, sorted by interface; `None` if the sockets are bound to the only interface.
    ports: Option<Vec<(c_int, usize)>>,
}

impl Interfaces {
    /// Creates the map for one interface, to which the sockets are bound.
    pub(super) fn one(index: c_int) -> Self {
        Self {
            of_port: vec![index],
            ports: None,
        }
    }

    /// Creates the map for interfaces that share sockets, which are bound to none of them.
    pub(super) fn sharing(of_port: Vec<c_int>) -> Self {
        let ports = Some(sorted(&of_port));
        Self { of_port, ports }
    }

    /// Returns the interface to which the sockets are bound; 0 if they are bound to none.
    pub(super) fn bound_to(&self) -> c_int {
        match self.ports {
            Some(_) => 0,
            None => self.of_port[0],
        }
    }

    pub(super) fn of_port(&self, port: usize) -> c_int {
        self.of_port[port]
    }

    /// Returns the port on an interface. Bound sockets receive only from the interface of port 0.
    pub(super) fn port(&self, index: c_int) -> Option<usize> {
        let Some(ports) = &self.ports else {
            return Some(0);
        };
        let found = ports.binary_search_by_key(&index, |(index, _)| *index);
        found.ok().map(|place| ports[place].1)
    }

    /// Returns the address for sending by `port`; `None` if the sockets are bound to its interface.
    pub(super) fn address(&self, port: usize) -> Option<libc::sockaddr_ll> {
        self.ports
            .is_some()
            .then(|| socket::address(self.of_port[port]))
    }

    /// Assigns another interface to `port`.
    pub(super) fn replace(&mut self, port: usize, index: c_int) {
        self.of_port[port] = index;
        if let Some(ports) = &mut self.ports {
            *ports = sorted(&self.of_port);
        }
    }

    /// Returns the interfaces of unbound sockets as ranges of consecutive numbers, each with its first and last number.
    pub(super) fn ranges(&self) -> Vec<(c_int, c_int)> {
        let mut ranges: Vec<(c_int, c_int)> = Vec::new();
        for (index, _) in self.ports.iter().flatten() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => ranges.push((*index, *index)),
            }
        }
        ranges
    }
}

fn sorted(of_port: &[c_int]) -> Vec<(c_int, usize)> {
    let mut ports: Vec<_> = of_port.iter().copied().zip(0..).collect();
    ports.sort_unstable();
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found_by_interface_even_after_a_replacement() {
        let mut interfaces = Interfaces::sharing(vec![9, 4, 5, 8]);
        assert_eq!(interfaces.ranges(), [(4, 5), (8, 9)]);
        assert_eq!(
            [9, 4, 5, 8].map(|i| interfaces.port(i)),
            [0, 1, 2, 3].map(Some)
        );
        assert_eq!((interfaces.port(6), interfaces.bound_to()), (None, 0));
        interfaces.replace(1, 6);
        assert_eq!(interfaces.ranges(), [(5, 6), (8, 9)]);
        assert_eq!((interfaces.port(4), interfaces.port(6)), (None, Some(1)));
    }

    #[test]
    fn the_sockets_of_one_interface_are_bound_to_it() {
        let interfaces = Interfaces::one(7);
        assert_eq!((interfaces.bound_to(), interfaces.port(6)), (7, Some(0)));
        assert!(interfaces.address(0).is_none() && interfaces.ranges().is_empty());
    }
}
