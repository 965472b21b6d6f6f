//! An endpoint of libfabric: reliable, without connections, for tagged messages.

use crate::carrier::{Carrier, Completion, Destination, Memory, Operation, Posting};
use crate::error::FabricError;
use crate::library::{Library, text_of};
use crate::mirrors::{
    Av, AvAttr, Cq, CqAttr, Domain, Ep, FI_ADDR_UNSPEC, FI_AV_TABLE, FI_CQ_FORMAT_TAGGED, FI_EAGAIN,
    FI_ENABLE, FI_GETWAIT, FI_MR_LOCAL, FI_RECV, FI_SEND, FI_WAIT_FD, FI_WAIT_NONE, Fabric, Fid, Info, Mr,
};
use crate::operations::Operations;
use crate::providers::{Choice, Found as Infos, find};
use crate::queue::{Found, read};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::ptr;

/// Limit of an endpoint's address: EFA's has 32 bytes, shared memory's is a name.
const ADDRESS_BYTES_MAX: usize = 512;

/// Tags have at least so many bits.
const TAG_BITS: u32 = 48;

/// An open object, closed when dropped.
struct Object<T>(*mut T);

impl<T> Object<T> {
    /// The object that `open` makes; `call` names it.
    ///
    /// # Safety
    /// `open` writes an open object of the library that begins with a `struct fid`, or returns an error.
    unsafe fn open(
        library: &Library,
        call: &'static str,
        open: impl FnOnce(*mut *mut T) -> c_int,
    ) -> Result<Self, FabricError> {
        let mut made = ptr::null_mut();
        library.check(call, open(&raw mut made))?;
        if made.is_null() {
            return Err(FabricError::Broken(format!("{call} made nothing")));
        }
        Ok(Self(made))
    }

    fn fid(&self) -> *mut Fid {
        self.0.cast()
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // Version 1.17 of `tcp;ofi_rxm` counts large messages as users of their domain, which then stays: a leak of the
        // provider's own memory, at the end of a job.
        // SAFETY: the object is open, and whatever was opened from it has been closed before.
        let _leaked = unsafe { (*(*self.fid()).ops).close.map_or(0, |close| close(self.fid())) };
    }
}

/// Registered memory, by its first byte: its end, and the object.
type Registered = BTreeMap<usize, (usize, Object<Mr>)>;

/// An endpoint, and everything that it needs. Fields are closed in this order.
pub struct Endpoint {
    own: Object<Ep>,
    registered: Registered,
    queue: Object<Cq>,
    addresses: Object<Av>,
    domain: Object<Domain>,
    fabric: Object<Fabric>,
    library: Library,
    provider: String,
    address: Vec<u8>,
    message_bytes_max: usize,
    /// Whether operations' buffers must be registered.
    registers: bool,
    descriptor: Option<c_int>,
    operations: Operations,
}

// SAFETY: libfabric's objects may be used from any thread, one at a time (`FI_THREAD_DOMAIN`); `&mut self` sees to that.
unsafe impl Send for Endpoint {}

/// A function of a provider's table. `Broken`: it is not there.
fn provided<F>(function: Option<F>, name: &str) -> Result<F, FabricError> {
    function.ok_or_else(|| FabricError::Broken(format!("{name} is missing")))
}

impl Endpoint {
    /// Opens an endpoint of that kind; `bind`: our address, where endpoints of its kind have one of the host's network.
    pub fn open(choice: Choice, bind: IpAddr) -> Result<Self, FabricError> {
        let library = Library::get()?;
        let infos = find(&library, choice, bind)?;
        Self::of(library, &infos)
    }

