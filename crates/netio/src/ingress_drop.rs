//! Keeps packets that arrive at an interface away from the host's network stack.
//!
//! It uses an nftables chain on the netdev ingress hook with the policy "drop". The hook runs after the packet taps, so
//! a packet socket still sees every frame, and before bridges, VLAN interfaces and IP. The table has the owner flag:
//! the kernel removes it when the socket that created it is closed, so that not even SIGKILL leaves it behind. Each
//! interface has a separate table, whose name contains its number. The kernel lets nobody else change an owned table,
//! so no two processes of a namespace can guard the same interface, whatever their users.
//!
//! Source: `include/uapi/linux/netfilter/nf_tables.h`, `net/netfilter/nf_tables_api.c`, `nfnetlink.c`.

use std::io;

use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST};
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
const NFT_MSG_DELTABLE: u16 = 2;
const NFT_MSG_NEWCHAIN: u16 = 3;
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
    /// The owner of the tables. When it is closed, the kernel removes the tables one after the other.
    owner: Socket,
    /// Numbers of the interfaces.
    guarded: Vec<u32>,
}

/// Largest number of interfaces per transaction. For each transaction the kernel waits for all processors.
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
        let first = interfaces.first().copied().unwrap_or_default();
        let open = |e| fail(first, Step::OpenSocket, e);
        let mut owner = Socket::new(NETLINK_NETFILTER).map_err(open)?;
        owner.bind_auto().map_err(open)?;
        let mut guard = Self {
            owner,
            guarded: Vec::new(),
        };
        for some in interfaces.chunks(MOST_PER_BATCH) {
            guard.add(some)?;
        }
        Ok(guard)
    }

    /// Guards further interfaces, at most [`MOST_PER_BATCH`].
    fn add(&mut self, interfaces: &[&str]) -> Result<(), IngressDropError> {
        let (mut messages, mut indices) = (Vec::new(), Vec::new());
        for (place, interface) in interfaces.iter().enumerate() {
            let index = nix::net::if_::if_nametoindex(*interface)
                .map_err(|e| fail(interface, Step::FindInterface, e.into()))?;
            let is_last = place + 1 == interfaces.len();
            messages.extend(guard_messages(place, &table(index), interface, is_last));
            indices.push(index);
        }
        let open = |e| fail(interfaces[0], Step::OpenSocket, e);
        match self.change(&messages).map_err(open)? {
            Some(Refusal {
                place,
                step,
                source,
            }) => {
                let interface = interfaces.get(place).unwrap_or(&interfaces[0]);
                Err(fail(interface, step, source))
            }
            None => {
                self.guarded.extend(indices);
                Ok(())
            }
        }
    }

    /// Executes all of `messages` or none, and returns the refusal if there was one.
    fn change(&self, messages: &[u8]) -> io::Result<Option<Refusal>> {
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
    pub fn take_again(&mut self, interface: &str) -> Result<(), IngressDropError> {
        self.add(&[interface])
    }

    /// Stops guarding the interface with the number `index`, which is gone.
    pub fn forget(&mut self, index: u32) {
        self.guarded.retain(|guarded| *guarded != index);
        self.remove(&[index]);
    }

    /// Removes tables in one transaction.
    fn remove(&self, indices: &[u32]) {
        let delete = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELTABLE;
        let mut messages = Vec::new();
        for (place, index) in indices.iter().enumerate() {
            let answered = if place + 1 == indices.len() {
                NLM_F_ACK
            } else {
                0
            };
            let name = string(NFTA_TABLE_NAME, &table(*index));
            messages.extend(message(Step::AddTable, place, delete, answered, &name));
        }
        // Tables that cannot be removed disappear with the socket.
        let _ = self.change(&messages);
    }
}

impl Drop for IngressDrop {
    /// Removes the tables in batches. When the socket is closed, the kernel removes them one by one, which takes a
    /// thousand times as long.
    fn drop(&mut self) {
        self.guarded
            .chunks(MOST_PER_BATCH)
            .for_each(|some| self.remove(some));
    }
}

/// Returns whether a process guards the interface with the number `index` in the namespace of the calling thread.
/// Without nftables in the kernel nobody can, and a caller without CAP_NET_ADMIN cannot change the interface; both get
/// `false`.
pub(crate) fn is_guarded(index: u32) -> bool {
    let ask = || -> io::Result<bool> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        let kind = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETTABLE;
        let name = string(NFTA_TABLE_NAME, &table(index));
        let request = message(Step::AddTable, 0, kind, 0, &name);
        socket.send_to(&request, &SocketAddr::new(0, 0), 0)?;
        // The kernel answers with the table, or with an error.
        let (answer, _) = socket.recv_from_full()?;
        const IS_TABLE: [u8; 2] = (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE).to_ne_bytes();
        Ok(answer.get(4..6) == Some(&IS_TABLE))
    };
    ask().unwrap_or(false)
}

fn table(index: u32) -> String {
    format!("farwire-{index}")
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
            (Self::AddTable, libc::EPERM | libc::EEXIST) => " (another farwire uses the interface)",
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

/// Returns the messages that create `table` with one chain that drops everything that `interface` receives. The kernel
/// always answers a refusal, but a success only for the last interface.
fn guard_messages(place: usize, table: &str, interface: &str, is_last: bool) -> Vec<u8> {
    let mut owned_table = string(NFTA_TABLE_NAME, table);
    owned_table.extend(number(NFTA_TABLE_FLAGS, NFT_TABLE_F_OWNER));

    let mut hook = number(NFTA_HOOK_HOOKNUM, NF_NETDEV_INGRESS);
    // The chain comes before every other chain on this hook, so that none of them can redirect the packet.
    hook.extend(number(NFTA_HOOK_PRIORITY, i32::MIN.cast_unsigned()));
    hook.extend(string(NFTA_HOOK_DEV, interface));
    let mut chain = string(NFTA_CHAIN_TABLE, table);
    chain.extend(string(NFTA_CHAIN_NAME, "ingress"));
    chain.extend(string(NFTA_CHAIN_TYPE, "filter"));
    chain.extend(attribute(NFTA_CHAIN_HOOK | NLA_F_NESTED, &hook));
    chain.extend(number(NFTA_CHAIN_POLICY, NF_DROP));

    let change = |kind: u16| NFNL_SUBSYS_NFTABLES << 8 | kind;
    let new = NLM_F_CREATE | NLM_F_EXCL;
    let answered = if is_last { new | NLM_F_ACK } else { new };
    [
        message(
            Step::AddTable,
            place,
            change(NFT_MSG_NEWTABLE),
            new,
            &owned_table,
        ),
        message(
            Step::AddChain,
            place,
            change(NFT_MSG_NEWCHAIN),
            answered,
            &chain,
        ),
    ]
    .concat()
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

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}
