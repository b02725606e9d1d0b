use proptest::prelude::*;

use super::*;
use crate::read;

fn converted(script: &str) -> FromTc {
    FromTc::read(script).unwrap_or_else(|cause| panic!("{script}: {cause}"))
}

/// Asserts that a script becomes this link, and that all of it has an equivalent.
fn same(script: &str, link: &str) {
    let FromTc {
        link: own, lacks, ..
    } = converted(script);
    let expected: LinkSpec = read::toml_text(link).unwrap();
    assert_eq!(own, expected, "{script}");
    assert!(lacks.is_empty(), "{script}: {lacks:?}");
}

/// Returns what has no equivalent, by line.
fn lacks(script: &str) -> Vec<String> {
    let lacks = converted(script).lacks.into_iter();
    lacks
        .map(|Lack { line, what }| format!("{line}: {what}"))
        .collect()
}

/// Returns the only part without an equivalent.
fn lack(script: &str) -> String {
    let mut lacks = lacks(script);
    assert_eq!(lacks.len(), 1, "{script}: {lacks:?}");
    lacks.remove(0)
}

#[test]
fn netem_alone_is_what_the_device_sends() {
    same(
        "tc qdisc add dev eth0 root netem delay 100ms 10ms loss 1%",
        "up.netem = 'delay 100ms 10ms loss 1%'",
    );
    same(
        "qdisc add dev eth0 root handle 1: netem delay .1s",
        "up.netem = 'delay 100ms'",
    );
    same(
        "#!/bin/sh -e\nDEV=eth0\nsudo /sbin/tc qdisc del dev $DEV root 2>/dev/null || true\n\
         tc q a dev $DEV \\\n  root netem loss 1%\ntc -s qdisc show dev $DEV",
        "up.netem = 'loss 1%'",
    );
}

#[test]
fn netem_comes_before_a_shaper_whether_it_is_above_or_below() {
    same(
        "tc qdisc add dev eth0 root handle 1: netem delay 100ms\n\
         tc qdisc add dev eth0 parent 1:1 handle 10: tbf rate 1mbit burst 32kbit latency 400ms",
        "[up]\nnetem = 'delay 100ms'\nnetem_at = 'before-rate'\nrate = '1mbit,burst=4KiB'\nqueue = '54096b'",
    );
    same(
        "tc qdisc add dev eth0 root handle 1: tbf rate 1mbit burst 32kbit latency 400ms\n\
         tc qdisc add dev eth0 parent 1:1 handle 10: netem delay 100ms limit 50",
        "[up]\nnetem = 'limit 50 delay 100ms'\nnetem_at = 'before-rate'\nrate = '1mbit,burst=4KiB'\nqueue = '50pkt'",
    );
    same(
        "tc qdisc add dev eth0 root handle 1: htb default 10\n\
         tc class add dev eth0 parent 1: classid 1:10 htb rate 2mbit\n\
         tc qdisc add dev eth0 parent 1:10 handle 10: netem loss 1%",
        "[up]\nnetem = 'loss 1%'\nnetem_at = 'before-rate'\nrate = '2mbit'\nqueue = '1000pkt'",
    );
    same(
        "tc qdisc add dev eth0 root handle 1: netem loss 1%\n\
         tc qdisc add dev eth0 parent 1:1 handle 2: htb default 1\n\
         tc class add dev eth0 parent 2: classid 2:1 htb rate 2mbit burst 15k cburst 15k",
        "[up]\nnetem = 'loss 1%'\nnetem_at = 'before-rate'\nrate = '2mbit,burst=15KiB'\nqueue = '1000pkt'",
    );
}

