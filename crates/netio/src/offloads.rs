//! Reads and sets the features (offloads) and flags of an interface by ioctl, on one socket of its namespace.
//!
//! The ioctls identify the interface by name, which may change at any time, so each of them first asks for the present
//! name.
//!
//! Source: `include/uapi/linux/ethtool.h`, `net/ethtool/ioctl.c`, netdevice(7).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
/// Length of one name in an ethtool string set.
const ETH_GSTRING_LEN: usize = 32;

/// A handle on the features and flags of one interface. It keeps to the namespace in which it was opened, and to the
/// interface when that is renamed.
#[derive(Debug)]
pub struct Offloads {
    shared: Arc<IoctlSocket>,
    /// Name of the interface when it was opened.
    interface: String,
    index: u32,
}

/// A socket of one namespace, by which any number of interfaces are read and changed.
#[derive(Debug)]
pub struct IoctlSocket {
    socket: OwnedFd,
    /// The kernel's names of features, which are the same for all interfaces. The index of a feature is its bit.
    names: OnceLock<Vec<String>>,
}

/// The state of one feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Whether it is in effect.
    pub active: bool,
    /// Whether it cannot be changed.
    pub fixed: bool,
}

/// The result of switching a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchResult {
    /// The feature was changed to the requested state.
    Changed,
    /// The feature already had the requested state.
    Unchanged,
    /// This kernel has no feature of that name.
    Absent,
    /// The driver did not change it.
    Refused,
}

/// Error of an ioctl on an interface.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} of interface {interface}: {source}")]
pub struct OffloadError {
    /// The operation: "read the features".
    pub what: &'static str,
    /// Name of the interface.
    pub interface: String,
    /// The cause.
    pub source: io::Error,
}

impl IoctlSocket {
    /// Opens a socket in the namespace of the calling thread.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::Inet, SockType::Datagram);
        Ok(Self {
            socket: socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?,
            names: OnceLock::new(),
        })
    }
}

