//! Keeps the host's own stack out of what arrives on an interface.
//!
//! An nftables chain on the netdev ingress hook with the policy "drop": it runs after the packet taps, so a packet
//! socket still sees every frame, and before bridges, VLAN interfaces and IP. Its table carries the owner flag: the
//! kernel removes it when the socket that made it closes, so that not even SIGKILL leaves it behind. The table is named
//! after the interface, and the kernel lets nobody else touch an owned one: so no two processes of a namespace guard one
//! interface, whichever users they are of.
//!
//! Source: `include/uapi/linux/netfilter/nf_tables.h`, `net/netfilter/nf_tables_api.c`, `nfnetlink.c`.

use std::io;

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

/// Length of a netlink header.
const HEADER: usize = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLA_F_NESTED: u16 = 0x8000;
const NFNETLINK_V0: u8 = 0;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NFPROTO_NETDEV: u8 = 5;
const NF_NETDEV_INGRESS: u32 = 0;
const NF_DROP: u32 = 0;
const NFT_MSG_NEWTABLE: u16 = 0;
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

/// While it lives, the host's stack sees nothing that arrives on the interface.
pub struct IngressDrop {
    /// The table's owner: closing it takes the table away.
    _owner: Socket,
}

/// Why the host's stack could not be kept out.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep the host's stack off interface {interface}: {step} failed: {source}{advice}")]
pub struct IngressDropError {
    /// The interface.
    pub interface: String,
    /// The step that failed.
    pub step: &'static str,
    /// Why.
    pub source: io::Error,
    /// The kernel option or the privilege that is missing, in brackets; else empty.
    pub advice: &'static str,
}

impl IngressDrop {
    /// Guards `interface` of the calling thread's namespace.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, when there is no such interface, and on a kernel without nftables' netdev family.
    pub fn new(interface: &str) -> Result<Self, IngressDropError> {
        let fail = |step: Step, source: io::Error| IngressDropError {
            interface: interface.to_owned(),
            step: step.name(),
            advice: step.advice(&source),
            source,
        };
        let index = nix::net::if_::if_nametoindex(interface)
            .map_err(|e| fail(Step::FindInterface, e.into()))?;
        let open = |e| fail(Step::OpenSocket, e);
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(open)?;
        socket.bind_auto().map_err(open)?;
        let table = format!("farwire-{index}");

        let batch = batch(&table, interface);
        socket
            .send_to(&batch, &SocketAddr::new(0, 0), 0)
            .map_err(open)?;
        match refusal(&socket).map_err(open)? {
            Some((step, error)) => Err(fail(step, error)),
            None => Ok(Self { _owner: socket }),
        }
    }
}

/// What can fail; the messages of the batch carry theirs as sequence number.
#[derive(Clone, Copy)]
enum Step {
    FindInterface,
    OpenSocket,
    Begin,
    AddTable,
    AddChain,
    Commit,
}

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
            // Without the privilege the kernel refuses the batch at its beginning.
            (Self::AddTable, libc::EPERM | libc::EEXIST) => {
                " (another farwire has the interface in use)"
            }
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
        let of = |step: &Self| *step as u32 == sequence;
        steps.into_iter().find(of).unwrap_or(Self::Commit)
    }
}

/// The batch that makes `table` with one chain that drops all that `interface` receives.
fn batch(table: &str, interface: &str) -> Vec<u8> {
    let mut owned_table = string(NFTA_TABLE_NAME, table);
    owned_table.extend(number(NFTA_TABLE_FLAGS, NFT_TABLE_F_OWNER));

    let mut hook = number(NFTA_HOOK_HOOKNUM, NF_NETDEV_INGRESS);
    // Ahead of every other chain on this hook: none of them may send the packet elsewhere.
    hook.extend(number(NFTA_HOOK_PRIORITY, i32::MIN.cast_unsigned()));
    hook.extend(string(NFTA_HOOK_DEV, interface));
    let mut chain = string(NFTA_CHAIN_TABLE, table);
    chain.extend(string(NFTA_CHAIN_NAME, "ingress"));
    chain.extend(string(NFTA_CHAIN_TYPE, "filter"));
    chain.extend(attribute(NFTA_CHAIN_HOOK | NLA_F_NESTED, &hook));
    chain.extend(number(NFTA_CHAIN_POLICY, NF_DROP));

    let change = |kind: u16| NFNL_SUBSYS_NFTABLES << 8 | kind;
    [
        message(Step::Begin, NFNL_MSG_BATCH_BEGIN, &[]),
        message(Step::AddTable, change(NFT_MSG_NEWTABLE), &owned_table),
        message(Step::AddChain, change(NFT_MSG_NEWCHAIN), &chain),
        message(Step::Commit, NFNL_MSG_BATCH_END, &[]),
    ]
    .concat()
}

/// One netlink message: header, `struct nfgenmsg`, attributes.
fn message(step: Step, kind: u16, attributes: &[u8]) -> Vec<u8> {
    // A batch's first and last message name the subsystem, in network order, where the others name a family.
    let (flags, family, subsystem) = match step {
        Step::Begin | Step::Commit => (NLM_F_REQUEST, 0, NFNL_SUBSYS_NFTABLES),
        _ => (
            NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK,
            NFPROTO_NETDEV,
            0,
        ),
    };
    let length = u32::try_from(HEADER + 4 + attributes.len()).expect("a message is short");
    let mut message = Vec::new();
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend((step as u32).to_ne_bytes());
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

/// nftables' numbers are in network order.
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

/// Reads the kernel's answers: the first refusal, or none when table and chain both stand.
fn refusal(socket: &Socket) -> io::Result<Option<(Step, io::Error)>> {
    let mut acknowledged = 0;
    while acknowledged < 2 {
        let (answers, _) = socket.recv_from_full()?;
        match read_answers(&answers) {
            Ok(count) => acknowledged += count,
            Err(refused) => return Ok(Some(refused)),
        }
    }
    Ok(None)
}

/// How many steps a datagram of answers acknowledges, or the first that it refuses.
fn read_answers(mut rest: &[u8]) -> Result<usize, (Step, io::Error)> {
    let mut acknowledged = 0;
    // An answer is a netlink header (length, type, flags, sequence, address) and an errno below zero, or 0.
    while let (Some(length @ 1..), Some(sequence), Some(error)) =
        (word(rest, 0), word(rest, 8), word(rest, HEADER))
    {
        if error != 0 {
            let errno = error.cast_signed().wrapping_neg();
            let error = io::Error::from_raw_os_error(errno);
            return Err((Step::of_sequence(sequence), error));
        }
        acknowledged += 1;
        let next = (length as usize).next_multiple_of(4);
        rest = rest.get(next..).unwrap_or(&[]);
    }
    Ok(acknowledged)
}

/// [`read_answers`] for fuzzers, with the name of the step.
pub(crate) fn refusal_in(answers: &[u8]) -> Result<usize, (&'static str, io::Error)> {
    read_answers(answers).map_err(|(step, error)| (step.name(), error))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}
