//! Trains of packets on the idle path.

use fit::{LinkFit, PathObservations, plan};
use instruments::failure::Failure;
use record::Measurement;
use serde_json::json;

use super::{Path, Reflector};
use crate::cli::fit::costs::{Limits, served_rate};
use crate::cli::fit::trains::{self, LIGHT_LOAD, TrainPlan};
use crate::notes::note;
use crate::progress;

impl Path<'_> {
    /// Sends trains of packets on the idle path if the rate of a direction varies, and takes their bytes from `spare`. Adds
    /// what they do not show to `lacks`. Returns them if they succeeded.
    pub(super) fn trains(
        &self,
        observed: &mut PathObservations,
        spare: &mut f64,
        lacks: &mut Vec<String>,
    ) -> Result<Option<TrainPlan>, Failure> {
        let found = LinkFit::of(observed);
        let Some(plan) = TrainPlan::of(&found, self.headers()) else {
            return Ok(None);
        };
        let last = observed.loaded.last();
        if let Some((load, bottleneck)) =
            last.and_then(|load| Some((load, found.toward(load.direction).bottleneck.as_ref()?)))
        {
            self.pause(plan::pause_s(observed, load, bottleneck.rate.value, 0.0))?;
        }
        let measured = plan.check(self.mtu(), *spare).and_then(|()| {
            *spare -= plan.bytes();
            self.send_trains(plan)
        });
        self.check_stop()?;
        match measured {
            Ok((plan, measured)) => {
                observed.trains = plan.session(&measured, self.headers());
                lacks.extend(plan.lacks(&found, &observed.trains));
                Ok(Some(plan))
            }
            Err(cause) => {
                lacks.push(format!("{LIGHT_LOAD}: {cause}"));
                Ok(None)
            }
        }
    }

    /// Plans the trains of a comparison without a fit, which send at most `left` bytes. The error is the reason why they are
    /// impossible.
    pub(super) fn searched_trains(
        &self,
        limits: &Limits,
        observed: &PathObservations,
        left: f64,
    ) -> Result<TrainPlan, String> {
        let searches = observed.searches.iter();
        let rates = searches.map(|(way, search)| served_rate(*way, search, &observed.idle));
        let rates: Vec<f64> = rates.collect();
        let [one, other] = rates.as_slice() else {
            return Err("the rate of a direction is not known".to_owned());
        };
        let lasts_s = limits.proof_loaded_s();
        let plan = TrainPlan::lasting(lasts_s, one.min(*other), self.headers());
        plan.check(self.mtu(), left).map(|()| plan)
    }

    /// Sends trains on the idle path. Returns them with what is known about the far end then. The error is the reason why that
    /// failed.
    pub(super) fn send_trains(&self, plan: TrainPlan) -> Result<(TrainPlan, Measurement), String> {
        let Reflector::Stamp(port) = self.reflector else {
            return Err("the far end answers no probes (STAMP)".to_owned());
        };
        note(format_args!(
            "farwire: fit: {} on the idle path, {}",
            plan.description(),
            progress::about(plan.lasts())
        ));
        let options = json!({
            "count": plan.count,
            "interval": format!("{}ms", plan.interval.as_millis()),
            "size": plan.size,
            "train": plan.length,
            "port": port,
        });
        let measured = self.measure_with("probe", options);
        let measured = measured.map_err(|failure| failure.to_string())?;
        if let Some(cause) = &measured.failure {
            return Err(cause.clone());
        }
        let is_held = trains::are_held(&measured);
        Ok((TrainPlan { is_held, ..plan }, measured))
    }
}
