//! The rules, one by one, and that no bytes whatever are too much for the parser.

use super::*;
use proptest::prelude::*;

const PAPER: Nodes = Nodes { workers: Some(2), servers: Some(1) };

fn problem(line: &str) -> (usize, String) {
    let read = parse(format!("{line}\n").as_bytes(), 7, Some(3), PAPER);
    assert_eq!((read.id.len(), read.problem_count), (0, 1), "{line}");
    let found = &read.problems[0];
    assert_eq!(found.line, 7);
    (found.column, found.rule.split(':').next().unwrap_or_default().to_owned())
}

/// Broken: a damaged record would be accepted, or reported at the wrong place.
#[test]
fn every_rule_is_told_with_its_place() {
    let cases = [
        ("x\t0\t2\t19\t21\tOP:= Push_Recv_Worker\t6-5-s0\t1\t4\t15\t8\t6-4-s0", 1, "id"),
        ("2\t0\t2\t25\t0\tOP:= SendCom_TO_Servers", 1, "id"),
        ("4\t3\t2\t25\t0\tOP:= SendCom_TO_Servers", 3, "src"),
        ("4\t0\t03\t25\t0\tOP:= SendCom_TO_Servers", 5, "dst"),
        ("4\t0\t2\t-1\t0\tOP:= SendCom_TO_Servers", 7, "length"),
        ("4\t0\t2\t25\t-14\tOP:= SendCom_TO_Servers", 10, "num_pp"),
        ("4\t0\t2\t25\t0\tOP:= SendCom", 12, "operation"),
        ("4\t0\t2\t25\t0\tOP:= SendCom_TO_Servers\t1", 36, "a set-up record ends after `operation`"),
        ("4\t2\t0\t19\t21\tPush_Recv_Worker\t6-5-w0\t1\t4\t15\t8\t6-4-s0", 30, "op_id"),
        ("4\t2\t0\t19\t21\tPush_Recv_Worker\t6-5-s1\t1\t4\t15\t8\t6-4-s0", 30, "op_id"),
        ("4\t2\t0\t19\t21\tPush_Recv_Worker\t6-5-s0\t5\t4\t15\t8\t6-4-s0", 37, "dep_type"),
        ("4\t2\t0\t19\t21\tPush_Recv_Worker\t6-5-s0\t1\t\t15\t8\t6-4-s0", 39, "d_time"),
        ("4\t2\t0\t19\t21\tPush_Recv_Worker\t6-5-s0\t1\t4\t-1\t8\t6-4-s0", 41, "time_sec"),
        ("4\t2\t0\t19\t21\tPush_Recv_Worker\t6-5-s0\t1\t4\t15\t1000000\t6-4-s0", 44, "time_usec"),
        ("4\t2\t0\t19\t21\tPush_Recv_Worker\t6-5-s0\t1\t4\t15\t8\t(3-s0)", 46, "id_dep"),
        ("4\t2\t0\t19\t21\tPush_Recv_Worker\t6-5-s0\t1\t4\t15\t8\t6-4-s0\r", 46, "id_dep"),
    ];
    for (line, column, field) in cases {
        assert_eq!(problem(line), (column, field.to_owned()), "{line}");
    }
    assert!(problem("4\t0\t2").1.starts_with("a record has 12 fields"));
}

/// Broken: server files, whose numbers start at -2 and whose records wait for several workers, could not be read.
#[test]
fn servers_count_from_minus_two() {
    let text = b"0\t0\t2\t9\t-15\tOP:= Push_Recv_Server\t4--2-w0\t0\t0\t1\t5\t-1\n\
        1\t2\t0\t9\t5\tOP:= Push_Send_Server\t4-3-w0\t1\t7\t1\t12\t(2-w0.4-2-w1.)\n";
    let read = parse(text, 1, None, PAPER);
    assert_eq!(read.problems, []);
    assert_eq!((read.operation_num, read.dep_key, read.dep_num), (vec![-2, 3], vec![-1, -1], vec![-1, 2]));
    assert_eq!(&read.id_dep[read.id_dep_ends[1] as usize..], b"(2-w0.4-2-w1.)");
}

proptest! {
    /// Broken: a file with arbitrary bytes could crash the reader.
    #[test]
    fn nothing_is_too_much(text in prop::collection::vec(prop::sample::select(b"0123456789-\t\nsw(.)OP:= Push_Recv_Worker".to_vec()), 0..200)) {
        let read = parse(&text, 1, None, Nodes::default());
        let n = read.id.len();
        prop_assert_eq!(read.lines, n as u64 + read.problem_count);
        prop_assert_eq!((read.dep_num.len(), read.id_dep_ends.len(), read.peer.len()), (n, n + 1, n));
    }
}

/// Ten million damaged lines; run with `cargo test --release -p hocket-dlc million -- --ignored`.
#[test]
#[ignore = "takes half a minute"]
fn ten_million_damaged_records() {
    let good =
        b"41\t0\t2\t1600033\t17\tOP:= Push_Send_Worker\t4-4-s0\t4\t85015\t1516622729\t815352\t(3-s0.)\n";
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize % below
    };
    let (mut kept, mut refused) = (0, 0);
    for _ in 0..10_000_000 {
        let mut line = good.to_vec();
        for _ in 0..=next(3) {
            let at = next(line.len());
            match next(3) {
                0 => line[at] = next(256) as u8,
                1 => line.truncate(at.max(1)),
                _ => line.insert(at, good[next(good.len())]),
            }
        }
        let read = parse(&line, 1, None, PAPER);
        kept += read.id.len();
        refused += read.problem_count;
        assert_eq!(read.lines, read.id.len() as u64 + read.problem_count);
    }
    assert!(kept > 1_000 && refused > 1_000, "{kept} kept, {refused} refused");
}
