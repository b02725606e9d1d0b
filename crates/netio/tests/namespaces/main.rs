//! Tests in namespaces of their own, with real interfaces, packets and processes; as root or, by a user namespace, not.
//!
//! A test that cannot run here is listed as ignored, with the cause before its name.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking; clippy's own exception needs #[test]"
)]

mod bed;
mod changes;
mod contain;
mod helper;
mod ingress_drop;
mod joined;
mod tunnel_out;

use farwire_netio::userns::{self, Privilege};
use libtest_mimic::{Arguments, Failed, Trial};

/// What a test needs of the machine.
#[derive(Clone, Copy, PartialEq)]
enum Need {
    Ping,
    Ip,
    Ingress,
    TunnelGso,
}

type Test = (&'static str, &'static [Need], fn());

fn main() {
    farwire_netio::contain::divert();
    helper::divert();
    let missing_privilege = match Privilege::detect() {
        Privilege::Root => None,
        Privilege::UserNamespace => {
            userns::enter().expect("detection tried it");
            None
        }
        Privilege::None { why } => Some(why),
    };
    let mut arguments = Arguments::from_args();
    // They count descriptors and processes: one at a time.
    arguments.test_threads = Some(1);

    let mut lacking = Vec::new();
    if missing_privilege.is_none() {
        lacking = [Need::Ping, Need::Ip, Need::Ingress, Need::TunnelGso]
            .into_iter()
            .filter_map(|need| Some((need, lack(need)?)))
            .collect();
    }
    let tests = [
        bed::TESTS,
        contain::TESTS,
        ingress_drop::TESTS,
        changes::TESTS,
        joined::TESTS,
        tunnel_out::TESTS,
    ];
    let trials = tests.concat().into_iter().map(|(name, needs, test)| {
        let lack = lacking.iter().find(|(need, _)| needs.contains(need));
        let cause = missing_privilege
            .clone()
            .or_else(|| lack.map(|(_, cause)| cause.clone()));
        let trial = Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        });
        match cause {
            Some(cause) => trial
                .with_kind(format!("skipped: {cause}"))
                .with_ignored_flag(true),
            None => trial,
        }
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

/// Why `need` is not met, if so.
fn lack(need: Need) -> Option<String> {
    match need {
        Need::Ping => {
            let found = std::process::Command::new("ping").arg("-V").output();
            found.err().map(|error| format!("needs ping: {error}"))
        }
        Need::Ip => {
            let found = std::process::Command::new("ip").arg("-V").output();
            found.err().map(|error| format!("needs ip: {error}"))
        }
        Need::Ingress => {
            let bed = bed::plain();
            let ingress_drop = bed
                .client()
                .run(|| farwire_netio::ingress_drop::IngressDrop::new(&[farwire_netio::bed::WAN]))
                .expect("the bed stands");
            ingress_drop.err().map(|error| error.to_string())
        }
        Need::TunnelGso => tunnel_out::lack(),
    }
}
