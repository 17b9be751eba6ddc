//! Compares the simulation with queueing theory, and tests that requests are conserved and runs are repeatable.

use crate::{
    column::{self, Column},
    compiler::CompilerSettings,
    fleet::{FleetSettings, Requests},
    haproxy::HaproxySettings,
    outcome::SimulationOutcome,
    proscenium::ProsceniumSettings,
    report::compare,
    scenario::{self, Goals, P99, Scenario, ScenarioEvent},
};

/// One compiler that receives single requests with Poisson-like arrivals at this load.
fn single_queue(jrubies: u32, load: f64, requests: Requests) -> Scenario {
    let mean = match requests {
        Requests::Exponential(mean) | Requests::Fixed(mean) => mean,
        Requests::Puppet => 1.0,
    };
    let interval = 10_000.0;
    let rate = load * f64::from(jrubies) / mean;
    let fleet = FleetSettings {
        interval,
        requests,
        ..FleetSettings::new((rate * interval) as u32)
    };
    Scenario {
        name: "single-queue",
        what: "a queue that theory knows",
        fleet,
        compilers: vec![CompilerSettings {
            queue_max: 0,
            ..CompilerSettings::new(jrubies)
        }],
        event: ScenarioEvent::Nothing,
        from: 500.0,
        until: interval,
        proxies: vec![1.0],
        counts: true,
        goals: Goals {
            no_failed_runs: true,
            p99: P99::Better,
        },
    }
}

fn mean_wait(outcome: &SimulationOutcome, service: f64) -> f64 {
    let total: f64 = outcome.to_catalog.iter().map(|time| f64::from(*time)).sum();
    total / outcome.to_catalog.len() as f64 - service
}

/// The mean wait in an M/M/c queue by Erlang's formula.
fn erlang(servers: u32, load: f64, service: f64) -> f64 {
    let offered = load * f64::from(servers);
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..servers {
        term *= offered / f64::from(k);
        sum += term;
    }
    let last = term * offered / f64::from(servers) / (1.0 - load);
    let waits = last / (sum + last);
    waits * service / (f64::from(servers) * (1.0 - load))
}

fn columns() -> Vec<Column> {
    column::all(ProsceniumSettings::default()).expect("the files of bench/simulate")
}

fn is_near(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 0.05 * expected
}

#[test]
fn waits_are_those_of_erlangs_formula_by_us_and_by_others() {
    let scenario = single_queue(4, 0.7, Requests::Exponential(0.5));
    let expected = erlang(4, 0.7, 0.5);
    for column in &columns()[..2] {
        let outcomes: Vec<_> = (1..=2).map(|seed| column.run(&scenario, seed)).collect();
        let found = mean_wait(&SimulationOutcome::merged(&outcomes), 0.5);
        assert!(
            is_near(found, expected),
            "{}: {found}, not {expected}",
            column.name
        );
    }
}

#[test]
fn waits_for_requests_of_one_length_are_those_of_pollaczek_and_khinchin() {
    let scenario = single_queue(1, 0.7, Requests::Fixed(0.4));
    let expected = 0.4 * 0.7 / (2.0 * 0.3);
    let outcomes: Vec<_> = (1..=2)
        .map(|seed| columns()[0].run(&scenario, seed))
        .collect();
    let found = mean_wait(&SimulationOutcome::merged(&outcomes), 0.4);
    assert!(is_near(found, expected), "{found}, not {expected}");
}

#[test]
fn every_run_of_every_scenario_ends_once() {
    let all = [scenario::all(), scenario::several_proxies()].concat();
    for scenario in all {
        let scenario = scenario::small(&scenario);
        for column in columns() {
            let outcome = column.run(&scenario, 7);
            assert!(
                outcome.runs > 20,
                "{}: {} runs",
                scenario.name,
                outcome.runs
            );
            let ended = outcome.succeeded + outcome.failed();
            assert_eq!(outcome.runs, ended, "{} by {}", scenario.name, column.name);
            let times = outcome.to_catalog.len() as u64;
            assert_eq!(outcome.runs, times, "{} by {}", scenario.name, column.name);
        }
    }
}

