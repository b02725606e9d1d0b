//! `--pcap` of an experiment: captures every run's links at both ends, into files beside the record
//! that the record refers to.

use anyhow::{Result, ensure};

use super::artifacts::{ARTIFACTS, Artifacts, recorded_path};
use super::observer::conditions;
use crate::experiment::{Plan, PlannedRun};
use crate::forward::capture::{Capture, CaptureHandle, CaptureSpec};
use crate::testbed::{LinkSummaries, Testbed};

/// The packets to capture in every run.
#[derive(Clone, Debug)]
pub(crate) struct RunCaptures {
    prefix: String,
    /// The capture without its ends, which each link fills in.
    spec: CaptureSpec,
}

/// The captures of a run's links, in the order of the test bed's links, each with its file name.
pub(super) struct RunningCaptures(Vec<(String, CaptureHandle)>);

impl RunCaptures {
    /// Captures packets as `spec` says into files whose names begin with `prefix`.
    ///
    /// # Errors
    /// Fails if the prefix is empty, names a directory or means standard output.
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

    /// Refuses a plan in which there is nothing to capture.
    ///
    /// # Errors
    /// Fails if no case has an emulated link.
    pub(crate) fn check(&self, plan: &Plan) -> Result<()> {
        ensure!(
            plan.cases.iter().any(|case| !conditions(case).is_empty()),
            "--pcap {}: no case has an emulated link whose packets could be captured",
            self.prefix
        );
        Ok(())
    }

    /// Captures the packets that arrive at the links of a run from now on, into files of
    /// `artifacts`.
    ///
    /// # Errors
    /// Fails if a file cannot be written or a thread cannot be started.
    pub(super) fn begin(
        &self,
        artifacts: &Artifacts<'_>,
        testbed: &dyn Testbed,
        run: &PlannedRun<'_>,
    ) -> Result<RunningCaptures> {
        let links = conditions(run.case);
        let is_one = links.len() == 1;
        let captures = links.into_iter().zip(testbed.forwarders()).map(
            |((link, ends, _), (forwarder, number))| {
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
            },
        );
        captures.collect::<Result<_>>().map(RunningCaptures)
    }
}

impl RunningCaptures {
    /// The captures of a run without any.
    pub(super) const NONE: Self = Self(Vec::new());

    /// Waits until everything is written, adds each capture's summary to that of its link, and
    /// returns the names of the files.
    pub(super) fn finish(self, links: &mut LinkSummaries) -> Vec<String> {
        let mut links = links.iter_mut();
        let finished = self.0.into_iter().map(|(name, capture)| {
            let mut summary = capture.finish();
            summary.file = Some(recorded_path(&name));
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
    fn a_prefix_must_be_the_start_of_a_file_name() {
        for refused in ["", "-", "a/b", "../a"] {
            let error = RunCaptures::new(refused, CaptureSpec::default()).unwrap_err();
            assert!(error.to_string().contains(", without /"), "{error}");
        }
        assert!(RunCaptures::new("seen", CaptureSpec::default()).is_ok());
    }
}
