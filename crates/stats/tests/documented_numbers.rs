//! Checks numbers in the documentation with formulas that share no code with the program.

use statrs::distribution::{ContinuousCDF as _, Normal};

/// Returns the mean and the standard deviation of normal delays if no packet leaves before an earlier one: of the
/// maximum of (delay of the packet k places earlier) - k * gap over all k, whose distribution is a product.
fn in_order(mean: f64, deviation: f64, gap: f64) -> [f64; 2] {
    const STEP: f64 = 0.01;
    let normal = Normal::new(mean, deviation).expect("a deviation above 0");
    let at_most = |x: f64| -> f64 {
        let places = (0_u32..).map(|place| x + f64::from(place) * gap);
        let relevant = places.take_while(|x| (x - mean) / deviation < 8.0);
        relevant.map(|x| normal.cdf(x)).product()
    };
    let grid = (0_u32..12_000).map(|step| mean - 12.0 * deviation + f64::from(step) * STEP);
    let parts = grid.map(|x| (x + STEP / 2.0, at_most(x + STEP) - at_most(x)));
    let [first, second] = parts.fold([0.0; 2], |[first, second], (x, share)| {
        [first + x * share, second + x * x * share]
    });
    [first, (second - first * first).sqrt()]
}

#[test]
fn the_page_of_jitter_states_the_effect_of_order_on_normal_delays() {
    let page = include_str!("../../../docs/effects/jitter.md");
    let [slow, fast] = [1.0, 0.1].map(|gap| in_order(20.0, 5.0, gap));
    let sentence = format!(
        "in order it is {:.1} ms at 1,000 packets a second, with a standard deviation of {:.2} ms, and {:.1} ms at 10,000, with {:.2} ms.",
        slow[0], slow[1], fast[0], fast[1]
    );
    assert!(page.contains(&sentence), "{sentence}");
    assert!(sentence.contains("3.19") && sentence.contains("2.35"));
}

#[test]
fn the_ledger_states_the_cost_of_a_short_transfer_per_mib() {
    // A MiB takes 46.57 ms in a transfer of 96 MiB, and 41.66 ms in one of 2 MiB.
    let short: f64 = 100.0 * (1.0 - 41.66 / 46.57);
    let ledger = include_str!("../../../docs/ledger.md");
    assert!(ledger.contains(&format!("{short:.1} % less")), "{short:.1}");
    assert!(!ledger.contains("of one MiB compares"));
}

#[test]
fn the_rules_about_variation_are_contradicted_by_an_interval_and_not_by_chance() {
    let scenario = include_str!("../../../scenarios/toffee-mocha.toml");
    let of_variation = scenario.split("of = \"download.goodput_variation_percent.mean\"\n");
    let ratios: Vec<&str> = of_variation
        .skip(1)
        .filter(|rule| rule.starts_with("ratio"))
        .collect();
    assert_eq!(ratios.len(), 2);
    for rule in ratios {
        assert_eq!(rule.lines().nth(1), Some("met = \"unless-contradicted\""));
    }
    let page = include_str!("../../../docs/scenarios.md");
    let normal = Normal::new(0.0, 1.0).unwrap();
    let away = normal.inverse_cdf(0.9995);
    let in_a_million = [833.0, 1_196.0].map(|by_value| {
        let margin = normal.inverse_cdf(1.0 - by_value / 10_000.0);
        (1e6 * normal.cdf(-(margin + away))).round()
    });
    let [first, second] = in_a_million;
    assert!(
        page.contains(&format!("happens in {first} and {second} of a million")),
        "{in_a_million:?}"
    );
}
