//! Keeps packets that arrive at an interface away from the host's network stack.
//!
//! It uses an nftables chain on the netdev ingress hook with the policy "drop". The hook runs after the packet taps, so
//! a packet socket still sees every frame, and before bridges, VLAN interfaces and IP. The table has the owner flag:
//! the kernel removes it when the socket that created it is closed, so that not even SIGKILL leaves it behind. A process
//! that inherits the socket keeps the table.
//!
//! A process has one table with a chain for each interface, whose name contains the interface's number: the kernel waits
//! for all processors when it removes a table, however many chains it has. The kernel lets nobody else change an owned
//! table. A process that has added its chains looks for those of other processes, so no two processes of a namespace can
//! guard the same interface, whatever their users.
//!
//! Source: `include/uapi/linux/netfilter/nf_tables.h`, `net/netfilter/nf_tables_api.c`, `nfnetlink.c`.

use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

/// Length of a netlink header in bytes.
const HEADER: usize = 16;
const NLA_F_NESTED: u16 = 0x8000;
const NFNETLINK_V0: u8 = 0;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NFPROTO_NETDEV: u8 = 5;
const NF_NETDEV_INGRESS: u32 = 0;
const NF_DROP: u32 = 0;
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_GETTABLE: u16 = 1;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_GETCHAIN: u16 = 4;
const NFT_MSG_DELCHAIN: u16 = 5;
const NLMSG_DONE: u16 = 3;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_FLAGS: u16 = 2;
const NFT_TABLE_F_OWNER: u32 = 2;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_HOOK_DEV: u16 = 3;

/// Keeps arriving packets of its interfaces away from the host's stack until it is dropped.
pub struct IngressDrop {
    /// The owner of the table. When it is closed, the kernel removes the table.
    owner: Socket,
    /// Name of the table.
    table: String,
}

/// The beginning of the names of tables, before the number of the socket that owns the table.
const TABLE: &str = "farwire-";

/// Time for which the interfaces of a new box may be guarded by another process, before they count as in use. The helper
/// process of a killed box keeps its table while it waits a second for each interface of a link that is in use.
const PATIENCE: Duration = Duration::from_secs(3);
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Largest number of interfaces per transaction, so that the transaction fits into the socket's buffer.
const MOST_PER_BATCH: usize = 256;

/// The reason why the host's stack could not be kept away.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep the host's stack off interface {interface}: {step} failed: {source}{advice}")]
pub struct IngressDropError {
    /// Name of the interface.
    pub interface: String,
    /// The step that failed.
    pub step: &'static str,
    /// The cause.
    pub source: io::Error,
    /// The missing kernel option or privilege in brackets, or an empty text.
    pub advice: &'static str,
}

impl IngressDrop {
    /// Guards `interfaces` of the namespace of the calling thread.
    ///
    /// # Errors
    /// CAP_NET_ADMIN is missing, there is no such interface, or the kernel has no nftables with the netdev family.
    pub fn new(interfaces: &[&str]) -> Result<Self, IngressDropError> {
        let guard = Self::open(interfaces.first().copied().unwrap_or_default())?;
        guard.guard(interfaces)?;
        Ok(guard)
    }

    /// Prepares to guard interfaces of the namespace of the calling thread. `first` is the interface that an error names.
    ///
    /// # Errors
    /// CAP_NET_ADMIN is missing, or the kernel has no nftables with the netdev family.
    pub fn open(first: &str) -> Result<Self, IngressDropError> {
        let open = |e| fail(first, Step::OpenSocket, e);
        let mut owner = Socket::new(NETLINK_NETFILTER).map_err(open)?;
        let number = owner.bind_auto().map_err(open)?.port_number();
        let guard = Self {
            owner,
            table: format!("{TABLE}{number}"),
        };
        guard.change(first, &guard.table_message())?;
        Ok(guard)
    }

    /// Guards `interfaces` of the namespace.
    ///
    /// # Errors
    /// There is no such interface, or another process guards it.
    pub fn guard(&self, interfaces: &[&str]) -> Result<(), IngressDropError> {
        for some in interfaces.chunks(MOST_PER_BATCH) {
            self.add(some)?;
        }
        self.refuse_shared(interfaces, PATIENCE)
    }

    /// Calls `start`, which may start a process that inherits the descriptor of this number. The interfaces are then
    /// guarded until that process has called [`IngressDrop::release`] or has ended, too.
    ///
    /// # Errors
    /// Those of `start`, or the kernel does not change the flags of the descriptor.
    pub fn share<T>(&self, start: impl FnOnce(RawFd) -> io::Result<T>) -> io::Result<T> {
        let set = |flags| fcntl(&self.owner, FcntlArg::F_SETFD(flags));
        set(FdFlag::empty())?;
        let started = start(self.owner.as_raw_fd());
        set(FdFlag::FD_CLOEXEC)?;
        started
    }

