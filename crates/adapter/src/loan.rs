//! Memory of the framework's, for a leaf of a turn.

use hocket_executor::Error;

/// What a runtime lends until it is told the outcome, by [`Loan::end`], once; from any thread.
pub trait Loan: Send + 'static {
    fn operand(&self) -> &[u8];

    /// The result, which it copies before it returns, or why there is none.
    fn end(self: Box<Self>, outcome: Result<&[u8], &Error>);
}

/// A loan of any framework's.
pub type Lent = Box<dyn Loan>;
