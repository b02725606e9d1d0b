//! The files that a run leaves beside the record: output of its instruments and captures of its
//! links. The record holds the size and the hash of each.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ring::digest::{Context, SHA256};

use crate::experiment::{Case, PlannedInstrument};
use crate::notes::note;
use record::Artifact;
use record::output_directory::OutputDirectory;

/// The directory of these files beside the record.
///
/// The output of an instrument is `CASE-REPEAT-INSTRUMENT.csv`, or
/// `CASE-REPEAT-INSTRUMENT-client-N.csv` with several clients. A capture is
/// `PREFIX-CASE-REPEAT.pcapng`, or `PREFIX-CASE-REPEAT-LINK.pcapng` with several links. From the
/// second attempt on, `-attempt-N` follows the repeat.
pub(crate) const ARTIFACTS: &str = "artifacts";

/// The files of one attempt of a run.
#[derive(Clone, Copy)]
pub(super) struct Artifacts<'a> {
    /// The record's directory, which contains the directory of the files.
    pub(super) directory: &'a OutputDirectory,
    /// The number of this attempt, from 1.
    pub(super) attempt: u32,
}

impl Artifacts<'_> {
    /// Returns the name of the file that an instrument writes in a run; `client` is given if there
    /// are several.
    pub(super) fn csv(
        &self,
        (case, repeat): (&Case, u32),
        instrument: &PlannedInstrument,
        client: Option<usize>,
    ) -> String {
        let client = client.map(|number| format!("-client-{number}"));
        let run = self.run(case, repeat);
        file_name(&format!(
            "{run}-{}{}.csv",
            instrument.name,
            client.unwrap_or_default()
        ))
    }

    /// Returns the name of the capture of a run; `link` is given if there are several.
    pub(super) fn pcapng(
        &self,
        (case, repeat): (&Case, u32),
        prefix: &str,
        link: Option<&str>,
    ) -> String {
        let link = link.map(|link| format!("-{}", link.replace(' ', "-")));
        let run = self.run(case, repeat);
        file_name(&format!(
            "{prefix}-{run}{}.pcapng",
            link.unwrap_or_default()
        ))
    }

    /// Returns the part of a file name that identifies the run and, from the second on, the
    /// attempt.
    fn run(&self, case: &Case, repeat: u32) -> String {
        match self.attempt {
            1 => format!("{}-{repeat}", case.name),
            number => format!("{}-{repeat}-attempt-{number}", case.name),
        }
    }

    /// Creates a new file with this name in the directory, which is created if needed, and returns
    /// its path.
    ///
    /// # Errors
    /// Fails with the file system's error, or if the directory is a symbolic link.
    pub(super) fn create(&self, name: &str) -> Result<(PathBuf, File)> {
        let path = self.directory.path().join(recorded_path(name));
        let folder = self.directory.directory(ARTIFACTS);
        let file = folder
            .and_then(|folder| folder.create(name.as_ref()))
            .with_context(|| format!("{}: cannot write", path.display()))?;
        Ok((path, file))
    }

    /// Returns the record's entries for those of the named files that exist. A note names each file
    /// that cannot be read, and that file is left out.
    pub(super) fn existing(&self, names: impl IntoIterator<Item = String>) -> Vec<Artifact> {
        let names = names.into_iter();
        let read = names.filter_map(|name| match self.length_and_hash(&name) {
            Ok((bytes, sha256)) => Some(Artifact {
                file: recorded_path(&name),
                bytes,
                sha256,
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                note(format_args!("{name}: is not in the record: {error}"));
                None
            }
        });
        read.collect()
    }

    /// Returns the length of a file and its SHA-256.
    fn length_and_hash(&self, name: &str) -> io::Result<(u64, String)> {
        let file = self.directory.directory(ARTIFACTS)?.read(name.as_ref())?;
        length_and_hash(file)
    }
}

/// Returns the path of a file in the directory, as the record writes it.
pub(super) fn recorded_path(name: &str) -> PathBuf {
    Path::new(ARTIFACTS).join(name)
}

/// Makes `text` the name of one file, which cannot lead to another directory.
fn file_name(text: &str) -> String {
    text.replace('/', "_")
}

fn length_and_hash(mut file: File) -> io::Result<(u64, String)> {
    let mut hasher = HashWriter(Context::new(&SHA256));
    let bytes = io::copy(&mut file, &mut hasher)?;
    let digest = hasher.0.finish();
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    Ok((bytes, digits.collect()))
}

/// A writer that computes the SHA-256 of the bytes written to it.
struct HashWriter(Context);

impl io::Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    use crate::experiment::small_record;

    #[test]
    fn file_names_contain_the_case_the_repeat_the_attempt_and_the_source() {
        let record = small_record();
        let plan = instruments::measure::read_plan(record.plan()).unwrap();
        let mut case = plan.cases[0].clone();
        case.name = "a/b".to_owned();
        let instrument = PlannedInstrument {
            name: "echo".to_owned(),
            ..case.instruments[0].clone()
        };
        let directory = OutputDirectory::open(Path::new("")).unwrap();
        let of = |attempt| Artifacts {
            directory: &directory,
            attempt,
        };
        let names = [
            of(1).pcapng((&case, 2), "seen", None),
            of(3).pcapng((&case, 2), "seen", Some("client 4")),
            of(1).csv((&case, 2), &instrument, None),
            of(2).csv((&case, 2), &instrument, Some(4)),
        ];
        let expected = [
            "seen-a_b-2.pcapng",
            "seen-a_b-2-attempt-3-client-4.pcapng",
            "a_b-2-echo.csv",
            "a_b-2-attempt-2-echo-client-4.csv",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn existing_files_are_recorded_with_length_and_hash() {
        let folder = tempfile::tempdir().unwrap();
        let directory = OutputDirectory::open(folder.path()).unwrap();
        let artifacts = Artifacts {
            directory: &directory,
            attempt: 1,
        };
        let (path, mut file) = artifacts.create("x.csv").unwrap();
        assert_eq!(path, folder.path().join("artifacts/x.csv"));
        file.write_all(b"abc").unwrap();
        // This is the first example of FIPS 180-4.
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let expected = Artifact {
            file: PathBuf::from("artifacts/x.csv"),
            bytes: 3,
            sha256: sha256.to_owned(),
        };
        let existing = artifacts.existing(["x.csv", "gone.csv"].map(str::to_owned));
        assert_eq!(existing, [expected]);
    }
}