    /// Stops guarding the interfaces, in a process that has inherited the descriptor of this number. If no other process has
    /// it any more, the table is gone when this returns.
    pub fn release(descriptor: RawFd) {
        // Nothing can be done about a number that is no descriptor.
        let _ = nix::unistd::close(descriptor);
    }

    /// Guards further interfaces, at most [`MOST_PER_BATCH`].
    fn add(&self, interfaces: &[&str]) -> Result<(), IngressDropError> {
        let mut messages = Vec::new();
        for (place, interface) in interfaces.iter().enumerate() {
            let is_last = place + 1 == interfaces.len();
            let index = index_of(interface)?;
            messages.extend(self.chain_message(place, index, interface, is_last));
        }
        match self.execute(&messages) {
            Ok(None) => Ok(()),
            Ok(Some(refusal)) => {
                let interface = interfaces.get(refusal.place).unwrap_or(&interfaces[0]);
                Err(fail(interface, refusal.step, refusal.source))
            }
            Err(error) => Err(fail(interfaces[0], Step::OpenSocket, error)),
        }
    }

    /// Refuses interfaces that another process guards as well. Both processes look after they have added their chains,
    /// so at least the later one finds the other. Waits at most for `patience` until the other one has ended.
    fn refuse_shared(
        &self,
        interfaces: &[&str],
        patience: Duration,
    ) -> Result<(), IngressDropError> {
        let first = interfaces.first().copied().unwrap_or_default();
        let open = |e| fail(first, Step::OpenSocket, e);
        let mut others = tables(&self.owner).map_err(open)?;
        others.retain(|table| *table != self.table);
        if others.is_empty() {
            return Ok(());
        }
        let end = Instant::now() + patience;
        for interface in interfaces {
            let index = index_of(interface)?;
            while have_chain(&self.owner, &others, index).map_err(open)? {
                if Instant::now() >= end {
                    let taken = io::Error::from_raw_os_error(libc::EEXIST);
                    return Err(fail(interface, Step::AddChain, taken));
                }
                std::thread::sleep(RETRY_INTERVAL);
            }
        }
        Ok(())
    }

    /// Executes a single message that concerns `interface`.
    fn change(&self, interface: &str, message: &[u8]) -> Result<(), IngressDropError> {
        match self.execute(message) {
            Ok(None) => Ok(()),
            Ok(Some(refusal)) => Err(fail(interface, refusal.step, refusal.source)),
            Err(error) => Err(fail(interface, Step::OpenSocket, error)),
        }
    }

    /// Executes all of `messages` or none, and returns the refusal if there was one.
    fn execute(&self, messages: &[u8]) -> io::Result<Option<Refusal>> {
        let [begin, end] = [
            (Step::Begin, NFNL_MSG_BATCH_BEGIN),
            (Step::Commit, NFNL_MSG_BATCH_END),
        ]
        .map(|(step, kind)| message(step, 0, kind, 0, &[]));
        let batch = [&begin, messages, &end].concat();
        self.owner.send_to(&batch, &SocketAddr::new(0, 0), 0)?;
        refusal(&self.owner)
    }

    /// Guards `interface` again, which has reappeared, by its present number.
    ///
    /// # Errors
    /// The same as for [`IngressDrop::new`].
    pub fn take_again(&self, interface: &str) -> Result<(), IngressDropError> {
        self.add(&[interface])?;
        self.refuse_shared(&[interface], Duration::ZERO)
    }

    /// Stops guarding the interface with the number `index`, which is gone or belongs to another process.
    pub fn forget(&self, index: u32) {
        let delete = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELCHAIN;
        let chain = self.chain(index);
        // The kernel removes the chain of an interface that is gone by itself.
        let _ = self.execute(&message(Step::AddChain, 0, delete, NLM_F_ACK, &chain));
    }

    /// Returns the message that creates the table.
    fn table_message(&self) -> Vec<u8> {
        let kind = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE;
        let mut owned = string(NFTA_TABLE_NAME, &self.table);
        owned.extend(number(NFTA_TABLE_FLAGS, NFT_TABLE_F_OWNER));
        let new = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
        message(Step::AddTable, 0, kind, new, &owned)
    }

