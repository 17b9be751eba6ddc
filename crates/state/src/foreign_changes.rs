//! The lines of the audit log about changes that operators made on other proxies.

use admin::{AuditEntry, SetMemberState};
use balancing::Instruction;
use fleet::{MemberRecord, Record, RecordContent};
use serde_json::{Value, json};

use crate::stored_states::{instruction_status, state_status};

/// A change of a member, and whether it is applied here.
pub fn of_member(
    record: &MemberRecord,
    before: Option<&Instruction>,
    after: Option<&Instruction>,
    is_withheld: bool,
) -> AuditEntry {
    let state = |instruction: Option<&Instruction>| SetMemberState {
        pool: record.pool.clone(),
        member: record.member.clone(),
        administrative_state: state_status(
            instruction.map_or(balancing::Administrative::Ready, |instruction| {
                instruction.state
            }),
        ),
        administrative: instruction.cloned().map(instruction_status),
    };
    let action = record.state.as_str();
    let subject = json!({"pool": record.pool, "member": record.member});
    AuditEntry {
        why: record.why.clone().unwrap_or_default(),
        before: json!([state(before)]),
        after: json!([state(after)]),
        result: match is_withheld {
            true => "withheld: no other member of the pool is available here".to_owned(),
            false => "done".to_owned(),
        },
        ..foreign(&record.stamp.by, &record.by, action, subject)
    }
}

/// A block that was set or lifted. `None` if the record is not about a block.
pub fn of_block(record: &Record) -> Option<AuditEntry> {
    let RecordContent::Block(block) = record.content() else {
        return None;
    };
    let subject = block.blocked.clone();
    let set = json!(block);
    Some(match &block.lifted {
        None => AuditEntry {
            why: block.why.clone(),
            after: set,
            ..foreign(&block.proxy, &block.by, "block", subject)
        },
        Some(lift) => AuditEntry {
            before: set,
            ..foreign(&lift.proxy, &lift.by, "unblock", subject)
        },
    })
}

/// `by`: the account on that proxy.
fn foreign(proxy: &str, by: &str, action: &str, subject: Value) -> AuditEntry {
    AuditEntry {
        account: format!("{by} on {proxy}"),
        uid: None,
        origin: Some(admin::AuditOrigin {
            proxy: proxy.to_owned(),
            account: by.to_owned(),
        }),
        action: action.to_owned(),
        subject,
        why: String::new(),
        before: Value::Null,
        after: Value::Null,
        result: "done".to_owned(),
    }
}
