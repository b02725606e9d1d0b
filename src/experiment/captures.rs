//! `--pcap` of an experiment: every run's links at both ends, in files beside the record that it refers to.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::directory::ARTIFACTS;
use super::watch::conditions;
use crate::forward::capture::{Capture, CaptureHandle, Filter};
use crate::testbed::{Links, Testbed};
use record::plan::{Case, Plan, PlannedRun};

/// What is captured of every run.
#[derive(Clone, Debug)]
pub(crate) struct RunCaptures {
    prefix: String,
    filter: Filter,
}

/// Captures of a run's links, in the order of the bed's, each with its file's name beside the record.
pub(super) struct RunningCaptures(Vec<(String, CaptureHandle)>);

impl RunCaptures {
    /// Into files whose names begin with `prefix`, of what `filter` lets through.
    ///
    /// # Errors
    /// A prefix that names a folder, or standard output.
    pub(crate) fn new(prefix: &str, filter: Filter) -> Result<Self> {
        ensure!(
            !prefix.is_empty() && prefix != "-" && !prefix.contains('/'),
            "--pcap {prefix}: it is how the files in {ARTIFACTS}/ beside the record begin: a name, without /"
        );
        Ok(Self {
            prefix: prefix.to_owned(),
            filter,
        })
    }

    /// Refuses a plan that has nothing to capture.
    ///
    /// # Errors
    /// It has no emulated link.
    pub(crate) fn check(&self, plan: &Plan) -> Result<()> {
        ensure!(
            plan.cases.iter().any(|case| !conditions(case).is_empty()),
            "--pcap {}: no case has an emulated link, whose packets could be captured",
            self.prefix
        );
        Ok(())
    }

    /// Captures what arrives from now on at the links of a run; the files go into `folder`, which is made.
    ///
    /// # Errors
    /// A file cannot be written, or no thread be had.
    pub(super) fn begin(
        &self,
        folder: &Path,
        testbed: &dyn Testbed,
        run: &PlannedRun<'_>,
        attempt: u32,
    ) -> Result<RunningCaptures> {
        let links = conditions(run.case);
        let is_one = links.len() == 1;
        let began = links.into_iter().zip(testbed.forwarders());
        let began = began.map(|((link, ends, _), (forwarder, number))| {
            let link = (!is_one).then_some(link.as_str());
            let file = file_of(&self.prefix, run.case, (run.repeat, attempt), link);
            fs::create_dir_all(folder)
                .with_context(|| format!("{}: cannot create", folder.display()))?;
            let capture = Capture::create(&folder.join(&file), self.filter.clone(), ends)?;
            let handle = forwarder.capture(number, capture)?;
            Ok((format!("{ARTIFACTS}/{file}"), handle))
        });
        began.collect::<Result<_>>().map(RunningCaptures)
    }
}

impl RunningCaptures {
    /// Of a run of which nothing is captured.
    pub(super) const NONE: Self = Self(Vec::new());

    /// Waits until all is written, and tells what was of it with what the links did.
    pub(super) fn finish(self, links: &mut Links) {
        let finished = self.0.into_iter().map(|(file, capture)| {
            let mut summary = capture.finish();
            summary.file = Some(PathBuf::from(file));
            summary
        });
        for ((_, link), summary) in links.iter_mut().zip(finished) {
            link.capture = Some(summary);
        }
    }
}

/// "PREFIX-CASE-REPEAT.pcapng"; a further attempt has a file of its own, as it has a place of its own in the record.
fn file_of(prefix: &str, case: &Case, (repeat, attempt): (u32, u32), link: Option<&str>) -> String {
    let attempt = match attempt {
        1 => String::new(),
        number => format!("-attempt-{number}"),
    };
    let link = link.map_or_else(String::new, |link| format!("-{}", link.replace(' ', "-")));
    let name = format!("{prefix}-{}-{repeat}{attempt}{link}.pcapng", case.name);
    name.replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Record;

    #[test]
    fn files_are_named_by_case_repeat_attempt_and_link() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/fixtures/records/small.jsonl"
        );
        let record = Record::read(Path::new(file)).unwrap();
        let mut case = record.head.plan.cases[0].clone();
        case.name = "a/b".to_owned();
        assert_eq!(file_of("seen", &case, (2, 1), None), "seen-a_b-2.pcapng");
        assert_eq!(
            file_of("seen", &case, (2, 3), Some("client 4")),
            "seen-a_b-2-attempt-3-client-4.pcapng"
        );
    }

    #[test]
    fn a_prefix_is_the_beginning_of_a_name() {
        for refused in ["", "-", "a/b", "../a"] {
            let error = RunCaptures::new(refused, Filter::default()).unwrap_err();
            assert!(error.to_string().contains("a name, without /"), "{error}");
        }
        assert!(RunCaptures::new("seen", Filter::default()).is_ok());
    }
}