    /// Returns the message that creates a chain that drops everything that `interface` receives. The kernel always
    /// answers a refusal, but a success only for the last interface of a batch.
    fn chain_message(&self, place: usize, index: u32, interface: &str, is_last: bool) -> Vec<u8> {
        let mut hook = number(NFTA_HOOK_HOOKNUM, NF_NETDEV_INGRESS);
        // The chain comes before every other chain on this hook, so that none of them can redirect the packet.
        hook.extend(number(NFTA_HOOK_PRIORITY, i32::MIN.cast_unsigned()));
        hook.extend(string(NFTA_HOOK_DEV, interface));
        let mut chain = self.chain(index);
        chain.extend(string(NFTA_CHAIN_TYPE, "filter"));
        chain.extend(attribute(NFTA_CHAIN_HOOK | NLA_F_NESTED, &hook));
        chain.extend(number(NFTA_CHAIN_POLICY, NF_DROP));
        let kind = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWCHAIN;
        let new = NLM_F_CREATE | NLM_F_EXCL;
        let answered = if is_last { new | NLM_F_ACK } else { new };
        message(Step::AddChain, place, kind, answered, &chain)
    }

    /// Returns the attributes that name the chain of an interface.
    fn chain(&self, index: u32) -> Vec<u8> {
        chain_of(&self.table, index)
    }
}

/// Asks by `socket` for the tables of all processes in its namespace that guard interfaces.
fn tables(socket: &Socket) -> io::Result<Vec<String>> {
    let kind = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETTABLE;
    let request = message(Step::AddTable, 0, kind, NLM_F_DUMP, &[]);
    socket.send_to(&request, &SocketAddr::new(0, 0), 0)?;
    let mut tables = Vec::new();
    loop {
        let (answers, _) = socket.recv_from_full()?;
        if add_tables(&answers, &mut tables)? {
            return Ok(tables);
        }
    }
}

/// Asks by `socket` whether one of `tables` has the chain of the interface with the number `index`.
fn have_chain(socket: &Socket, tables: &[String], index: u32) -> io::Result<bool> {
    const IS_CHAIN: u16 = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWCHAIN;
    let kind = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETCHAIN;
    for table in tables {
        let request = message(Step::AddChain, 0, kind, 0, &chain_of(table, index));
        socket.send_to(&request, &SocketAddr::new(0, 0), 0)?;
        // The kernel answers with the chain, or with an error.
        let (answer, _) = socket.recv_from_full()?;
        if half(&answer, 4) == Some(IS_CHAIN) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Adds the names of farwire's tables in a datagram of answers to `tables`, and returns whether the answers end there.
pub(crate) fn add_tables(mut rest: &[u8], tables: &mut Vec<String>) -> io::Result<bool> {
    const IS_TABLE: u16 = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE;
    while let (Some(length @ 1..), Some(kind)) = (word(rest, 0), half(rest, 4)) {
        match kind {
            IS_TABLE => tables.extend(table_name(rest)),
            NLMSG_DONE => return Ok(true),
            _ => return Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
        let next = (length as usize).next_multiple_of(4);
        rest = rest.get(next..).unwrap_or(&[]);
    }
    Ok(false)
}

/// Returns the name of the table in `answer` if it is one of farwire's. The name is the first attribute.
fn table_name(answer: &[u8]) -> Option<String> {
    let attributes = answer.get(HEADER + 4..)?;
    if half(attributes, 2)? != NFTA_TABLE_NAME {
        return None;
    }
    let name = attributes.get(4..usize::from(half(attributes, 0)?))?;
    let name = std::str::from_utf8(name.strip_suffix(&[0])?).ok()?;
    name.starts_with(TABLE).then(|| name.to_owned())
}

/// Returns whether a process guards the interface with the number `index` in the namespace of the calling thread.
/// Without nftables in the kernel nobody can, and a caller without CAP_NET_ADMIN cannot change the interface; both get
/// `false`.
pub(crate) fn is_guarded(index: u32) -> bool {
    let ask = || -> io::Result<bool> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        have_chain(&socket, &tables(&socket)?, index)
    };
    ask().unwrap_or(false)
}

/// Returns the attributes that name the chain of an interface in a table.
fn chain_of(table: &str, index: u32) -> Vec<u8> {
    let mut chain = string(NFTA_CHAIN_TABLE, table);
    chain.extend(string(NFTA_CHAIN_NAME, &format!("interface-{index}")));
    chain
}

fn index_of(interface: &str) -> Result<u32, IngressDropError> {
    nix::net::if_::if_nametoindex(interface)
        .map_err(|errno| fail(interface, Step::FindInterface, errno.into()))
}

fn fail(interface: &str, step: Step, source: io::Error) -> IngressDropError {
    IngressDropError {
        interface: interface.to_owned(),
        step: step.name(),
        advice: step.advice(&source),
        source,
    }
}

/// The steps that can fail. Each message of a batch has its step in its sequence number, together with the index of its
/// interface.
#[derive(Clone, Copy)]
enum Step {
    FindInterface,
    OpenSocket,
    Begin,
    AddTable,
    AddChain,
    Commit,
}

/// A number greater than that of the last step.
const STEPS: u32 = 8;

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::FindInterface => "finding it",
            Self::OpenSocket => "talking to nftables",
            Self::Begin => "starting an nftables batch",
            Self::AddTable => "adding an nftables table",
            Self::AddChain => "adding an nftables ingress chain",
            Self::Commit => "committing the nftables batch",
        }
    }

    fn advice(self, error: &io::Error) -> &'static str {
        let errno = error.raw_os_error().unwrap_or(0);
        match (self, errno) {
            // Without the privilege, the kernel already refuses the start of the batch.
            (Self::AddChain, libc::EEXIST) => " (another farwire uses the interface)",
            (_, libc::EPERM | libc::EACCES) => " (CAP_NET_ADMIN is needed)",
            (Self::FindInterface, _) => "",
            (Self::OpenSocket, _) => " (the kernel needs CONFIG_NETFILTER_NETLINK)",
            (Self::Begin, _) => " (the kernel needs CONFIG_NF_TABLES)",
            (Self::AddTable, _) => {
                " (the kernel needs CONFIG_NF_TABLES_NETDEV, and to be 5.12 or later)"
            }
            (Self::AddChain | Self::Commit, _) => {
                " (the kernel needs CONFIG_NETFILTER_INGRESS and CONFIG_NF_TABLES_NETDEV)"
            }
        }
    }

    fn of_sequence(sequence: u32) -> Self {
        let steps = [Self::Begin, Self::AddTable, Self::AddChain];
        let of = |step: &Self| *step as u32 == sequence % STEPS;
        steps.into_iter().find(of).unwrap_or(Self::Commit)
    }
}

