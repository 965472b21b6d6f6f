//! libfabric's structures, as its headers of version 1.17 declare them, field by field in their order.
//!
//! The library is asked for symbols of the versions that have these layouts, which later libraries keep. [`layouts`]
//! lists each structure's size and offsets for the comparison with the headers (`tests/layout.rs`).

use std::ffi::{c_char, c_int, c_void};

/// A structure's name in C, its size, and each field's name and offset, in bytes.
pub type Layout = (&'static str, usize, Vec<(&'static str, usize)>);

macro_rules! mirrors {
    ($($(#[$doc:meta])* $name:ident = $c:literal { $($field:ident $(= $c_field:literal)? : $kind:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name { $(pub $field: $kind,)* }
        )*

        /// All structures of this module.
        pub fn layouts() -> Vec<Layout> {
            vec![$((
                $c,
                size_of::<$name>(),
                vec![$((mirrors!(@name $field $($c_field)?), std::mem::offset_of!($name, $field)),)*],
            ),)*]
        }
    };
    (@name $field:ident $c_field:literal) => { $c_field };
    (@name $field:ident) => { stringify!($field) };
}

/// A function that this crate never calls.
type Unused = *const c_void;

mirrors! {
    /// What every object begins with.
    Fid = "struct fid" {
        class = "fclass": usize,
        context: *mut c_void,
        ops: *const Ops,
    }
    Ops = "struct fi_ops" {
        size: usize,
        close: Option<unsafe extern "C" fn(*mut Fid) -> c_int>,
        bind: Option<unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int>,
        control: Option<unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int>,
        ops_open: Unused,
        tostr: Unused,
        ops_set: Unused,
    }
    /// `fi_fabric(3)`.
    Fabric = "struct fid_fabric" {
        fid: Fid,
        ops: *const FabricOps,
        api_version: u32,
    }
    FabricOps = "struct fi_ops_fabric" {
        size: usize,
        domain: Option<unsafe extern "C" fn(*mut Fabric, *mut Info, *mut *mut Domain, *mut c_void) -> c_int>,
        passive_ep: Unused,
        eq_open: Unused,
        wait_open: Unused,
        trywait: Option<unsafe extern "C" fn(*mut Fabric, *mut *mut Fid, c_int) -> c_int>,
        domain2: Unused,
    }
    /// `fi_domain(3)`.
    Domain = "struct fid_domain" {
        fid: Fid,
        ops: *const DomainOps,
        mr: *const MemoryOps,
    }
    DomainOps = "struct fi_ops_domain" {
        size: usize,
        av_open: Option<unsafe extern "C" fn(*mut Domain, *mut AvAttr, *mut *mut Av, *mut c_void) -> c_int>,
        cq_open: Option<unsafe extern "C" fn(*mut Domain, *mut CqAttr, *mut *mut Cq, *mut c_void) -> c_int>,
        endpoint: Option<unsafe extern "C" fn(*mut Domain, *mut Info, *mut *mut Ep, *mut c_void) -> c_int>,
        scalable_ep: Unused,
        cntr_open: Unused,
        poll_open: Unused,
        stx_ctx: Unused,
        srx_ctx: Unused,
        query_atomic: Unused,
        query_collective: Unused,
        endpoint2: Unused,
    }
    /// Registration of memory: `fi_mr(3)`.
    MemoryOps = "struct fi_ops_mr" {
        size: usize,
        reg: Option<
            unsafe extern "C" fn(
                *mut Fid,
                *const c_void,
                usize,
                u64,
                u64,
                u64,
                u64,
                *mut *mut Mr,
                *mut c_void,
            ) -> c_int,
        >,
        regv: Unused,
        regattr: Unused,
    }
    Mr = "struct fid_mr" {
        fid: Fid,
        mem_desc: *mut c_void,
        key: u64,
    }
    /// `fi_av(3)`.
    Av = "struct fid_av" {
        fid: Fid,
        ops: *const AvOps,
    }
    /// Operations of an address vector.
    AvOps = "struct fi_ops_av" {
        size: usize,
        insert: Option<
            unsafe extern "C" fn(*mut Av, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
        >,
        insertsvc: Unused,
        insertsym: Unused,
        remove: Unused,
        lookup: Unused,
        straddr: Unused,
        av_set: Unused,
    }
    /// What an address vector is opened with.
    AvAttr = "struct fi_av_attr" {
        kind = "type": c_int,
        rx_ctx_bits: c_int,
        count: usize,
        ep_per_node: usize,
        name: *const c_char,
        map_addr: *mut c_void,
        flags: u64,
    }
    /// `fi_cq(3)`.
    Cq = "struct fid_cq" {
        fid: Fid,
        ops: *const CqOps,
    }
    /// Operations of a completion queue.
    CqOps = "struct fi_ops_cq" {
        size: usize,
        read: Option<unsafe extern "C" fn(*mut Cq, *mut c_void, usize) -> isize>,
        readfrom: Unused,
        readerr: Option<unsafe extern "C" fn(*mut Cq, *mut CqErrEntry, u64) -> isize>,
        sread: Unused,
        sreadfrom: Unused,
        signal: Unused,
        strerror: Option<
            unsafe extern "C" fn(*mut Cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
        >,
    }
    /// What a completion queue is opened with.
    CqAttr = "struct fi_cq_attr" {
        size: usize,
        flags: u64,
        format: c_int,
        wait_obj: c_int,
        signaling_vector: c_int,
        wait_cond: c_int,
        wait_set: *mut c_void,
    }
    CqTaggedEntry = "struct fi_cq_tagged_entry" {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
        tag: u64,
    }
    CqErrEntry = "struct fi_cq_err_entry" {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
        tag: u64,
        olen: usize,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: usize,
    }
    /// `fi_endpoint(3)`.
    Ep = "struct fid_ep" {
        fid: Fid,
        ops: *const EpOps,
        cm: *const CmOps,
        msg: Unused,
        rma: Unused,
        tagged: *const TaggedOps,
        atomic: Unused,
        collective: Unused,
    }
    EpOps = "struct fi_ops_ep" {
        size: usize,
        cancel: Option<unsafe extern "C" fn(*mut Fid, *mut c_void) -> isize>,
        getopt: Unused,
        setopt: Unused,
        tx_ctx: Unused,
        rx_ctx: Unused,
        rx_size_left: Unused,
        tx_size_left: Unused,
    }
    /// An endpoint's address: `fi_cm(3)`.
    CmOps = "struct fi_ops_cm" {
        size: usize,
        setname: Unused,
        getname: Option<unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int>,
        getpeer: Unused,
        connect: Unused,
        listen: Unused,
        accept: Unused,
        reject: Unused,
        shutdown: Unused,
        join: Unused,
    }
    TaggedOps = "struct fi_ops_tagged" {
        size: usize,
        recv: Option<
            unsafe extern "C" fn(
                *mut Ep,
                *mut c_void,
                usize,
                *mut c_void,
                u64,
                u64,
                u64,
                *mut c_void,
            ) -> isize,
        >,
        recvv: Unused,
        recvmsg: Unused,
        send: Option<
            unsafe extern "C" fn(*mut Ep, *const c_void, usize, *mut c_void, u64, u64, *mut c_void) -> isize,
        >,
        sendv: Unused,
        sendmsg: Unused,
        inject: Unused,
        senddata: Unused,
        injectdata: Unused,
    }
    /// `fi_getinfo(3)`.
    Info = "struct fi_info" {
        next: *mut Info,
        caps: u64,
        mode: u64,
        addr_format: u32,
        src_addrlen: usize,
        dest_addrlen: usize,
        src_addr: *mut c_void,
        dest_addr: *mut c_void,
        handle: *mut Fid,
        tx_attr: *mut TxAttr,
        rx_attr: *mut RxAttr,
        ep_attr: *mut EpAttr,
        domain_attr: *mut DomainAttr,
        fabric_attr: *mut FabricAttr,
        nic: *mut c_void,
    }
    TxAttr = "struct fi_tx_attr" {
        caps: u64,
        mode: u64,
        op_flags: u64,
        msg_order: u64,
        comp_order: u64,
        inject_size: usize,
        size: usize,
        iov_limit: usize,
        rma_iov_limit: usize,
        tclass: u32,
    }
    RxAttr = "struct fi_rx_attr" {
        caps: u64,
        mode: u64,
        op_flags: u64,
        msg_order: u64,
        comp_order: u64,
        total_buffered_recv: usize,
        size: usize,
        iov_limit: usize,
    }
    EpAttr = "struct fi_ep_attr" {
        kind = "type": c_int,
        protocol: u32,
        protocol_version: u32,
        max_msg_size: usize,
        msg_prefix_size: usize,
        max_order_raw_size: usize,
        max_order_war_size: usize,
        max_order_waw_size: usize,
        mem_tag_format: u64,
        tx_ctx_cnt: usize,
        rx_ctx_cnt: usize,
        auth_key_size: usize,
        auth_key: *mut u8,
    }
    DomainAttr = "struct fi_domain_attr" {
        domain: *mut Domain,
        name: *mut c_char,
        threading: c_int,
        control_progress: c_int,
        data_progress: c_int,
        resource_mgmt: c_int,
        av_type: c_int,
        mr_mode: c_int,
        mr_key_size: usize,
        cq_data_size: usize,
        cq_cnt: usize,
        ep_cnt: usize,
        tx_ctx_cnt: usize,
        rx_ctx_cnt: usize,
        max_ep_tx_ctx: usize,
        max_ep_rx_ctx: usize,
        max_ep_stx_ctx: usize,
        max_ep_srx_ctx: usize,
        cntr_cnt: usize,
        mr_iov_limit: usize,
        caps: u64,
        mode: u64,
        auth_key: *mut u8,
        auth_key_size: usize,
        max_err_data: usize,
        mr_cnt: usize,
        tclass: u32,
    }
    FabricAttr = "struct fi_fabric_attr" {
        fabric: *mut Fabric,
        name: *mut c_char,
        prov_name: *mut c_char,
        prov_version: u32,
        api_version: u32,
    }
    /// Memory of an operation's own, where a provider asks for it (`FI_CONTEXT2`).
    Context2 = "struct fi_context2" {
        internal: [*mut c_void; 8],
    }
}

macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: u64 = $value;)*

        /// All constants of this module, by their names in C.
        pub fn constants() -> Vec<(&'static str, u64)> {
            vec![$((stringify!($name), $name),)*]
        }
    };
}

