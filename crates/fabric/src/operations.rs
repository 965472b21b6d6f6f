//! Operations in progress. Each has memory that the provider may use and that must not move (`FI_CONTEXT2`), whose
//! address comes back with the completion.

use crate::carrier::Operation;
use crate::mirrors::Context2;
use std::ffi::c_void;
use std::ptr;

/// What an operation's context points to: the provider's own part first.
#[repr(C)]
struct Slot {
    context: Context2,
    number: u32,
    in_progress: bool,
}

/// All operations of an endpoint. Slots are used again and freed with it.
#[derive(Default)]
pub(crate) struct Operations {
    #[expect(clippy::vec_box, reason = "a provider has the address of a slot, which must not move")]
    slots: Vec<Box<Slot>>,
    free: Vec<u32>,
}

// SAFETY: the pointers in a context are the provider's, which uses them while it is called.
unsafe impl Send for Operations {}

impl Operations {
    /// A new operation, and its context for the provider.
    pub fn begin(&mut self) -> (Operation, *mut c_void) {
        let number = self.free.pop().unwrap_or_else(|| {
            let context = Context2 { internal: [ptr::null_mut(); 8] };
            let number = self.slots.len() as u32;
            self.slots.push(Box::new(Slot { context, number, in_progress: false }));
            number
        });
        let slot = &mut self.slots[number as usize];
        slot.in_progress = true;
        (Operation(number), ptr::from_mut(&mut slot.context).cast())
    }

    pub fn context(&mut self, operation: Operation) -> Option<*mut c_void> {
        let slot = self.slots.get_mut(operation.0 as usize).filter(|slot| slot.in_progress)?;
        Some(ptr::from_mut(&mut slot.context).cast())
    }

    /// The operation has ended, or was never posted.
    pub fn end(&mut self, operation: Operation) {
        if let Some(slot) = self.slots.get_mut(operation.0 as usize)
            && std::mem::replace(&mut slot.in_progress, false)
        {
            self.free.push(operation.0);
        }
    }

    /// The operation in progress with that context. `None`: the provider returned another address.
    pub fn find(&self, context: *const c_void) -> Option<Operation> {
        // Compared and not followed: nothing that a provider returns is read through.
        let at = self.slots.iter().position(|slot| ptr::from_ref(&slot.context).cast() == context)?;
        let slot = &self.slots[at];
        slot.in_progress.then_some(Operation(slot.number))
    }

    /// Whether none is in progress.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A completion would end another operation, whose memory is still being written.
    #[test]
    fn contexts_lead_to_their_operations() {
        let mut operations = Operations::default();
        let (one, first) = operations.begin();
        let (other, second) = operations.begin();
        assert_ne!(first, second);
        assert_eq!((operations.find(first), operations.find(second)), (Some(one), Some(other)));
        operations.end(one);
        assert_eq!(operations.find(first), None, "it has ended");
        assert_eq!(operations.find(ptr::null()), None);
        operations.end(one);
        assert_eq!(operations.begin(), (one, first));
        assert!(operations.context(other).is_some() && !operations.is_empty());
    }
}