#[test]
fn shapers_have_their_queues_and_what_they_count() {
    same(
        "tc qdisc add dev eth0 root tbf rate 1mbit burst 10kb limit 30kb",
        "[up]\nrate = '1mbit,burst=10KiB'\nqueue = '30KiB'",
    );
    same(
        "tc qdisc add dev eth0 root tbf rate 1mbit burst 10kb latency 50000 overhead 18 mpu 64 linklayer atm",
        "[up]\nrate = '1mbit,burst=10KiB'\nqueue = '16490b'\nrate_at = 'atm,overhead=18,mpu=64'",
    );
    same(
        "tc qdisc add dev eth0 root handle 1: tbf rate 1mbit burst 10kb latency 50ms\n\
         tc qdisc add dev eth0 parent 1: fq_codel limit 100 target 10ms noecn flows 16",
        "[up]\nrate = '1mbit,burst=10KiB'\nqueue = '100pkt'\naqm = 'fq_codel,target=10ms,noecn,flows=16'",
    );
    // The kernel's default of fq_codel, 10,240 packets, is also that of a link.
    same(
        "tc qdisc add dev eth0 root handle 1: tbf rate 1mbit burst 10kb latency 50ms\n\
         tc qdisc add dev eth0 parent 1: fq_codel",
        "[up]\nrate = '1mbit,burst=10KiB'\naqm = 'fq_codel'",
    );
    same(
        "tc qdisc add dev eth0 root handle 1: htb default 1\n\
         tc class add dev eth0 parent 1: classid 1:1 htb rate 1mbit ceil 5mbit\n\
         tc qdisc add dev eth0 parent 1:1 bfifo limit 9kb",
        "[up]\nrate = '1mbit'\nqueue = '9KiB'",
    );
    same(
        "tc qdisc add dev eth0 root handle 1: htb default 10\n\
         tc class add dev eth0 parent 1: classid 1:1 htb rate 4mbit\n\
         tc class add dev eth0 parent 1:1 classid 1:10 htb rate 1mbit ceil 5mbit",
        "[up]\nrate = '4mbit'\nqueue = '1000pkt'",
    );
}

#[test]
fn a_burst_of_htb_is_one_at_the_speed_of_the_device() {
    let top = "tc class add dev eth0 parent 1: classid 1:10 htb";
    let below = "tc class add dev eth0 parent 1: classid 1:1 htb rate 50mbit\n\
                 tc class add dev eth0 parent 1:1 classid 1:10 htb";
    for (class, options, rate, remark) in [
        (top, "rate 5mbit burst 15k", "5mbit", "is left out"),
        (top, "rate 5mbit cburst 15k", "5mbit", ""),
        (
            top,
            "rate 5mbit burst 9k cburst 15k",
            "5mbit,burst=9KiB",
            "",
        ),
        (
            top,
            "rate 5mbit ceil 10mbit burst 15k",
            "5mbit,burst=15KiB",
            "at the speed of its ceil. In farwire",
        ),
        (below, "rate 5mbit burst 15k", "5mbit", "is left out"),
        (
            below,
            "rate 5mbit ceil 10mbit cburst 15k",
            "10mbit,burst=15KiB",
            "",
        ),
    ] {
        let script =
            format!("tc qdisc add dev eth0 root handle 1: htb default 10\n{class} {options}");
        same(
            &script,
            &format!("[up]\nrate = '{rate}'\nqueue = '1000pkt'"),
        );
        let remarks = converted(&script).remarks.join(" ");
        assert!(remarks.contains(remark), "{script}: {remarks}");
        let is_noted = remarks.contains("burst of a class of htb");
        assert_eq!(is_noted, !remark.is_empty(), "{script}: {remarks}");
    }
}

