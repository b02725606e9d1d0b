//! `--pcap` of an experiment: every run's links at both ends, in files beside the record that it refers to.

use anyhow::{Result, ensure};

use super::artifacts::{ARTIFACTS, Artifacts, beside_the_record};
use super::observer::conditions;
use crate::experiment::{Plan, PlannedRun};
use crate::forward::capture::{Capture, CaptureHandle, CaptureSpec};
use crate::testbed::{LinkSummaries, Testbed};

/// What is captured of every run.
#[derive(Clone, Debug)]
pub(crate) struct RunCaptures {
    prefix: String,
    /// But for the ends.
    spec: CaptureSpec,
}

/// Captures of a run's links, in the order of the bed's, each with the name of its file.
pub(super) struct RunningCaptures(Vec<(String, CaptureHandle)>);

impl RunCaptures {
    /// Into files whose names begin with `prefix`, of what `spec` says.
    ///
    /// # Errors
    /// A prefix that names a folder, or standard output.
    pub(crate) fn new(prefix: &str, spec: CaptureSpec) -> Result<Self> {
        ensure!(
            !prefix.is_empty() && prefix != "-" && !prefix.contains('/'),
            "--pcap {prefix}: write the beginning of the file names in {ARTIFACTS}/, without /"
        );
        Ok(Self {
            prefix: prefix.to_owned(),
            spec,
        })
    }

    /// Refuses a plan that has nothing to capture.
    ///
    /// # Errors
    /// It has no emulated link.
    pub(crate) fn check(&self, plan: &Plan) -> Result<()> {
        ensure!(
            plan.cases.iter().any(|case| !conditions(case).is_empty()),
            "--pcap {}: no case has an emulated link whose packets could be captured",
            self.prefix
        );
        Ok(())
    }

    /// Captures what arrives from now on at the links of a run, into files of `artifacts`, whose folder is made.
    ///
    /// # Errors
    /// A file cannot be written, or no thread be had.
    pub(super) fn begin(
        &self,
        artifacts: &Artifacts<'_>,
        testbed: &dyn Testbed,
        run: &PlannedRun<'_>,
    ) -> Result<RunningCaptures> {
        let links = conditions(run.case);
        let is_one = links.len() == 1;
        let began = links.into_iter().zip(testbed.forwarders());
        let began = began.map(|((link, ends, _), (forwarder, number))| {
            let link = (!is_one).then_some(link.as_str());
            let name = artifacts.pcapng((run.case, run.repeat), &self.prefix, link);
            let (_, file) = artifacts.create(&name)?;
            let spec = CaptureSpec {
                ends,
                ..self.spec.clone()
            };
            let sink = Box::new(file);
            let capture = Capture { spec, sink };
            Ok((name, forwarder.capture(number, capture)?))
        });
        began.collect::<Result<_>>().map(RunningCaptures)
    }
}

impl RunningCaptures {
    /// Of a run of which nothing is captured.
    pub(super) const NONE: Self = Self(Vec::new());

    /// Waits until all is written, and tells what was of it with what the links did; the names of the files.
    pub(super) fn finish(self, links: &mut LinkSummaries) -> Vec<String> {
        let mut links = links.iter_mut();
        let finished = self.0.into_iter().map(|(name, capture)| {
            let mut summary = capture.finish();
            summary.file = Some(beside_the_record(&name));
            if let Some((_, link)) = links.next() {
                link.capture = Some(summary);
            }
            name
        });
        finished.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_beginning_of_a_name() {
        for refused in ["", "-", "a/b", "../a"] {
            let error = RunCaptures::new(refused, CaptureSpec::default()).unwrap_err();
            assert!(error.to_string().contains(", without /"), "{error}");
        }
        assert!(RunCaptures::new("seen", CaptureSpec::default()).is_ok());
    }
}
