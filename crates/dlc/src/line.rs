//! Parses one line: its fields, and the rules for each.

use crate::field::{OperationId, dependency, number, within};
use crate::operation::{SETUP_FIRST, is_send, is_server, position};
use crate::{Columns, Nodes};

/// Fields of a record, and of one of the set-up.
const FIELDS: usize = 12;
const SETUP_FIELDS: usize = 6;

/// Largest number of seconds that leaves room for microseconds.
const SECONDS_MAX: i64 = i64::MAX / 1_000_000 - 1;

/// The field and the rule that a line breaks.
pub struct Broken {
    pub at: usize,
    pub rule: String,
}

/// Adds the line's record to the columns, or changes nothing but `last_id`.
pub fn read(text: &[u8], nodes: Nodes, columns: &mut Columns) -> Result<(), Broken> {
    let (starts, fields, count) = split(text);
    let broken = |field: usize, rule: &str| Broken { at: starts[field], rule: rule.into() };
    let before = columns.last_id;
    let id = within(fields[0], 0, i64::MAX).ok_or_else(|| broken(0, "id: a whole number, 0 or more"))?;
    columns.last_id = Some(id);
    if before.is_some_and(|before| id < before) {
        return Err(broken(0, "id: rises from record to record"));
    }
    if !(SETUP_FIELDS..=FIELDS).contains(&count) {
        let rule = format!(
            "a record has {FIELDS} fields, one of the set-up {SETUP_FIELDS}, with a tab between: here {count}"
        );
        return Err(Broken { at: text.len(), rule });
    }
    let src = rank(fields[1], nodes).map_err(|rule| broken(1, &format!("src: {rule}")))?;
    let dst = rank(fields[2], nodes).map_err(|rule| broken(2, &format!("dst: {rule}")))?;
    let length = within(fields[3], 0, i64::MAX).ok_or_else(|| broken(3, "length: bytes, 0 or more"))?;
    let num_pp = number(fields[4])
        .filter(|&value| value >= 0 || value == -15)
        .ok_or_else(|| broken(4, "num_pp: 0 or more, or -15 for initialisation"))?;
    let operation = position(fields[5]).ok_or_else(|| {
        broken(
            5,
            "operation: `OP:= ` and one of {Push,Pull}_{Send,Recv}_{Worker,Server}, or SendCom_{TO,To}_…",
        )
    })?;
    let mut rest = Rest::default();
    if operation >= SETUP_FIRST {
        if count != SETUP_FIELDS {
            return Err(broken(6, "a set-up record ends after `operation`"));
        }
    } else {
        if count != FIELDS {
            let rule = format!("a record has {FIELDS} fields: here {count}");
            return Err(Broken { at: text.len(), rule });
        }
        let (sent, other) = if is_send(operation) { (src, dst) } else { (dst, src) };
        rest = Rest::read(&fields, operation, (sent, other), nodes)
            .map_err(|(field, rule)| broken(field, rule))?;
    }
    columns.id.push(id);
    columns.src.push(src);
    columns.dst.push(dst);
    columns.length.push(length);
    columns.num_pp.push(num_pp);
    columns.operation.push(operation);
    rest.push(if operation < SETUP_FIRST { fields[11] } else { b"" }, columns);
    Ok(())
}

/// The start of each field, the fields, and their number, which may exceed the array.
fn split(text: &[u8]) -> ([usize; FIELDS + 1], [&[u8]; FIELDS + 1], usize) {
    let mut starts = [text.len(); FIELDS + 1];
    let mut fields: [&[u8]; FIELDS + 1] = [b""; FIELDS + 1];
    let (mut count, mut at) = (0, 0);
    for field in text.split(|&byte| byte == b'\t') {
        if count <= FIELDS {
            (starts[count], fields[count]) = (at, field);
        }
        at += field.len() + 1;
        count += 1;
    }
    (starts, fields, count)
}

/// A worker's or server's rank, checked against their number if the header has it.
fn rank(text: &[u8], nodes: Nodes) -> Result<i32, String> {
    let value = within(text, 0, i64::from(i32::MAX)).ok_or("a rank, 0 or more")?;
    if let (Some(workers), Some(servers)) = (nodes.workers, nodes.servers)
        && value >= i64::from(workers) + i64::from(servers)
    {
        return Err(format!(
            "the header speaks of {workers} workers and {servers} servers, and the scheduler is left out"
        ));
    }
    Ok(value as i32)
}

/// The fields that set-up records lack.
#[derive(Default)]
struct Rest {
    key: i32,
    operation_num: i32,
    peer: i32,
    dep_type: i8,
    d_time: i64,
    time_sec: i64,
    time_usec: i32,
    dependency: (i32, i32),
}

impl Rest {
    /// Err: the number of the field at fault, and the rule. `ends`: the recording rank, and its peer's.
    fn read(
        fields: &[&[u8]; FIELDS + 1],
        operation: u8,
        ends: (i32, i32),
        nodes: Nodes,
    ) -> Result<Self, (usize, &'static str)> {
        let id = OperationId::parse(fields[6]).ok_or((6, "op_id: key-operation_num-role, as 4-7-s0"))?;
        let server = is_server(operation);
        if (id.role == b's') == server {
            return Err((
                6,
                "op_id: names the peer, a server `s` in a worker's record, a worker `w` in a server's",
            ));
        }
        let first = if server { Some(0) } else { nodes.workers };
        if first.is_some_and(|first| i64::from(ends.1) != i64::from(first) + i64::from(id.peer)) {
            return Err((
                6,
                "op_id: names the peer that `src` and `dst` name: workers come first, then servers",
            ));
        }
        let micros = within(fields[10], 0, 999_999).ok_or((10, "time_usec: 0 to 999999"))?;
        Ok(Self {
            key: id.key,
            operation_num: id.number,
            peer: id.peer,
            dep_type: within(fields[7], 0, 4).ok_or((7, "dep_type: 0 to 4"))? as i8,
            d_time: number(fields[8]).ok_or((8, "d_time: a whole number of microseconds"))?,
            time_sec: within(fields[9], 0, SECONDS_MAX).ok_or((9, "time_sec: seconds, 0 or more"))?,
            time_usec: micros as i32,
            dependency: dependency(fields[11]).ok_or((
                11,
                "id_dep: -1, an op_id as 4-6-s0, or a list in which each ends with a dot, as (3-s0.)",
            ))?,
        })
    }

    fn push(self, id_dep: &[u8], columns: &mut Columns) {
        columns.key.push(self.key);
        columns.operation_num.push(self.operation_num);
        columns.peer.push(self.peer);
        columns.dep_type.push(self.dep_type);
        columns.d_time.push(self.d_time);
        columns.time_sec.push(self.time_sec);
        columns.time_usec.push(self.time_usec);
        columns.id_dep.extend_from_slice(id_dep);
        columns.id_dep_ends.push(columns.id_dep.len() as i32);
        columns.dep_key.push(self.dependency.0);
        columns.dep_num.push(self.dependency.1);
    }
}