#[test]
fn filters_on_protocol_and_port_are_rules() {
    let prio = "tc qdisc add dev eth0 root handle 1: prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
                tc qdisc add dev eth0 parent 1:3 handle 30: netem delay 200ms\n";
    for (filter, class) in [
        (
            "u32 match ip dport 80 0xffff flowid 1:3",
            "name = 'port-80'",
        ),
        (
            "u32 match ip protocol 6 0xff match ip sport 0x50 ffff classid 1:3",
            "name = 'tcp-80'\nprotocol = 'tcp'",
        ),
        (
            "flower ip_proto tcp dst_port 80 classid 1:3",
            "name = 'tcp-80'\nprotocol = 'tcp'",
        ),
        (
            "u32 match u16 80 0xffff at 22 match u8 6 0xff at 9 flowid 1:3",
            "name = 'tcp-80'\nprotocol = 'tcp'",
        ),
    ] {
        same(
            &format!("{prio}tc filter add dev eth0 parent 1:0 protocol ip prio 1 {filter}"),
            &format!("[[rules]]\n{class}\nport = 80\nup.netem = 'delay 200ms'"),
        );
    }
    same(
        "tc qdisc add dev eth0 root handle 1: htb default 20\n\
         tc class add dev eth0 parent 1: classid 1:10 htb rate 5mbit\n\
         tc class add dev eth0 parent 1: classid 1:20 htb rate 1mbit\n\
         tc qdisc add dev eth0 parent 1:20 netem delay 50ms\n\
         tc filter add dev eth0 parent 1: protocol ip prio 1 flower ip_proto udp classid 1:10",
        "[up]\nnetem = 'delay 50ms'\nnetem_at = 'before-rate'\nrate = '1mbit'\nqueue = '1000pkt'\n\
         [[rules]]\nname = 'udp'\nprotocol = 'udp'\n\
         up = { rate = '5mbit', queue = '1000pkt', netem = '', netem_at = 'before-rate' }",
    );
}

#[test]
fn the_kernels_order_of_filters_is_kept() {
    let script = |filters: [&str; 2]| {
        let [first, second] =
            filters.map(|filter| format!("tc filter add dev eth0 parent 1: {filter}\n"));
        format!(
            "tc qdisc add dev eth0 root handle 1: prio bands 4 priomap 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3\n\
             tc qdisc add dev eth0 parent 1:1 netem loss 1%\n\
             tc qdisc add dev eth0 parent 1:2 netem loss 2%\n{first}{second}"
        )
    };
    let names = |script: &str| -> Vec<String> {
        let classes = converted(script).link.rules.into_iter();
        classes.map(|class| class.rule.name).collect()
    };
    let (port, tcp) = (
        "flower ip_proto tcp dst_port 80 classid 1:1",
        "flower ip_proto tcp classid 1:2",
    );
    let of = |first: &str, second: &str| {
        names(&script([
            &format!("{first} {port}"),
            &format!("{second} {tcp}"),
        ]))
    };
    assert_eq!(of("prio 1", "prio 2"), ["tcp-80", "tcp"]);
    assert_eq!(of("prio 2", "prio 1"), ["tcp", "tcp-80"]);
    // The kernel asks a filter without a priority before the ones that it had.
    assert_eq!(of("", ""), ["tcp", "tcp-80"]);
    assert_eq!(of("", "prio 1"), ["tcp", "tcp-80"]);
    let all = "prio 1 matchall classid 1:2";
    let first = script([all, &format!("prio 2 {port}")]);
    assert_eq!(lacks(&first), ["2: class 1:1: no filter leads to it"]);
    assert_eq!(
        converted(&first).link,
        read::toml_text("up.netem = 'loss 2%'").unwrap()
    );
}

#[test]
fn what_an_ifb_gets_is_the_other_direction() {
    let ifb = "modprobe ifb numifbs=1\nip link set dev ifb0 up\n\
               tc qdisc add dev eth0 handle ffff: ingress\n\
               tc filter add dev eth0 parent ffff: protocol ip u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev ifb0\n";
    same(
        &format!("{ifb}tc qdisc add dev ifb0 root netem delay 20ms"),
        "down.netem = 'delay 20ms'",
    );
    same(
        &format!(
            "{ifb}tc qdisc add dev ifb0 root netem delay 20ms\ntc qdisc add dev eth0 root netem delay 20ms"
        ),
        "netem = 'delay 20ms'",
    );
    same(
        &format!(
            "{ifb}tc qdisc add dev ifb0 root handle 1: htb default 1\n\
             tc class add dev ifb0 parent 1: classid 1:1 htb rate 8mbit"
        ),
        "down = { rate = '8mbit', queue = '32pkt' }",
    );
    same(
        "tc qdisc add dev eth0 clsact\n\
         tc filter add dev eth0 ingress protocol all flower ip_proto udp action mirred egress redirect dev ifb1\n\
         tc qdisc add dev ifb1 root netem loss 1%",
        "[[rules]]\nname = 'udp'\nprotocol = 'udp'\ndown.netem = 'loss 1%'",
    );
    same(
        "tc qdisc add dev eth0 ingress\n\
         tc filter add dev eth0 parent ffff: protocol all prio 1 u32 match ip src 0.0.0.0/0 police rate 1mbit burst 10k drop flowid :1",
        "down.police = '1mbit,burst=10KiB'",
    );
}

