//! The chart "What was measured?": the nodes of the test bed, the links between them, and the conditions of each.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::plot::open;
use super::svg::{BOLD, LINE, Look, fitted, px, text_lines, wrapped};
use super::{ChartQuestion, Drawing, file_name};
use crate::analysis::{Analysis, CaseFigures};
use crate::case_conditions;
use crate::distinct;
use record::bed::{Bed, Pair};
use record::plan::Case;
use record::quantity::counted;

const WIDTH: f64 = 440.0;
const MARGIN: f64 = 8.0;
/// Size of the box of a node.
const NODE: [f64; 2] = [190.0, 28.0];
/// Horizontal position of the lines between nodes, and of the texts beside them.
const LINK: f64 = 34.0;
const TEXT: f64 = 54.0;
/// Least height of a link.
const LEAST_LINK: f64 = 40.0;
/// Greatest number of values of a condition that are listed.
const MOST_VALUES: usize = 4;
/// Greatest number of test beds that are drawn.
const MOST_BEDS: usize = 6;

/// A test bed and the cases that use it.
struct BedDrawing<'a> {
    nodes: Vec<Node>,
    links: Vec<Link>,
    cases: Vec<&'a Case>,
}

struct Node {
    name: String,
    /// The part of the node in the measurement: "the instruments"; empty for a node of a chain.
    part: &'static str,
}

/// A link between two neighbouring nodes.
struct Link {
    title: String,
    /// Whether farwire emulates it.
    is_emulated: bool,
    /// The conditions of each case.
    conditions: Vec<Vec<String>>,
}

/// Returns the chart of the test beds of a record.
pub(super) fn question(analysis: &Analysis<'_>) -> ChartQuestion {
    let mut beds: Vec<BedDrawing<'_>> = Vec::new();
    for CaseFigures { case, .. } in &analysis.cases {
        let new = BedDrawing::of(case);
        match beds.iter().position(|bed| bed.is_like(&new)) {
            Some(known) => beds[known].add(new),
            None if beds.len() < MOST_BEDS => beds.push(new),
            None => {}
        }
    }
    let several = beds.len() > 1;
    let drawings = beds.iter().zip(1..).map(|(bed, number)| Drawing {
        file: file_name(&["test-bed", &number.to_string()]),
        caption: if several {
            format!("Test bed of {}", counted(bed.cases.len(), "case"))
        } else {
            "The nodes, and the conditions between them".to_owned()
        },
        below: String::new(),
        about: "The path of a packet from the client, on which the instruments run, to the server. Conditions without a \
                direction apply to both directions."
            .to_owned(),
        svg: bed.draw(),
    });
    ChartQuestion {
        heading: "Test bed",
        note: "Up is from the first node to the last. Conditions in bold differ between cases."
            .to_owned(),
        drawings: drawings.collect(),
    }
}

impl<'a> BedDrawing<'a> {
    fn of(case: &'a Case) -> Self {
        let (nodes, links) = match &case.bed {
            Bed::Netns(pair) => of_pair(case, pair),
            Bed::Chain(chain) => {
                let nodes = chain.nodes.iter().map(|name| Node {
                    name: name.clone(),
                    part: "",
                });
                let links = chain.segments().map(|name| Link {
                    is_emulated: true,
                    conditions: vec![case_conditions::parts("", &chain.links.get(&name))],
                    title: name,
                });
                (nodes.collect(), links.collect())
            }
            Bed::External(external) => {
                let link = Link {
                    title: "a real network, which farwire does not emulate".to_owned(),
                    is_emulated: false,
                    conditions: vec![Vec::new()],
                };
                let server = node(&external.host, "the far end");
                (
                    vec![node("this machine", "the instruments"), server],
                    vec![link],
                )
            }
            Bed::Nics(nics) => {
                let link = Link {
                    title: "a real network between two interfaces of this machine".to_owned(),
                    is_emulated: false,
                    conditions: vec![Vec::new()],
                };
                let [client, server] = [&nics.client, &nics.server].map(|nic| &nic.interface);
                let nodes = vec![node(client, "the instruments"), node(server, "the far end")];
                (nodes, vec![link])
            }
        };
        Self {
            nodes,
            links,
            cases: vec![case],
        }
    }

    /// Returns whether another drawing has the same nodes and links.
    fn is_like(&self, other: &Self) -> bool {
        let names = |bed: &Self| -> Vec<String> {
            let links = bed.links.iter().map(|link| link.title.clone());
            let nodes = bed.nodes.iter().map(|node| node.name.clone());
            nodes.chain(links).collect()
        };
        names(self) == names(other)
    }

    /// Adds the cases of a drawing that is like this one.
    fn add(&mut self, other: Self) {
        for (own, new) in self.links.iter_mut().zip(other.links) {
            own.conditions.extend(new.conditions);
        }
        self.cases.extend(other.cases);
    }

