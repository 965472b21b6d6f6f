//! Parses numbers and operation ids, accepting only the form that can be written back byte for byte.

/// A whole number as it is printed: no sign but a minus, no leading zeros, nothing around it.
pub fn number(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 || (digits[0] == b'0' && (digits.len() > 1 || negative)) {
        return None;
    }
    let mut value = 0_i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
    }
    Some(if negative { -value } else { value })
}

pub fn within(text: &[u8], least: i64, most: i64) -> Option<i64> {
    number(text).filter(|value| (least..=most).contains(value))
}

/// `key-operation_num-role` and a rank of that role: `4-7-s0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationId {
    pub key: i32,
    pub number: i32,
    pub role: u8,
    pub peer: i32,
}

const MOST: i64 = i32::MAX as i64;

impl OperationId {
    pub fn parse(text: &[u8]) -> Option<Self> {
        let dash = text.iter().position(|&byte| byte == b'-')?;
        let key = within(&text[..dash], 0, MOST)? as i32;
        let (number, role, peer) = numbered_role(&text[dash + 1..])?;
        Some(Self { key, number, role, peer })
    }
}

/// `operation_num-role` and a rank: `3-s0`, `-2-w1`.
fn numbered_role(text: &[u8]) -> Option<(i32, u8, i32)> {
    let dash = 1 + text.get(1..)?.iter().position(|&byte| byte == b'-')?;
    let number = within(&text[..dash], -MOST, MOST)? as i32;
    let (&role, peer) = text[dash + 1..].split_first()?;
    if role != b's' && role != b'w' {
        return None;
    }
    Some((number, role, within(peer, 0, MOST)? as i32))
}

/// Dependencies of a record: the key (-1: none or several) and operation number (of the first) that `id_dep` names.
///
/// `-1`; an operation id; or `(` entries that each end with `.` `)`, where an entry is an operation id with or without
/// its key.
pub fn dependency(text: &[u8]) -> Option<(i32, i32)> {
    if text == b"-1" {
        return Some((-1, -1));
    }
    let Some(inner) = text.strip_prefix(b"(") else {
        return OperationId::parse(text).map(|id| (id.key, id.number));
    };
    let inner = inner.strip_suffix(b".)")?;
    let mut first = None;
    for entry in inner.split(|&byte| byte == b'.') {
        let number = match OperationId::parse(entry) {
            Some(id) => id.number,
            None => numbered_role(entry)?.0,
        };
        first.get_or_insert(number);
    }
    first.map(|number| (-1, number))
}