    fn of(library: Library, infos: &Infos) -> Result<Self, FabricError> {
        let info = infos.info();
        // SAFETY: `info` is a result of `fi_getinfo`, so it has all of its parts. Each object is opened from one that is
        // open, by the function that the headers declare at that place, and `Object` keeps it open.
        unsafe {
            let fits = Fit::of(&*info)?;
            let open_fabric = library.open_fabric;
            let attr = (*info).fabric_attr;
            let fabric = Object::<Fabric>::open(&library, "fi_fabric", |made| {
                open_fabric(attr, made, ptr::null_mut())
            })?;
            let call = provided((*(*fabric.0).ops).domain, "fi_domain")?;
            let domain = Object::<Domain>::open(&library, "fi_domain", |made| {
                call(fabric.0, info, made, ptr::null_mut())
            })?;
            let domain_ops = &*(*domain.0).ops;
            let call = provided(domain_ops.av_open, "fi_av_open")?;
            let mut attr: AvAttr = std::mem::zeroed();
            attr.kind = FI_AV_TABLE as c_int;
            let addresses = Object::<Av>::open(&library, "fi_av_open", |made| {
                call(domain.0, &raw mut attr, made, ptr::null_mut())
            })?;
            let (queue, descriptor) = open_queue(&library, &domain)?;
            let call = provided(domain_ops.endpoint, "fi_endpoint")?;
            let endpoint = Object::<Ep>::open(&library, "fi_endpoint", |made| {
                call(domain.0, info, made, ptr::null_mut())
            })?;
            let ops = &*(*endpoint.fid()).ops;
            let bind = provided(ops.bind, "fi_ep_bind")?;
            library.check("fi_ep_bind", bind(endpoint.fid(), addresses.fid(), 0))?;
            library.check("fi_ep_bind", bind(endpoint.fid(), queue.fid(), FI_SEND | FI_RECV))?;
            let control = provided(ops.control, "fi_enable")?;
            library.check("fi_enable", control(endpoint.fid(), FI_ENABLE as c_int, ptr::null_mut()))?;
            let address = address_of(&library, &endpoint)?;
            Ok(Self {
                own: endpoint,
                registered: BTreeMap::new(),
                queue,
                addresses,
                domain,
                fabric,
                library,
                provider: fits.provider,
                address,
                message_bytes_max: fits.message_bytes_max,
                registers: fits.registers,
                descriptor,
                operations: Operations::default(),
            })
        }
    }

    /// The descriptor of registered memory that an operation on `memory` passes.
    fn descriptor_of(&self, memory: Memory) -> Result<*mut c_void, FabricError> {
        if !self.registers {
            return Ok(ptr::null_mut());
        }
        let (start, end) = (memory.address as usize, memory.address as usize + memory.len);
        let found = self.registered.range(..=start).rev().find(|(_, (until, _))| *until >= end);
        let Some((_, (_, object))) = found else {
            let what = format!("{} bytes are not registered with {}", memory.len, self.provider);
            return Err(FabricError::Broken(what));
        };
        // SAFETY: the object is open.
        Ok(unsafe { (*object.0).mem_desc })
    }

    fn posted(
        &mut self,
        call: &'static str,
        operation: Operation,
        returned: isize,
    ) -> Result<Posting, FabricError> {
        if returned == 0 {
            return Ok(Posting::Posted(operation));
        }
        self.operations.end(operation);
        if returned == -(FI_EAGAIN as isize) {
            return Ok(Posting::Full);
        }
        self.library.check(call, returned.min(-1) as c_int)?;
        Ok(Posting::Full)
    }
}

/// What of a provider's description matters here.
struct Fit {
    provider: String,
    message_bytes_max: usize,
    registers: bool,
}