    /// Describes what holds for all cases: the congestion control, and the nodes between which a chain was measured.
    fn notes(&self) -> Vec<String> {
        let cases = || self.cases.iter();
        let congestion = distinct(cases().map(|case| case.congestion.as_str()));
        let mut notes = vec![format!("TCP: {}", congestion.join(", "))];
        let ends = cases().filter_map(|case| match &case.bed {
            Bed::Chain(chain) => Some(case.between.as_ref().map_or_else(
                || {
                    [chain.nodes.first().cloned(), chain.nodes.last().cloned()]
                        .map(Option::unwrap_or_default)
                },
                Clone::clone,
            )),
            _ => None,
        });
        let ways = distinct(ends.map(|[client, server]| format!("{client} to {server}")));
        if !ways.is_empty() {
            notes.push(format!("Measured: {}", ways.join("; ")));
        }
        notes
    }

    /// Draws the nodes below one another, with each link and its conditions between two of them.
    fn draw(&self) -> String {
        let mut svg = String::new();
        let mut top = 4.0;
        for (at, node) in self.nodes.iter().enumerate() {
            svg += &node.draw(top);
            top += NODE[1];
            if let Some(link) = self.links.get(at) {
                top = link.draw(&mut svg, top);
            }
        }
        let notes = self.notes();
        let notes = notes
            .iter()
            .flat_map(|note| wrapped(note, WIDTH - 2.0 * MARGIN));
        let notes: Vec<String> = notes.collect();
        svg += &text_lines(&notes, MARGIN, top + 18.0, " fill-opacity=\".8\"");
        let height = top + 10.0 + notes.len() as f64 * LINE;
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        let title = format!("The test bed: {}", names.join(", "));
        open(WIDTH, height, &title, "") + &svg + "</svg>"
    }
}

fn node(name: &str, part: &'static str) -> Node {
    Node {
        name: name.to_owned(),
        part,
    }
}

/// Returns the nodes and the link of a bed of two namespaces, possibly with several clients.
fn of_pair(case: &Case, pair: &Pair) -> (Vec<Node>, Vec<Link>) {
    let (client, title) = match pair.clients {
        1 => ("client".to_owned(), "emulated link".to_owned()),
        several => (
            format!("{several} clients"),
            "an emulated link for each client".to_owned(),
        ),
    };
    let mut conditions = case_conditions::parts("", &case.link);
    conditions.extend(case_conditions::parts("wire ", &pair.wire));
    conditions.extend(pair.tbf.map(|rate| format!("client's tbf {rate}")));
    conditions.push(format!("MTU {}", pair.mtu));
    let link = Link {
        title,
        is_emulated: true,
        conditions: vec![conditions],
    };
    let nodes = vec![
        node(&client, "the instruments"),
        node("server", "the far end"),
    ];
    (nodes, vec![link])
}

impl Node {
    fn draw(&self, top: f64) -> String {
        let [wide, tall] = NODE;
        let name = fitted(&self.name, (wide - 20.0) / BOLD);
        let beside = MARGIN + wide + 10.0;
        let part = fitted(self.part, WIDTH - MARGIN - beside);
        let box_of_node = format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{colour}\" fill-opacity=\".14\" stroke=\"{colour}\" \
             stroke-width=\"1.4\"/>",
            px(MARGIN),
            px(top),
            px(wide),
            px(tall),
            colour = Look(0).colour()
        );
        let baseline = top + 18.0;
        let name = text_lines(&[name], MARGIN + 10.0, baseline, " font-weight=\"600\"");
        if part.is_empty() {
            return box_of_node + &name;
        }
        box_of_node + &name + &text_lines(&[part], beside, baseline, " fill-opacity=\".8\"")
    }
}

impl Link {
    /// Draws the link from `top` on, and returns where the next node begins.
    fn draw(&self, svg: &mut String, top: f64) -> f64 {
        let (common, varying) = self.summarised();
        let most = WIDTH - MARGIN - TEXT;
        let title = fitted(&self.title, most);
        let common = if common.is_empty() && varying.is_empty() && self.is_emulated {
            wrapped("no conditions", most)
        } else {
            wrapped(&common.join(", "), most)
        };
        let common: Vec<String> = common.into_iter().filter(|line| !line.is_empty()).collect();
        let varying = varying.iter().flat_map(|text| wrapped(text, most / BOLD));
        let varying: Vec<String> = varying.collect();
        let first = top + 17.0;
        let second = first + LINE;
        let third = second + common.len() as f64 * LINE;
        *svg += &text_lines(&[title], TEXT, first, " fill-opacity=\".8\"");
        *svg += &text_lines(&common, TEXT, second, "");
        *svg += &text_lines(&varying, TEXT, third, " font-weight=\"600\"");
        let bottom = third + varying.len() as f64 * LINE - LINE + 12.0;
        let bottom = bottom.max(top + LEAST_LINK);
        let middle = f64::midpoint(top, bottom);
        let dashes = if self.is_emulated {
            ""
        } else {
            " stroke-dasharray=\"3 4\""
        };
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<path d=\"M{x} {}V{}\" stroke=\"currentColor\" stroke-width=\"1.6\"{dashes}/>",
            px(top),
            px(bottom),
            x = px(LINK)
        );
        if self.is_emulated {
            let _ = write!(
                svg,
                "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>",
                px(LINK - 6.0),
                px(middle - 6.0),
                Look(1).colour()
            );
        }
        bottom
    }

    /// Returns the conditions that all cases have, and those that differ, each with its values.
    fn summarised(&self) -> (Vec<String>, Vec<String>) {
        let mut common = Vec::new();
        let mut varying: Vec<(String, Vec<String>)> = Vec::new();
        let all = distinct(self.conditions.iter().flatten());
        for condition in all {
            if self.conditions.iter().all(|own| own.contains(condition)) {
                common.push(condition.clone());
                continue;
            }
            let (name, value) = condition
                .rsplit_once(' ')
                .unwrap_or((condition.as_str(), "on"));
            match varying.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) => values.push(value.to_owned()),
                None => varying.push((name.to_owned(), vec![value.to_owned()])),
            }
        }
        let words = |(name, values): (String, Vec<String>)| {
            let absent = self.conditions.iter().any(|own| {
                let is_it = |text: &String| {
                    text.rsplit_once(' ')
                        .map_or(text.as_str(), |(name, _)| name)
                        == name
                };
                !own.iter().any(is_it)
            });
            format!("{name} {}", listed(values, absent))
        };
        (common, varying.into_iter().map(words).collect())
    }
}