constants! {
    FI_TAGGED = 1 << 3;
    FI_RECV = 1 << 10;
    FI_SEND = 1 << 11;
    /// The node given is our own.
    FI_SOURCE = 1 << 57;
    /// Mode: an operation's context has room for the provider.
    FI_CONTEXT = 1 << 59;
    /// Mode: the same with more room.
    FI_CONTEXT2 = 1 << 52;
    /// Operations' buffers must be registered.
    FI_MR_LOCAL = 1 << 2;
    /// Registered memory is addressed by its virtual address.
    FI_MR_VIRT_ADDR = 1 << 4;
    /// Memory must have pages behind it when it is registered.
    FI_MR_ALLOCATED = 1 << 5;
    FI_MR_PROV_KEY = 1 << 6;
    /// Reliable messages without connections.
    FI_EP_RDM = 3;
    FI_AV_TABLE = 2;
    /// One thread at a time uses the objects of a domain.
    FI_THREAD_DOMAIN = 3;
    /// The provider keeps its queues from overflowing.
    FI_RM_ENABLED = 2;
    FI_ENABLE = 6;
    /// Control: the object to wait on.
    FI_GETWAIT = 5;
    FI_WAIT_NONE = 0;
    FI_WAIT_FD = 3;
    FI_CQ_FORMAT_TAGGED = 4;
    FI_ADDR_UNSPEC = u64::MAX;
    FI_EAGAIN = libc::EAGAIN as u64;
    /// There is an error to read.
    FI_EAVAIL = 259;
    /// A message is longer than its receive.
    FI_ETRUNC = 265;
    FI_ECANCELED = libc::ECANCELED as u64;
    FI_ENODATA = libc::ENODATA as u64;
}