#[test]
fn two_devices_are_two_directions() {
    let script =
        "tc qdisc add dev eth2 root netem delay 1ms\ntc qdisc add dev eth1 root netem delay 2ms";
    same(script, "up.netem = 'delay 1ms'\ndown.netem = 'delay 2ms'");
    let FromTc { remarks, .. } = converted(script);
    assert!(
        remarks[0].contains("`farwire emulate eth1 eth2`"),
        "{remarks:?}"
    );
    let third = format!("{script}\ntc qdisc add dev eth3 root netem delay 3ms");
    assert_eq!(lack(&third), "3: eth3, which is a third device");
}

#[test]
fn later_commands_change_what_earlier_ones_made() {
    let add = "tc qdisc add dev eth0 root handle 1: netem delay 1ms\n";
    same(
        &format!("{add}tc qdisc change dev eth0 root netem loss 1%"),
        "up.netem = 'loss 1%'",
    );
    same(
        &format!("{add}tc qdisc replace dev eth0 root netem loss 1%"),
        "up.netem = 'loss 1%'",
    );
    same(
        &format!("{add}tc qdisc replace dev eth0 root tbf rate 1mbit burst 10k limit 20k"),
        "up = { rate = '1mbit,burst=10KiB', queue = '20KiB' }",
    );
    same(&format!("{add}tc qdisc del dev eth0 root"), "");
    same(
        &format!(
            "{add}tc qdisc add dev eth0 parent 1: tbf rate 1mbit burst 10k limit 20k\ntc qdisc del dev eth0 parent 1:1"
        ),
        "up.netem = 'delay 1ms'",
    );
    same(
        "tc qdisc add dev eth0 root handle 1: prio\n\
         tc qdisc add dev eth0 parent 1:3 netem delay 1ms\n\
         tc filter add dev eth0 parent 1: prio 5 flower ip_proto tcp classid 1:1\n\
         tc filter del dev eth0 parent 1: prio 5\n\
         tc qdisc del dev eth0 parent 1:3",
        "",
    );
}