impl Fit {
    /// # Safety
    /// `info` is a result of `fi_getinfo`.
    unsafe fn of(info: &Info) -> Result<Self, FabricError> {
        // SAFETY: such a result has these parts, and strings that end with a zero byte.
        let (fabric, domain, endpoint) = unsafe { (&*info.fabric_attr, &*info.domain_attr, &*info.ep_attr) };
        // SAFETY: as above.
        let provider = unsafe { text_of(fabric.prov_name) };
        let tag_bits = u64::BITS - endpoint.mem_tag_format.leading_zeros();
        if tag_bits < TAG_BITS {
            let what = format!("{provider} has tags of {tag_bits} bits, and {TAG_BITS} are needed");
            return Err(FabricError::NoProvider(what));
        }
        if endpoint.msg_prefix_size > 0 {
            return Err(FabricError::NoProvider(format!("{provider} wants room in front of each message")));
        }
        Ok(Self {
            provider,
            message_bytes_max: endpoint.max_msg_size,
            registers: domain.mr_mode as u64 & FI_MR_LOCAL != 0,
        })
    }
}

/// A queue to sleep on, or one to poll where the provider has no descriptor.
///
/// # Safety
/// `domain` is open.
unsafe fn open_queue(
    library: &Library,
    domain: &Object<Domain>,
) -> Result<(Object<Cq>, Option<c_int>), FabricError> {
    // SAFETY: the domain is open; all bits zero is a value of every field of the attributes.
    unsafe {
        let call = provided((*(*domain.0).ops).cq_open, "fi_cq_open")?;
        let open = |wait: u64| {
            let mut attr: CqAttr = std::mem::zeroed();
            attr.format = FI_CQ_FORMAT_TAGGED as c_int;
            attr.wait_obj = wait as c_int;
            Object::<Cq>::open(library, "fi_cq_open", |made| {
                call(domain.0, &raw mut attr, made, ptr::null_mut())
            })
        };
        let Ok(queue) = open(FI_WAIT_FD) else { return Ok((open(FI_WAIT_NONE)?, None)) };
        let mut descriptor: c_int = -1;
        let control = provided((*(*queue.fid()).ops).control, "fi_control")?;
        let returned = control(queue.fid(), FI_GETWAIT as c_int, (&raw mut descriptor).cast());
        if returned < 0 || descriptor < 0 {
            drop(queue);
            return Ok((open(FI_WAIT_NONE)?, None));
        }
        Ok((queue, Some(descriptor)))
    }
}

/// # Safety
/// `endpoint` is open and enabled.
unsafe fn address_of(library: &Library, endpoint: &Object<Ep>) -> Result<Vec<u8>, FabricError> {
    let mut address = vec![0_u8; ADDRESS_BYTES_MAX];
    let mut len = address.len();
    // SAFETY: the endpoint is open, and the buffer has that length.
    let returned = unsafe {
        let call = provided((*(*endpoint.0).cm).getname, "fi_getname")?;
        call(endpoint.fid(), address.as_mut_ptr().cast(), &raw mut len)
    };
    library.check("fi_getname", returned)?;
    address.truncate(len);
    Ok(address)
}

impl Carrier for Endpoint {
    fn provider(&self) -> &str {
        &self.provider
    }

    fn address(&self) -> &[u8] {
        &self.address
    }

    fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }

    fn insert(&mut self, address: &[u8]) -> Result<Destination, FabricError> {
        if address.len() != self.address.len() && !self.provider.starts_with("shm") {
            let (theirs, ours) = (address.len(), self.address.len());
            let what = format!("an address of {theirs} bytes, where {} has {ours}", self.provider);
            return Err(FabricError::Broken(what));
        }
        // Names of shared memory are strings: whatever comes, there is an end.
        let mut bytes = address.to_vec();
        bytes.push(0);
        let mut number = FI_ADDR_UNSPEC;
        // SAFETY: the vector is open; the address has the provider's length or ends with a zero byte.
        let inserted = unsafe {
            let call = provided((*(*self.addresses.0).ops).insert, "fi_av_insert")?;
            call(self.addresses.0, bytes.as_ptr().cast(), 1, &raw mut number, 0, ptr::null_mut())
        };
        self.library.check("fi_av_insert", inserted)?;
        if inserted != 1 || number == FI_ADDR_UNSPEC {
            return Err(FabricError::Broken(format!("{} did not accept an address", self.provider)));
        }
        Ok(Destination(number))
    }

    fn register(&mut self, memory: Memory) -> Result<(), FabricError> {
        if !self.registers || self.descriptor_of(memory).is_ok() {
            return Ok(());
        }
        // SAFETY: the domain is open and the memory is mapped: its owner gives it back only after `forget`.
        let object = unsafe {
            let call = provided((*(*self.domain.0).mr).reg, "fi_mr_reg")?;
            let (domain, access) = (self.domain.fid(), FI_SEND | FI_RECV);
            Object::<Mr>::open(&self.library, "fi_mr_reg", |made| {
                let buffer = memory.address.cast_const().cast();
                call(domain, buffer, memory.len, access, 0, 0, 0, made, ptr::null_mut())
            })?
        };
        let start = memory.address as usize;
        self.registered.insert(start, (start + memory.len, object));
        Ok(())
    }

    fn forget(&mut self, memory: Memory) -> Result<(), FabricError> {
        let (start, end) = (memory.address as usize, memory.address as usize + memory.len);
        self.registered.retain(|from, (until, _)| *until <= start || *from >= end);
        Ok(())
    }

    unsafe fn receive(&mut self, memory: Memory, tag: u64) -> Result<Posting, FabricError> {
        let descriptor = self.descriptor_of(memory)?;
        let (operation, context) = self.operations.begin();
        // SAFETY: the endpoint is open; the caller promises the memory, and the context lives as long as the endpoint.
        let returned = unsafe {
            let call = provided((*(*self.own.0).tagged).recv, "fi_trecv")?;
            let (buffer, from) = (memory.address.cast(), FI_ADDR_UNSPEC);
            call(self.own.0, buffer, memory.len, descriptor, from, tag, 0, context)
        };
        self.posted("fi_trecv", operation, returned)
    }

    unsafe fn send(&mut self, to: Destination, memory: Memory, tag: u64) -> Result<Posting, FabricError> {
        let descriptor = self.descriptor_of(memory)?;
        let (operation, context) = self.operations.begin();
        // SAFETY: as above.
        let returned = unsafe {
            let call = provided((*(*self.own.0).tagged).send, "fi_tsend")?;
            let buffer = memory.address.cast_const().cast();
            call(self.own.0, buffer, memory.len, descriptor, to.0, tag, context)
        };
        self.posted("fi_tsend", operation, returned)
    }

    fn cancel(&mut self, operation: Operation) {
        let Some(context) = self.operations.context(operation) else { return };
        // SAFETY: the endpoint is open, and the context is one of an operation in progress. A provider that cannot cancel
        // it says so, and the operation completes as if nobody had asked.
        unsafe {
            if let Some(call) = (*(*self.own.0).ops).cancel {
                call(self.own.fid(), context);
            }
        }
    }

    fn poll(&mut self, ended: &mut Vec<Completion>) -> Result<(), FabricError> {
        // SAFETY: the queue is open.
        while let Found::Some(entries) = unsafe { read(&self.library, self.queue.0) }? {
            for entry in entries {
                let found = self.operations.find(entry.context);
                let operation = found.ok_or_else(|| {
                    FabricError::Broken(format!("{} ended what was not begun", self.provider))
                })?;
                self.operations.end(operation);
                ended.push(Completion { operation, outcome: entry.outcome });
            }
        }
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the queue owns the descriptor and is open as long as `self`.
        self.descriptor.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    fn may_sleep(&mut self) -> bool {
        if self.operations.is_empty() {
            return true;
        }
        let mut fids = [self.queue.fid()];
        // SAFETY: the fabric and the queue are open.
        unsafe {
            let Some(call) = (*(*self.fabric.0).ops).trywait else { return false };
            call(self.fabric.0, fids.as_mut_ptr(), 1) == 0
        }
    }
}
