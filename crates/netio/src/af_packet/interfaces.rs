//! The interfaces of a set's ports.

use libc::c_int;

use super::socket;

/// Interfaces by port and back, as numbers of one namespace.
#[derive(Debug)]
pub(super) struct Interfaces {
    of_port: Vec<c_int>,
    /// The same with their ports, in the order of the interfaces; none where the sockets are bound to the only one.
    ports: Option<Vec<(c_int, usize)>>,
}

impl Interfaces {
    /// One, to which the sockets are bound.
    pub(super) fn one(index: c_int) -> Self {
        Self {
            of_port: vec![index],
            ports: None,
        }
    }

    /// Those that share sockets which are bound to none.
    pub(super) fn sharing(of_port: Vec<c_int>) -> Self {
        let ports = Some(sorted(&of_port));
        Self { of_port, ports }
    }

    /// What the sockets are bound to.
    pub(super) fn bound_to(&self) -> c_int {
        match self.ports {
            Some(_) => 0,
            None => self.of_port[0],
        }
    }

    pub(super) fn of_port(&self, port: usize) -> c_int {
        self.of_port[port]
    }

    /// The port on that interface; what a socket that is bound to one receives is that one's.
    pub(super) fn port(&self, index: c_int) -> Option<usize> {
        let Some(ports) = &self.ports else {
            return Some(0);
        };
        let found = ports.binary_search_by_key(&index, |(index, _)| *index);
        found.ok().map(|place| ports[place].1)
    }

    /// Where to send what leaves by `port`; nothing where the sockets are bound to it.
    pub(super) fn address(&self, port: usize) -> Option<libc::sockaddr_ll> {
        self.ports
            .is_some()
            .then(|| socket::address(self.of_port[port]))
    }

    /// `port` stands on another interface.
    pub(super) fn replace(&mut self, port: usize, index: c_int) {
        self.of_port[port] = index;
        if let Some(ports) = &mut self.ports {
            *ports = sorted(&self.of_port);
        }
    }

    /// The interfaces of sockets that are bound to none, as stretches of neighbouring numbers, each with its first and last.
    pub(super) fn stretches(&self) -> Vec<(c_int, c_int)> {
        let mut stretches: Vec<(c_int, c_int)> = Vec::new();
        for (index, _) in self.ports.iter().flatten() {
            match stretches.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => stretches.push((*index, *index)),
            }
        }
        stretches
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
    fn ports_are_found_by_their_interfaces_also_after_one_is_another() {
        let mut interfaces = Interfaces::sharing(vec![9, 4, 5, 8]);
        assert_eq!(interfaces.stretches(), [(4, 5), (8, 9)]);
        assert_eq!(
            [9, 4, 5, 8].map(|i| interfaces.port(i)),
            [0, 1, 2, 3].map(Some)
        );
        assert_eq!((interfaces.port(6), interfaces.bound_to()), (None, 0));
        interfaces.replace(1, 6);
        assert_eq!(interfaces.stretches(), [(5, 6), (8, 9)]);
        assert_eq!((interfaces.port(4), interfaces.port(6)), (None, Some(1)));
    }

    #[test]
    fn sockets_of_one_interface_are_bound_to_it() {
        let interfaces = Interfaces::one(7);
        assert_eq!((interfaces.bound_to(), interfaces.port(6)), (7, Some(0)));
        assert!(interfaces.address(0).is_none() && interfaces.stretches().is_empty());
    }
}