#[test]
fn what_has_no_equivalent_is_named_with_its_line() {
    let root = "tc qdisc add dev eth0 root handle 1: prio\n";
    for case in [
        "tc qdisc add dev eth0 root sfq => 1: the qdisc sfq",
        "tc qdisc add dev eth0 root netem gap 5 => 1: netem: gap: tc refuses gap",
        "tc qdisc add dev eth0 root netem delay $1ms => 1: the value of `$1` is not known",
        "tc qdisc add dev eth0 root tbf rate 1mbit latency 5ms => 1: tbf: tc requires a rate and a burst",
        "tc qdisc add dev eth0 root tbf rate 10% burst 9k limit 9k => 1: rate: `10%` is a share",
        "tc qdisc add dev eth0 root tbf rate 1mbit burst 1000 limit 9k => 1: burst 1000: tbf drops longer packets",
        "tc qdisc add dev eth0 root tbf rate 1mbit burst 9k limit 9k peakrate 2mbit mtu 1540 => 1: peakrate",
        "tc qdisc add dev eth0 parent 2:1 netem loss 1% => 1: there is no qdisc 2:",
        "tc qdisc change dev eth0 root netem loss 1% => 1: there is no qdisc at root",
        "tc qdisc netem 8001: root limit 1000 => 1: `netem` is not a command of tc's; the output",
        "tc chain add dev eth0 => 1: tc chain",
        "tc -batch commands => 1: commands of another file",
        "tc qdisc show\niptables -A FORWARD -j DROP => 2: `iptables -A FORWARD -j DROP`, which is not tc",
        "tc qdisc add dev eth0 stab overhead 18 linklayer atm root netem loss 1% => 1: stab: set",
    ] {
        let (script, what) = case.split_once(" => ").unwrap();
        let lack = lack(script);
        assert!(lack.starts_with(what), "{script}: {lack}");
    }
    for case in [
        "protocol ip u32 match ip dst 10.0.0 flowid 1:3 => a match on the address 10.0.0",
        "protocol ip flower dst_ip 10.0.0.1-10.0.0.9 classid 1:3 => a match on the address 10.0.0.1-10.0.0.9",
        "protocol ip u32 match u32 0x0a000001 0xff0000ff at 16 flowid 1:3 => a match on addresses with the mask 0xff0000ff",
        "protocol ipv6 u32 match u32 0xfd770000 0xffff0000 at 24 flowid 1:3 => a match on a part of an IPv6 address",
        "protocol ip flower src_ip 10.0.0.1 src_ip 10.0.0.2 classid 1:3 => a match on two addresses",
        "protocol ip u32 match ip tos 0x10 0xff flowid 1:3 => a match on the field tos",
        "protocol ip u32 match ip dport 80 0xfff0 flowid 1:3 => a match on several ports",
        "protocol ip u32 match ip dport 80 0xffff match ip sport 9 0xffff flowid 1:3 => a match on two ports",
        "protocol ip u32 match ip protocol 47 0xff flowid 1:3 => a match on protocol 47",
        "protocol ip u32 match tcp dst 80 0xffff flowid 1:3 => match tcp: u32 looks for ports",
        "protocol ip flower dst_port 80-90 classid 1:3 => a match on the ports 80-90",
        "protocol ip flower dst_mac 00:00:00:00:00:01 classid 1:3 => a match on dst_mac",
        "protocol arp flower classid 1:3 => a filter for the protocol arp",
        "protocol ip handle 10 fw flowid 1:3 => a filter of the kind fw",
        "protocol ip u32 match u32 0 0 flowid 1:9 => class 1:9: it does not exist",
        "protocol ip u32 match u32 0 0 action drop => the action drop",
        "protocol ip u32 match u32 0 0 action mirred egress mirror dev ifb0 => mirred mirror",
        "protocol ip u32 ht 800: match u32 0 0 flowid 1:3 => ht of u32",
        "egress flower classid 1:3 => a filter of clsact",
    ] {
        let (filter, what) = case.split_once(" => ").unwrap();
        let script = format!("{root}tc filter add dev eth0 parent 1: {filter}");
        let script = script.replace("parent 1: egress", "egress");
        let lack = lack(&script);
        assert!(lack.starts_with(&format!("2: {what}")), "{script}: {lack}");
    }
}

#[test]
fn what_classes_share_in_tc_is_named() {
    let htb = "tc qdisc add dev eth0 root handle 1: htb default 20\n\
               tc class add dev eth0 parent 1: classid 1:1 htb rate 6mbit\n\
               tc class add dev eth0 parent 1:1 classid 1:10 htb rate 5mbit ceil 6mbit\n\
               tc class add dev eth0 parent 1:1 classid 1:20 htb rate 1mbit ceil 6mbit\n";
    let filter = |port: u16| {
        format!(
            "tc filter add dev eth0 parent 1: prio {port} u32 match ip dport {port} 0xffff flowid 1:10\n"
        )
    };
    let one = format!("{htb}{}", filter(80));
    assert_eq!(
        lacks(&one),
        ["2: the rate that classes share in class 1:1: here each class has a separate bottleneck"]
    );
    let two = format!("{one}{}", filter(81));
    assert!(
        lacks(&two)[1]
            .starts_with("6: the rate that the packets of several filters share in class 1:10")
    );
    assert_eq!(lacks(htb)[1], "3: class 1:10: no filter leads to it",);
    let bands = "tc qdisc add dev eth0 root handle 1: prio\ntc qdisc add dev eth0 parent 1:3 netem delay 1ms";
    assert!(lack(bands).starts_with("1: bands by priority, which the DS field gives"));
    let below = "tc qdisc add dev eth0 root handle 1: tbf rate 1mbit burst 10k limit 10k\n\
                 tc qdisc add dev eth0 parent 1: handle 2: prio";
    assert!(lack(below).starts_with("1: the order of prio's bands below a rate"));
    let again = "tc qdisc add dev eth0 root handle 1: netem delay 1ms\ntc qdisc add dev eth0 parent 1: netem loss 1%";
    assert_eq!(lack(again), "1: a second netem for the same packets");
}