/// Returns one netlink message about the interface at index `place` of the batch: header, `struct nfgenmsg`, and
/// attributes.
fn message(step: Step, place: usize, kind: u16, flags: u16, attributes: &[u8]) -> Vec<u8> {
    // The first and the last message of a batch contain the subsystem, in network order, in the place of a family.
    let (family, subsystem) = match step {
        Step::Begin | Step::Commit => (0, NFNL_SUBSYS_NFTABLES),
        _ => (NFPROTO_NETDEV, 0),
    };
    let sequence = u32::try_from(place).expect("a batch is short") * STEPS + step as u32;
    let flags = NLM_F_REQUEST | flags;
    let length = u32::try_from(HEADER + 4 + attributes.len()).expect("a message is short");
    let mut message = Vec::new();
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend([family, NFNETLINK_V0]);
    message.extend(subsystem.to_be_bytes());
    message.extend(attributes);
    message
}

fn string(kind: u16, value: &str) -> Vec<u8> {
    let mut bytes = value.as_bytes().to_vec();
    bytes.push(0);
    attribute(kind, &bytes)
}

/// Returns a number as an attribute; nftables' numbers are in network order.
fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("an attribute is short");
    let mut attribute = length.to_ne_bytes().to_vec();
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// The message of a batch that the kernel refused.
struct Refusal {
    /// Index of the interface in the batch.
    place: usize,
    step: Step,
    source: io::Error,
}

/// Reads the kernel's answers to a batch: the first refusal, or `None` if the whole batch was executed.
fn refusal(socket: &Socket) -> io::Result<Option<Refusal>> {
    loop {
        let (answers, _) = socket.recv_from_full()?;
        match read_answers(&answers) {
            Ok(0) => {}
            Ok(_) => return Ok(None),
            Err(refused) => return Ok(Some(refused)),
        }
    }
}

/// Returns the number of steps that a datagram of answers acknowledges, or the first refusal in it.
fn read_answers(mut rest: &[u8]) -> Result<usize, Refusal> {
    let mut acknowledged = 0;
    // An answer is a netlink header (length, type, flags, sequence, address) and a negative errno, or 0.
    while let (Some(length @ 1..), Some(sequence), Some(error)) =
        (word(rest, 0), word(rest, 8), word(rest, HEADER))
    {
        if error != 0 {
            let errno = error.cast_signed().wrapping_neg();
            return Err(Refusal {
                place: (sequence / STEPS) as usize,
                step: Step::of_sequence(sequence),
                source: io::Error::from_raw_os_error(errno),
            });
        }
        acknowledged += 1;
        let next = (length as usize).next_multiple_of(4);
        rest = rest.get(next..).unwrap_or(&[]);
    }
    Ok(acknowledged)
}

/// Calls [`read_answers`] for fuzzers, and returns the name of the refused step.
pub(crate) fn refusal_in(answers: &[u8]) -> Result<usize, (&'static str, io::Error)> {
    read_answers(answers).map_err(|refused| (refused.step.name(), refused.source))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let half = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(half))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}