/// Lists the values of a condition: "1ms, 10ms or 100ms", "1ms, 2ms and 7 more".
fn listed(values: Vec<String>, absent: bool) -> String {
    let mut values: Vec<String> = values
        .into_iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    values.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    if absent {
        values.insert(0, "none".to_owned());
    }
    if values.len() > MOST_VALUES {
        let more = values.len() - MOST_VALUES + 1;
        values.truncate(MOST_VALUES - 1);
        return format!("{} and {more} more", values.join(", "));
    }
    match values.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use crate::charts::geometry;
    use record::Record;

    fn drawings(record: &Record) -> Vec<Drawing> {
        question(&Analysis::of(record)).drawings
    }

    /// The small record with this bed in all cases.
    fn with_bed(bed: &str) -> Record {
        let mut record = record();
        for case in &mut record.head.plan.cases {
            case.bed = toml::from_str(bed).unwrap();
        }
        record
    }

    #[test]
    fn conditions_that_all_cases_have_are_apart_from_those_that_differ() {
        let mut record = record();
        let links = [
            "rate = '20mbit'\ndelay = '1ms'",
            "rate = '20mbit'\ndelay = '10ms'\nup = { loss = '1%' }",
        ];
        for (case, link) in record.head.plan.cases.iter_mut().zip(links) {
            case.link = toml::from_str(link).unwrap();
        }
        let drawings = drawings(&record);
        assert_eq!(drawings.len(), 1);
        let svg = &drawings[0].svg;
        for text in [
            ">rate 20mbit, MTU 1500<",
            "font-weight=\"600\">delay 1ms or 10ms<",
            "font-weight=\"600\">up loss none or 1%<",
            ">client<",
            ">server<",
        ] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert_eq!(geometry::overlaps(svg), Vec::<String>::new());
    }

    #[test]
    fn a_chain_has_its_nodes_its_links_and_the_ways_that_were_measured() {
        let mut record = with_bed(
            "kind = 'chain'\nnodes = ['PC1', 'router', 'PC2']\nlinks = { 'PC1-router' = { rate = '100mbit' } }",
        );
        record.head.plan.cases[1].between = Some(["PC1", "router"].map(str::to_owned));
        let svg = &drawings(&record)[0].svg;
        for text in [
            ">PC1<",
            ">router<",
            ">PC2<",
            ">PC1-router<",
            ">rate 100mbit<",
            ">no conditions<",
            ">Measured: PC1 to PC2; PC1 to router<",
        ] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert_eq!(geometry::overlaps(svg), Vec::<String>::new());
    }

    #[test]
    fn beds_of_other_kinds_and_long_names_fit() {
        let long = "a-node-with-a-very-long-name-that-nobody-would-give-it";
        let values = "delay = '10ms', jitter = '2ms', loss = '1%,burst=8', rate = '20mbit', queue = '300ms', reorder = '5%'";
        for bed in [
            "kind = 'external'\nhost = '192.0.2.1'".to_owned(),
            "kind = 'netns'\nclients = 12".to_owned(),
            format!(
                "kind = 'chain'\nnodes = ['{long}', 'b']\nlinks = {{ '{long}-b' = {{ {values} }} }}"
            ),
        ] {
            let svg = &drawings(&with_bed(&bed))[0].svg;
            assert_eq!(geometry::overlaps(svg), Vec::<String>::new(), "{svg}");
        }
    }

    #[test]
    fn many_values_are_counted() {
        let values = (1..=9).map(|value| format!("{value}ms")).collect();
        assert_eq!(listed(values, false), "1ms, 2ms, 3ms and 6 more");
        assert_eq!(listed(vec!["1%".to_owned()], true), "none or 1%");
    }
}