#[test]
fn what_bands_have_instead_is_said() {
    let script = "tc qdisc add dev eth0 root handle 1: prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
                  tc qdisc add dev eth0 parent 1:1 netem delay 9ms\n\
                  tc qdisc add dev eth0 parent 1:2 pfifo limit 100\n\
                  tc filter add dev eth0 parent 1: protocol ip flower ip_proto udp classid 1:2";
    let FromTc { remarks, lacks, .. } = converted(script);
    assert!(lacks.is_empty(), "{lacks:?}");
    let remarks = remarks.join(" ");
    assert!(
        remarks.contains("`netem = \"limit 1000\"` does nothing"),
        "{remarks}"
    );
    assert!(remarks.contains("A queue is left out"), "{remarks}");
    let shaped = script.replace("netem delay 9ms", "tbf rate 1mbit burst 10k limit 9k");
    assert!(
        lack(&shaped).ends_with("beside others with one: here they wait in the queue of that rate")
    );
}

#[test]
fn filters_on_addresses_are_rules_for_one_direction() {
    let prio = "tc qdisc add dev eth0 root handle 1: prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
                tc qdisc add dev eth0 parent 1:3 handle 30: netem delay 200ms\n";
    for (filter, rule) in [
        (
            "protocol ip u32 match ip dst 10.1.2.3/8 flowid 1:3",
            "name = 'to-10-0-0-0-8'\ndestination = '10.0.0.0/8'",
        ),
        (
            "protocol ip u32 match u32 0x0a010203 0xffffffff at 12 match ip dport 80 0xffff flowid 1:3",
            "name = 'port-80-from-10-1-2-3'\nport = 80\nsource = '10.1.2.3'",
        ),
        (
            "protocol ipv6 u32 match ip6 src fd77::/64 classid 1:3",
            "name = 'from-fd77---64'\nsource = 'fd77::/64'",
        ),
        (
            "protocol ip flower ip_proto tcp src_ip 10.0.0.0/24 dst_ip 10.1.0.1 classid 1:3",
            "name = 'tcp-from-10-0-0-0-24-to-10-1-0-1'\nprotocol = 'tcp'\nsource = '10.0.0.0/24'\n\
             destination = '10.1.0.1'",
        ),
    ] {
        same(
            &format!("{prio}tc filter add dev eth0 parent 1:0 prio 1 {filter}"),
            &format!("[[rules]]\n{rule}\ndirection = 'up'\nup.netem = 'delay 200ms'"),
        );
    }
}

