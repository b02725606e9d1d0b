//! Lists the nftables tables of a namespace.
//!
//! Source: `include/uapi/linux/netfilter/nf_tables.h`, `nfnetlink.h`; netlink(7).

use std::os::fd::AsRawFd as _;

use anyhow::{Context, Result, bail};
use netio::netns::NetNs;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    socket,
};

const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFT_MSG_GETTABLE: u16 = 1;
const NFTA_TABLE_NAME: u16 = 1;

/// Returns the names of the tables of every family in `ns`.
pub fn tables(ns: &NetNs) -> Result<Vec<String>> {
    ns.run(tables_here)?
}

fn tables_here() -> Result<Vec<String>> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    // The header has length, type, flags, number and address; struct nfgenmsg follows, for any family.
    let mut request = Vec::new();
    request.extend(20_u32.to_ne_bytes());
    request.extend((NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETTABLE).to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request.extend([0; 12]);
    send(socket.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut found = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = &buffer[..length];
        while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
            let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let message = rest.get(..usize::try_from(length)?).context("a message")?;
            match u16::from_ne_bytes([header[4], header[5]]) {
                NLMSG_DONE => return Ok(found),
                NLMSG_ERROR => bail!("the kernel does not list nftables' tables: {message:?}"),
                _ => found.push(name(message).context("a table without a name")?),
            }
            rest = rest.get(message.len().next_multiple_of(4)..).unwrap_or(&[]);
        }
    }
}

/// Returns the table's name among a message's attributes, which follow struct nfgenmsg.
fn name(message: &[u8]) -> Option<String> {
    let mut rest = message.get(HEADER + 4..)?;
    loop {
        let ([a, b, c, d], _) = rest.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        if u16::from_ne_bytes([*c, *d]) == NFTA_TABLE_NAME {
            let text = rest.get(4..length)?.split(|byte| *byte == 0).next()?;
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}
