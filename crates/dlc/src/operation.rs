//! The words allowed as a record's `operation`.

/// Every accepted spelling, so that a reader's columns preserve it. Those from [`SETUP_FIRST`] on are set-up records;
/// before them, the position modulo 8 is the kind of a record: push or pull (bit 2), send or receive (bit 1), of a
/// worker or a server (bit 0).
pub const OPERATIONS: [&str; 24] = [
    "OP:= Push_Send_Worker",
    "OP:= Push_Send_Server",
    "OP:= Push_Recv_Worker",
    "OP:= Push_Recv_Server",
    "OP:= Pull_Send_Worker",
    "OP:= Pull_Send_Server",
    "OP:= Pull_Recv_Worker",
    "OP:= Pull_Recv_Server",
    "Push_Send_Worker",
    "Push_Send_Server",
    "Push_Recv_Worker",
    "Push_Recv_Server",
    "Pull_Send_Worker",
    "Pull_Send_Server",
    "Pull_Recv_Worker",
    "Pull_Recv_Server",
    "OP:= SendCom_TO_Servers",
    "OP:= SendCom_To_Servers",
    "OP:= SendCom_TO_Workers",
    "OP:= SendCom_To_Workers",
    "SendCom_TO_Servers",
    "SendCom_To_Servers",
    "SendCom_TO_Workers",
    "SendCom_To_Workers",
];

/// The first of [`OPERATIONS`] that belongs to set-up records.
pub const SETUP_FIRST: u8 = 16;

/// The position of a word; common spellings come first.
pub fn position(word: &[u8]) -> Option<u8> {
    OPERATIONS.iter().position(|known| known.as_bytes() == word).map(|at| at as u8)
}

/// Whether a position belongs to a server's file.
pub const fn is_server(operation: u8) -> bool {
    operation & 1 == 1
}

/// Whether the recording node sent the message.
pub const fn is_send(operation: u8) -> bool {
    operation & 2 == 0
}