#[test]
fn classes_of_both_directions_are_one_list() {
    let both = |up: &str, down: &str| {
        format!(
            "tc qdisc add dev eth1 root handle 1: prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
             tc qdisc add dev eth1 parent 1:3 netem loss 1%\n\
             tc filter add dev eth1 parent 1: flower {up} classid 1:3\n\
             tc qdisc add dev eth2 root handle 1: prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
             tc qdisc add dev eth2 parent 1:3 netem loss 2%\n\
             tc filter add dev eth2 parent 1: flower {down} classid 1:3"
        )
    };
    same(
        &both("ip_proto tcp dst_port 80", "ip_proto tcp src_port 80"),
        "[[rules]]\nname = 'tcp-80'\nprotocol = 'tcp'\nport = 80\nup.netem = 'loss 1%'\ndown.netem = 'loss 2%'",
    );
    same(
        &both("ip_proto tcp", "ip_proto udp"),
        "[[rules]]\nname = 'tcp'\nprotocol = 'tcp'\nup.netem = 'loss 1%'\n\
         [[rules]]\nname = 'udp'\nprotocol = 'udp'\ndown.netem = 'loss 2%'",
    );
    same(
        &both("dst_ip 10.0.0.0/8", "src_ip 10.0.0.0/8"),
        "[[rules]]\nname = 'to-10-0-0-0-8'\ndestination = '10.0.0.0/8'\ndirection = 'up'\nup.netem = 'loss 1%'\n\
         [[rules]]\nname = 'from-10-0-0-0-8'\nsource = '10.0.0.0/8'\ndirection = 'down'\ndown.netem = 'loss 2%'",
    );
    assert_eq!(
        lack(&both("ip_proto tcp", "ip_proto tcp dst_port 80")),
        "6: packets, some of which a filter of the other direction matches too"
    );
}

#[test]
fn the_file_is_a_link_that_explains_itself() {
    let converted = converted(
        "tc qdisc add dev eth0 root handle 1: netem delay 100ms loss 1%\n\
         tc qdisc add dev eth0 parent 1:1 tbf rate 1mbit burst 10k latency 50ms\n\
         tc filter add dev eth0 parent 1: protocol ip u32 match ip tos 0x10 0xff flowid 1:1",
    );
    let file = converted.to_file().unwrap();
    assert!(
        file.starts_with(
            "# up is what eth0 sends, and down what it receives.\n\
             # No equivalent: line 3: a match on the field tos\n\n[up]\n"
        ),
        "{file}"
    );
    assert_eq!(read::toml_text::<LinkSpec>(&file).unwrap(), converted.link);
}

#[test]
fn a_script_without_tc_or_with_too_many_commands_is_refused() {
    let refused = |script: &str| FromTc::read(script).unwrap_err().to_string();
    assert!(refused("echo").contains("no command of tc"));
    assert!(refused("").contains("tc qdisc add dev eth0 root netem delay 100ms"));
    let many = "tc qdisc show\n".repeat(MOST_COMMANDS + 1);
    assert!(refused(&many).contains("more than 2000 commands"));
    let deep = (1..20).fold(
        "tc qdisc add dev a root handle 1: netem\n".to_owned(),
        |deep, n| {
            format!(
                "{deep}tc qdisc add dev a parent {n:x}: handle {:x}: netem\n",
                n + 1
            )
        },
    );
    assert!(
        lacks(&deep)
            .iter()
            .any(|lack| lack.contains("more than 8 qdiscs below each other"))
    );
}

proptest! {
    #[test]
    fn no_script_makes_the_conversion_panic(text in "[\\PC\n]*", words in prop::collection::vec(
        prop::sample::select(vec![
            "tc", "qdisc", "class", "filter", "add", "replace", "del", "dev", "eth0", "ifb0", "root", "parent", "handle", "classid", "1:", "1:1",
            "1:10", "2:", "ffff:", "ingress", "netem", "delay", "10ms", "loss", "1%", "tbf", "rate", "1mbit", "burst", "10k", "limit", "htb", "default",
            "10", "prio", "bands", "4", "priomap", "0", "protocol", "ip", "u32", "match", "dport", "80", "0xffff", "flowid", "flower", "ip_proto", "tcp",
            "action", "mirred", "egress", "redirect", "police", "drop", "\n", "\n", "\n",
        ]), 0..120)
    ) {
        for script in [text, words.join(" ")] {
            if let Ok(converted) = FromTc::read(&script) {
                let file = converted.to_file().unwrap();
                prop_assert_eq!(read::toml_text::<LinkSpec>(&file).unwrap(), converted.link);
            }
        }
    }
}
