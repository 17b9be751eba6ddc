//! What `top` draws, and which keys it obeys.

use admin::TrafficStatus;
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
};

use super::*;
use crate::{
    member_table::tests::busy_status,
    top::view::{AfterKey, Sample},
};

fn traffic(elapsed: u64, requests: u64) -> TrafficStatus {
    serde_json::from_value(serde_json::json!({
        "elapsed_milliseconds": elapsed,
        "work": {"catalog": {"requests": requests, "milliseconds": requests * 20, "durations": [
            {"at_most_microseconds": 20_000, "requests": requests},
        ]}},
        "refusals": {"no-route": 3}, "certificate_refusals": {"revoked": 1},
        "failures": {"here": requests / 2, "cut": 0}, "codes": {"2xx": requests},
        "limits_hit": {}, "handshakes": {}, "in_flight": 4, "waiting": 2
    }))
    .unwrap()
}

fn shown(view: &mut View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view)).unwrap();
    terminal.backend().to_string()
}

fn press(view: &mut View, code: KeyCode) -> AfterKey {
    view.key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// A pool with many members: the last is down, the one before it is slow.
fn estate(members: usize) -> Sample {
    let mut status = busy_status();
    let pool = &mut status.pools[0];
    let [slow, down] = [0, 1].map(|index| pool.members[index].clone());
    pool.members.clear();
    for number in 0..members - 2 {
        let mut member = slow.clone();
        member.address = format!("well{number:02}:8140");
        (member.traffic, member.overloaded) = (None, None);
        pool.members.push(member);
    }
    pool.members.extend([slow, down]);
    (status, traffic(1_000, 10))
}

#[test]
fn the_view_has_alarms_members_rates_and_failures() {
    let mut view = View::new((busy_status(), traffic(1_000, 10)));
    view.update((busy_status(), traffic(3_000, 30)));
    let shown = shown(&mut view, 140, 40);
    for expected in [
        "4 in flight  2 waiting  2xx 10.0/s",
        "no member of pool ca is available",
        "1 of 2",
        "c1:8140",
        "down, drain",
        "4.2 s / 12 s",
        "15.0 (connect, 5xx)",
        "slow, overloaded",
        "unknown",
        "10.0/s",
        "20 ms",
        "19 ms",
        "here 5.0/s",
        "cut 0.0/s",
        "3 no-route",
        "1 revoked",
    ] {
        assert!(shown.contains(expected), "{expected} is not in\n{shown}");
    }
}

#[test]
fn members_in_trouble_come_first_and_the_list_shows_how_many_are_cut_off() {
    let mut view = View::new(estate(30));
    let drawn = shown(&mut view, 120, 32);
    let at = |text: &str| {
        drawn
            .find(text)
            .unwrap_or_else(|| panic!("{text} is not in\n{drawn}"))
    };
    assert!(at("c2.example.com:8140") < at("c1:8140"), "{drawn}");
    assert!(at("c1:8140") < at("well00:8140"), "{drawn}");
    let visible = drawn.matches(":8140").count();
    assert!(
        drawn.contains(&format!(" {} more ", 30 - visible)),
        "{drawn}"
    );

    press(&mut view, KeyCode::Char('o'));
    let drawn = shown(&mut view, 120, 32);
    assert!(
        drawn.contains("well00:8140") && !drawn.contains("c1:8140"),
        "{drawn}"
    );
}

#[test]
fn the_list_scrolls_by_lines_and_pages_and_not_beyond_its_ends() {
    let mut view = View::new(estate(40));
    press(&mut view, KeyCode::Char('o'));
    shown(&mut view, 120, 32);
    let page = view.visible;
    for (code, expected) in [
        (KeyCode::Up, 0),
        (KeyCode::Down, 1),
        (KeyCode::PageDown, 1 + page),
        (KeyCode::End, 40 - page),
        (KeyCode::PageDown, 40 - page),
        (KeyCode::PageUp, 40 - 2 * page),
        (KeyCode::Home, 0),
    ] {
        assert_eq!(press(&mut view, code), AfterKey::Continue);
        assert_eq!(view.scrolled, expected, "{code:?}");
    }
    press(&mut view, KeyCode::End);
    let drawn = shown(&mut view, 120, 32);
    assert!(
        drawn.contains("c2.example.com:8140") && !drawn.contains(" more "),
        "{drawn}"
    );
}

#[test]
fn keys_show_help_and_end_the_view() {
    let mut view = View::new(estate(4));
    assert!(!shown(&mut view, 120, 32).contains("PageDown"));
    for code in [KeyCode::Char('?'), KeyCode::Char('h')] {
        press(&mut view, code);
        assert_eq!(
            shown(&mut view, 120, 32).contains("PageDown"),
            view.shows_help
        );
    }
    for code in [KeyCode::Char('q'), KeyCode::Esc] {
        assert_eq!(press(&mut view, code), AfterKey::End);
    }
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(view.key(interrupt), AfterKey::End);
}

#[test]
fn a_small_terminal_is_drawn_without_an_error() {
    let mut view = View::new((busy_status(), traffic(1, 1)));
    view.shows_help = true;
    for (width, height) in [(10, 3), (1, 1), (40, 12)] {
        shown(&mut view, width, height);
        press(&mut view, KeyCode::End);
    }
}

#[test]
fn each_alarm_has_one_line_and_what_is_cut_off_is_counted() {
    let (mut status, traffic) = (busy_status(), traffic(1_000, 10));
    let alarm = status.alarms[0].clone();
    status.alarms = (1..=9)
        .map(|number| admin::AlarmStatus {
            message: format!("alarm {number} {}", "x".repeat(200)),
            ..alarm.clone()
        })
        .collect();
    let mut view = View::new((status, traffic));
    let narrow = shown(&mut view, 80, 40);
    for expected in [
        "alarm 1 ",
        "alarm 5 ",
        "4 more: `proscenium status` shows all alarms",
    ] {
        assert!(narrow.contains(expected), "{expected} is not in\n{narrow}");
    }
    assert!(!narrow.contains("alarm 6 "), "{narrow}");
    view.problem = Some("the proxy has not answered".to_owned());
    let narrow = shown(&mut view, 80, 40);
    assert!(narrow.contains("the proxy has not answered"), "{narrow}");
    assert!(narrow.contains("5 more: "), "{narrow}");
}

#[test]
fn rates_begin_again_when_another_process_answers() {
    let mut view = View::new((busy_status(), traffic(60_000, 600)));
    view.update((busy_status(), traffic(62_000, 620)));
    assert!(view.rate(|traffic| traffic.codes["2xx"]).is_some());
    view.update((busy_status(), traffic(1_000, 40)));
    assert_eq!(view.rate(|traffic| traffic.codes["2xx"]), None);
}