impl Offloads {
    /// Opens `interface` of the namespace of the calling thread.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn open(interface: &str) -> Result<Self, OffloadError> {
        let socket = IoctlSocket::open().map_err(|source| OffloadError {
            what: "open the features",
            interface: interface.to_owned(),
            source,
        })?;
        Self::open_on(&Arc::new(socket), interface)
    }

    /// Opens `interface` of the namespace of the calling thread, which must be that of `shared`.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn open_on(shared: &Arc<IoctlSocket>, interface: &str) -> Result<Self, OffloadError> {
        let error = |source: io::Error| OffloadError {
            what: "open the features",
            interface: interface.to_owned(),
            source,
        };
        // A longer name would be truncated, and could then mean another interface.
        if interface.len() >= libc::IFNAMSIZ {
            return Err(error(io::Error::from_raw_os_error(libc::ENODEV)));
        }
        let index =
            nix::net::if_::if_nametoindex(interface).map_err(|errno| error(errno.into()))?;
        let offloads = Self {
            shared: Arc::clone(shared),
            interface: interface.to_owned(),
            index,
        };
        if shared.names.get().is_none() {
            // Another thread may have read the same names meanwhile.
            let _ = shared.names.set(offloads.read_names()?);
        }
        Ok(offloads)
    }

    fn names(&self) -> &[String] {
        self.shared.names.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the name by which the interface was opened.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Returns the present name of the interface.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn name(&self) -> Result<String, OffloadError> {
        let name = self.request()?.ifr_name;
        let bytes: Vec<u8> = name
            .iter()
            // Characters of C are signed on x86, and unsigned on Arm.
            .flat_map(|character| character.to_ne_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the number of the interface in its namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns all features that the kernel knows, with their states.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn features(&self) -> Result<BTreeMap<String, Feature>, OffloadError> {
        let blocks = self.read_blocks()?;
        let states = self.names().iter().enumerate().map(|(bit, name)| {
            let state = blocks[bit / 32].state(bit % 32);
            (name.clone(), state)
        });
        Ok(states.filter(|(name, _)| !name.is_empty()).collect())
    }

    /// Returns the state of `feature`, if the kernel knows it.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn feature(&self, feature: &str) -> Result<Option<Feature>, OffloadError> {
        let Some(bit) = self.bit(feature) else {
            return Ok(None);
        };
        Ok(Some(self.read_blocks()?[bit / 32].state(bit % 32)))
    }

    /// Switches `feature` on or off.
    ///
    /// # Errors
    /// CAP_NET_ADMIN is missing, or the interface is gone.
    pub fn switch(&self, feature: &str, on: bool) -> Result<SwitchResult, OffloadError> {
        let (Some(bit), Some(before)) = (self.bit(feature), self.feature(feature)?) else {
            return Ok(SwitchResult::Absent);
        };
        if before.active == on {
            return Ok(SwitchResult::Unchanged);
        }
        if before.fixed {
            return Ok(SwitchResult::Refused);
        }
        let blocks = self.names().len().div_ceil(32);
        let mut request = words(&[ETHTOOL_SFEATURES, count(blocks)]);
        for block in 0..blocks {
            let valid = if block == bit / 32 {
                1 << (bit % 32)
            } else {
                0
            };
            request.extend(words(&[valid, if on { valid } else { 0 }]));
        }
        self.ethtool("switch a feature", &mut request)?;
        // The driver may have decided otherwise (ETHTOOL_F_WISH), so the state in effect is read.
        let after = self.feature(feature)?;
        Ok(if after.is_some_and(|state| state.active == on) {
            SwitchResult::Changed
        } else {
            SwitchResult::Refused
        })
    }

    /// Returns whether the interface is administratively up.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn is_up(&self) -> Result<bool, OffloadError> {
        Ok(self.flags()? & libc::IFF_UP != 0)
    }

    /// Sets the interface administratively up or down.
    ///
    /// # Errors
    /// CAP_NET_ADMIN is missing, the interface is gone, or its driver fails.
    pub fn set_up(&self, up: bool) -> Result<(), OffloadError> {
        let flags = self.flags()?;
        let wanted = if up {
            flags | libc::IFF_UP
        } else {
            flags & !libc::IFF_UP
        };
        let mut request = self.request()?;
        // SIOCSIFFLAGS uses the low 16 bits of the flags (netdevice(7)).
        let [low, high, ..] = wanted.to_le_bytes();
        request.ifr_ifru.ifru_flags = i16::from_le_bytes([low, high]);
        self.ioctl("set the flags", libc::SIOCSIFFLAGS, &mut request)
    }

    /// Sets the MTU in bytes of an L3 packet.
    ///
    /// # Errors
    /// CAP_NET_ADMIN is missing, or the driver does not accept the MTU.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), OffloadError> {
        let mut request = self.request()?;
        request.ifr_ifru.ifru_mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
        self.ioctl("set the MTU", libc::SIOCSIFMTU, &mut request)
    }

    /// Returns the number of its transmit queues.
    ///
    /// # Errors
    /// The interface is gone, or its driver does not report the number.
    pub fn transmit_queues(&self) -> Result<u32, OffloadError> {
        // struct ethtool_channels has cmd, four limits, and then the counts: receiving, transmitting, other, combined.
        let mut channels = words(&[ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.ethtool("count the queues", &mut channels)?;
        Ok(word(&channels, 6) + word(&channels, 8))
    }

    fn bit(&self, feature: &str) -> Option<usize> {
        self.names().iter().position(|name| name == feature)
    }

    fn flags(&self) -> Result<i32, OffloadError> {
        let mut request = self.request()?;
        self.ioctl("read the flags", libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: SIOCGIFFLAGS has filled in the flags, for which every bit pattern is valid.
        Ok(unsafe { request.ifr_ifru.ifru_flags }.into())
    }

    /// Reads the kernel's names of features in the order of their bits.
    fn read_names(&self) -> Result<Vec<String>, OffloadError> {
        // struct ethtool_sset_info has cmd, a reserved word, a 64-bit mask, and then one count for each bit that is set
        // in it.
        let mut info = words(&[ETHTOOL_GSSET_INFO, 0]);
        info.extend((1u64 << ETH_SS_FEATURES).to_ne_bytes());
        info.extend(words(&[0]));
        self.ethtool("count the features", &mut info)?;
        let count = word(&info, 4);

        let mut strings = words(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count]);
        let header = strings.len();
        strings.resize(header + count as usize * ETH_GSTRING_LEN, 0);
        self.ethtool("name the features", &mut strings)?;
        let names = strings[header..].chunks_exact(ETH_GSTRING_LEN).map(|raw| {
            let end = raw.iter().position(|&byte| byte == 0).unwrap_or(raw.len());
            String::from_utf8_lossy(&raw[..end]).into_owned()
        });
        Ok(names.collect())
    }

    fn read_blocks(&self) -> Result<Vec<Block>, OffloadError> {
        let blocks = self.names().len().div_ceil(32);
        let mut reply = words(&[ETHTOOL_GFEATURES, count(blocks)]);
        reply.resize(reply.len() + blocks * 16, 0);
        self.ethtool("read the features", &mut reply)?;
        let read = |block: usize| Block {
            available: word(&reply, 2 + block * 4),
            active: word(&reply, 4 + block * 4),
            never_changed: word(&reply, 5 + block * 4),
        };
        Ok((0..blocks).map(read).collect())
    }

    /// Executes one SIOCETHTOOL. `buffer` is a whole ethtool structure with room for the answer.
    fn ethtool(&self, what: &'static str, buffer: &mut [u8]) -> Result<(), OffloadError> {
        let mut request = self.request()?;
        request.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
        self.ioctl(what, libc::SIOCETHTOOL, &mut request)
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "musl has 32 bits for the number, and no number has more"
    )]
    fn ioctl(
        &self,
        what: &'static str,
        number: libc::c_ulong,
        request: &mut libc::ifreq,
    ) -> Result<(), OffloadError> {
        // The type of these numbers is not that of the call with every C library.
        let number = number as libc::Ioctl;
        // SAFETY: `request` is a whole ifreq. If it points to a buffer, that buffer has the length that its header
        // states, and outlives the call.
        let done = unsafe { libc::ioctl(self.shared.socket.as_raw_fd(), number, request) };
        // SFEATURES returns flags, which are above 0.
        if done >= 0 {
            return Ok(());
        }
        Err(OffloadError {
            what,
            interface: self.interface.clone(),
            source: io::Error::last_os_error(),
        })
    }

    /// Returns a request with the present name of the interface (`SIOCGIFNAME`).
    fn request(&self) -> Result<libc::ifreq, OffloadError> {
        // SAFETY: an ifreq is a name and a union of plain data, for all of which zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = self.index.cast_signed();
        self.ioctl("find the name", libc::SIOCGIFNAME, &mut request)?;
        Ok(request)
    }
}

/// 32 features: `struct ethtool_get_features_block` without the requested states.
struct Block {
    available: u32,
    active: u32,
    never_changed: u32,
}

impl Block {
    fn state(&self, bit: usize) -> Feature {
        let set = |word: u32| word >> bit & 1 == 1;
        Feature {
            active: set(self.active),
            fixed: !set(self.available) || set(self.never_changed),
        }
    }
}

fn words(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

fn word(buffer: &[u8], index: usize) -> u32 {
    u32::from_ne_bytes(buffer.as_chunks().0[index])
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
