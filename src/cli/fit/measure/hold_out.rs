//! The measurement of the path that is held out for the comparison.

use anyhow::Result;
use fit::PathObservations;
use instruments::failure::Failure;
use record::Measurement;
use serde_json::json;

use super::{CONGESTION, INTERVAL, PROBE_BYTES, Path, Reflector, probes_in};
use crate::cli::fit::costs::Limits;
use crate::cli::fit::held_out::{self, HeldOut, HeldOutPlan, NO_PROOF};
use crate::cli::fit::trains::TrainPlan;
use crate::notes::note;

impl Path<'_> {
    /// Checks whether the held-out measurement can have loads. The error is the reason why not.
    pub(super) fn can_load(
        &self,
        limits: &Limits,
        observed: &PathObservations,
    ) -> Result<(), String> {
        let cause = if !limits.with_proof {
            NO_PROOF
        } else if !matches!(self.reflector, Reflector::Stamp(_)) {
            "that needs a far end that answers probes (STAMP), as `farwire serve` does"
        } else if observed.searches.len() < 2 {
            "the rate of a direction is not known, so that its loads could exceed the budget"
        } else {
            return Ok(());
        };
        Err(cause.to_owned())
    }

    /// Measures once more: probes on the idle path, trains if they are planned, and loads, unless there is a reason against
    /// them. The inner error is the reason why nothing was measured.
    pub(super) fn hold_out(
        &self,
        limits: &Limits,
        loads: Result<(), String>,
        trains: Option<Result<TrainPlan, String>>,
    ) -> Result<Result<HeldOut, String>, Failure> {
        let instrument = match self.reflector {
            Reflector::Stamp(_) => "probe",
            Reflector::Ping => "ping",
            Reflector::Absent => {
                let cause = "the far end answers neither probes (STAMP) nor pings";
                return Ok(Err(cause.to_owned()));
            }
        };
        note("farwire: fit: the measurement that is held out for the comparison");
        let count = probes_in(limits.proof_idle_s());
        let idle = self.probe(count, None)?;
        self.check_stop()?;
        if let Some(cause) = idle.failure {
            return Ok(Err(cause));
        }
        let trains = trains.map(|plan| plan.and_then(|plan| self.send_trains(plan)));
        self.check_stop()?;
        let lasts_s = limits.proof_loaded_s();
        let loaded = loads.and_then(|()| self.hold_out_loads(lasts_s));
        self.check_stop()?;
        let (loads_s, loaded) = match loaded {
            Ok(loaded) => (Ok(lasts_s), Some(loaded)),
            Err(cause) => (Err(cause), None),
        };
        let with_loads = match &loads_s {
            Ok(lasts_s) => format!(", and {lasts_s:.0} s with TCP loads"),
            Err(_) => String::new(),
        };
        let with_trains = match &trains {
            Some(Ok((plan, _))) => format!(", {}", plan.description()),
            Some(Err(cause)) => {
                note(format_args!("farwire: fit: no trains of packets: {cause}"));
                format!(", no trains of packets ({cause})")
            }
            None => String::new(),
        };
        let (trains, of_trains) = trains.and_then(Result::ok).unzip();
        Ok(Ok(HeldOut {
            description: format!(
                "{count} packets of `{instrument}` on the idle path{with_trains}{with_loads}, after the sessions that were fitted"
            ),
            plan: HeldOutPlan {
                idle: instrument,
                count,
                interval: INTERVAL,
                size: PROBE_BYTES,
                trains,
                loads_s,
            },
            measurement: held_out::joined(idle, trains.zip(of_trains), loaded),
        }))
    }

    /// Measures with the loads of the comparison. The error is the reason why that failed.
    fn hold_out_loads(&self, lasts_s: f64) -> Result<Measurement, String> {
        let options = json!({ "time": format!("{lasts_s:.0}s"), "congestion": CONGESTION });
        let loaded = self.measure_with("quality", options);
        let loaded = loaded.map_err(|failure| failure.to_string())?;
        match &loaded.failure {
            Some(cause) => Err(cause.clone()),
            None => Ok(loaded),
        }
    }
}
