//! `farwire run`: an experiment from a scenario to its record and its reports.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::Args;

use super::{CpuArg, output};
use crate::analysis::{Analysis, Verdict};
use crate::exit::{Blame, Failure};
use crate::experiment::host::HostFacts;
use crate::experiment::netns::NetnsLaboratory;
use crate::experiment::plan::{Method, Plan};
use crate::experiment::record::{GivenScenario, Record};
use crate::experiment::runner;
use crate::experiment::scenario;
use crate::instrument::Stop;
use crate::instrument::external::iperf::Iperf;
use crate::instrument::external::iperf3::Iperf3;
use crate::instrument::external::nuttcp::Nuttcp;
use crate::instrument::external::streams::StreamTool;
use crate::instrument::external::{self, Tool, curl, wget};
use crate::{report, rig};

/// Run an experiment: every case, every instrument, repeats, one report
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The scenario, a TOML file
    scenario: PathBuf,
    /// Shorten counts and sizes, never the conditions
    #[arg(long)]
    quick: bool,
    /// Only the case of this name, and the reference; may be repeated
    #[arg(long, value_name = "CASE")]
    only: Vec<String>,
    /// Where record.json, report.html and samples.csv go [default: out/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Whether the forwarder may spin to be on time
    #[arg(long, value_name = "USE", default_value = "spin")]
    cpu: CpuArg,
    /// Write the record there as well; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl RunArgs {
    /// Runs the experiment; 0 when all expectations are met, 1 when not.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let (text, mut plan) = scenario::read(&self.scenario, self.quick).or_bad_input()?;
        keep_only(&mut plan, &self.only).or_bad_input()?;
        let tools = tools(&plan).or_machine()?;
        rig::gain_privilege()?;
        let laboratory = NetnsLaboratory {
            cpu: self.cpu.into(),
        };
        laboratory.try_out(&plan)?;
        let directory = self
            .out
            .clone()
            .unwrap_or_else(|| Path::new("out").join(&plan.name));
        fs::create_dir_all(&directory)
            .with_context(|| format!("{}: cannot create", directory.display()))
            .or_bad_input()?;

        let given = GivenScenario {
            file: self.scenario.display().to_string(),
            text,
        };
        let mut record = Record::new(given, plan, HostFacts::collect(tools));
        let file = directory.join("record.json");
        let stop = Stop::on_signals()?;
        runner::run(&laboratory, &mut record, &stop, |record| {
            record.write(&file)
        })?;

        write_reports(&record, &directory)?;
        show(&record, self.json.as_deref())?;
        eprintln!("report: {}", directory.join("report.html").display());
        if let Some(cause) = stop.cause() {
            return Err(anyhow!("{cause}; the runs before it are in {}", file.display()).into());
        }
        Ok(match Analysis::of(&record).verdict {
            Verdict::Met => ExitCode::SUCCESS,
            Verdict::NotMet | Verdict::Invalid | Verdict::Failed => ExitCode::FAILURE,
        })
    }
}

/// Leaves the cases named, and the reference that they are held against.
fn keep_only(plan: &mut Plan, names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    for name in names {
        plan.case(name).with_context(|| {
            let known: Vec<_> = plan.cases.iter().map(|case| case.name.as_str()).collect();
            format!(
                "--only {name}: there is no such case; there are: {}",
                known.join(", ")
            )
        })?;
    }
    let reference = plan.reference.clone();
    plan.cases
        .retain(|case| names.contains(&case.name) || reference.as_ref() == Some(&case.name));
    Ok(())
}

/// The external tools that the plan uses, with their versions.
fn tools(plan: &Plan) -> Result<BTreeMap<String, String>> {
    let mut tools = BTreeMap::new();
    for instrument in &plan.instruments {
        let tool: Tool = match instrument.method {
            Method::SystemPing(_) => external::ping::tool()?,
            Method::Wget(_) => wget::tool()?,
            Method::Curl(_) => curl::tool()?,
            Method::Iperf3(_) => Iperf3.tool()?,
            Method::Iperf(_) => Iperf.tool()?,
            Method::Nuttcp(_) => Nuttcp.tool()?,
            Method::Ping(_) | Method::Http(_) | Method::HttpFiles(_) => continue,
        };
        tools.insert(tool.path.display().to_string(), tool.version);
    }
    Ok(tools)
}

fn write_reports(record: &Record, directory: &Path) -> Result<()> {
    for (name, text) in [
        ("report.html", report::html(record)?),
        ("samples.csv", report::csv(record)?),
    ] {
        output::write(Some(&directory.join(name)), &text)?;
    }
    Ok(())
}

/// The table to standard output, unless the record goes there.
fn show(record: &Record, json: Option<&Path>) -> Result<()> {
    if let Some(target) = json {
        output::write_json(target, record)?;
    }
    let text = report::text(record, output::coloured(io::stdout().is_terminal()));
    if json.is_some_and(output::is_stdout) {
        io::stderr().write_all(text.as_bytes())?;
        return Ok(());
    }
    output::write(None, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn only_keeps_the_reference_too() {
        let mut plan = record().plan;
        keep_only(&mut plan, &["slow".to_owned()]).unwrap();
        assert_eq!(plan.cases.len(), 2);
        keep_only(&mut plan, &["base".to_owned()]).unwrap();
        assert_eq!(plan.cases.len(), 1);
    }

    #[test]
    fn a_case_that_is_not_there_is_refused_with_those_that_are() {
        let error = keep_only(&mut record().plan, &["fast".to_owned()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--only fast: there is no such case; there are: base, slow"
        );
    }
}
