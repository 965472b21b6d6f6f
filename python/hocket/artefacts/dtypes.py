"""Element types by their names in artefacts and programs."""

ITEM_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i8": 1, "u8": 1}
"""Bytes of one element."""