/// The outcomes of a scenario with several proxies, first with full and then with divided limits.
fn full_and_divided(name: &str) -> [SimulationOutcome; 2] {
    let mut all = scenario::several_proxies().into_iter();
    let scenario = Scenario {
        until: 600.0,
        ..all.find(|one| one.name == name).expect("a scenario")
    };
    let columns =
        column::of_several_proxies(&ProsceniumSettings::default(), scenario.proxies.len());
    [column::FULL, column::DIVIDED].map(|name| {
        let column = columns.iter().find(|column| column.name == name);
        column.expect("a column").run(&scenario, 1)
    })
}

#[test]
fn divided_limits_make_agents_wait_many_times_longer_when_one_proxy_has_most_of_them() {
    for name in ["proxies-death", "proxies-vrrp", "proxies-80-20"] {
        let [full, divided] = full_and_divided(name).map(|outcome| outcome.percentile(0.99));
        assert!(divided > 3.0 * full, "{name}: {divided} s and {full} s");
    }
}

#[test]
fn full_limits_on_two_proxies_cost_no_time_and_let_no_more_requests_than_jrubies_wait_in_a_compiler()
 {
    let [full, divided] = full_and_divided("proxies-equal");
    let [own, other] = [&full, &divided].map(|outcome| outcome.percentile(0.99));
    assert!(own < 1.05 * other, "{own} s and {other} s");
    assert_eq!(divided.longest_inside, 0);
    assert!(
        (1..=4).contains(&full.longest_inside),
        "{}",
        full.longest_inside
    );
}

#[test]
fn the_same_seed_gives_the_same_report_on_any_number_of_threads() {
    let scenarios: Vec<_> = scenario::all()[1..4].iter().map(scenario::small).collect();
    let first = compare(&scenarios, &columns(), &[5, 6], 1);
    assert_eq!(first, compare(&scenarios, &columns(), &[5, 6], 2));
    let other = compare(&scenarios, &columns(), &[7], 2);
    assert_ne!(first.table, other.table);
}

#[test]
fn without_counts_a_herd_fills_the_compilers_queues_and_agents_that_would_fail_are_waited_out() {
    let herd = scenario::all()
        .into_iter()
        .find(|scenario| scenario.name == "herd-uncounted");
    let herd = herd.expect("a scenario");
    let outcome = columns()[0].run(
        &Scenario {
            until: 200.0,
            ..herd
        },
        1,
    );
    assert!(outcome.refusals > 0, "the queues were full");
    assert_eq!(outcome.failed(), 0);
}

#[test]
fn an_agent_that_stays_on_its_compiler_finds_the_code_of_its_environment_there() {
    let environments = scenario::all()
        .into_iter()
        .find(|scenario| scenario.name == "environments");
    let environments = environments.expect("a scenario");
    let scenario = Scenario {
        fleet: FleetSettings {
            agents: 2_000,
            ..environments.fleet.clone()
        },
        compilers: environments.compilers[..4].to_vec(),
        ..environments
    };
    let columns = columns();
    let median = |name| {
        let column = columns.iter().find(|column| column.name == name);
        column.expect("a column").run(&scenario, 1).percentile(0.5)
    };
    let (spread, stays) = (median(column::OURS), median("certname-hash"));
    assert!(stays + 1.0 < spread, "{stays} s and {spread} s");
}

#[test]
fn a_file_that_is_not_understood_says_where() {
    let good = include_str!("../../../../bench/simulate/random-two.cfg");
    assert!(HaproxySettings::read(good).is_ok());
    let error = |text: String| {
        HaproxySettings::read(&text)
            .expect_err("a wrong file")
            .to_string()
    };
    assert_eq!(
        error(good.replace("slowstart 5s", "")),
        "the configuration has no `slowstart`"
    );
    assert_eq!(
        error(good.replace("balance random(2)", "balance uri")),
        "`balance uri` is not understood"
    );
    assert_eq!(
        error(good.replace("\"${JRUBIES}\"", "10")),
        "`maxconn 10` is not understood"
    );
}
