//! Which provider carries payloads, and which ones this machine has.

use crate::error::FabricError;
use crate::library::{API_VERSION, Library, text_of};
use crate::mirrors::{
    FI_AV_TABLE, FI_CONTEXT, FI_CONTEXT2, FI_ENODATA, FI_EP_RDM, FI_MR_ALLOCATED, FI_MR_LOCAL,
    FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_RECV, FI_RM_ENABLED, FI_SEND, FI_SOURCE, FI_TAGGED, FI_THREAD_DOMAIN,
    Info,
};
use crate::region::own_name;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::net::IpAddr;
use std::ptr;

/// A provider that users may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub name: &'static str,
    /// libfabric's name.
    provider: &'static str,
    node: Node,
}

/// How endpoints of a provider are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    /// By an address of the host's network.
    Address,
    /// By a name in shared memory, which we choose.
    Region,
    /// By their card.
    Card,
}

impl Choice {
    /// All: Amazon's Elastic Fabric Adapter, messages over TCP connections, over UDP made reliable, and in shared memory.
    pub const ALL: [Self; 4] = [
        Self { name: "efa", provider: "efa", node: Node::Card },
        Self { name: "tcp", provider: "tcp;ofi_rxm", node: Node::Address },
        Self { name: "udp", provider: "udp;ofi_rxd", node: Node::Address },
        Self { name: "shm", provider: "shm", node: Node::Region },
    ];

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name == name)
    }
}

/// What `fi_getinfo(3)` returned.
pub(crate) struct Found {
    library: Library,
    first: *mut Info,
}

impl Found {
    pub fn info(&self) -> *mut Info {
        self.first
    }

    fn all(&self) -> impl Iterator<Item = &Info> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            // SAFETY: null, or an element of the list, which lives as long as `self`.
            let info = unsafe { next.as_ref() }?;
            next = info.next;
            Some(info)
        })
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: the library made this list, and nothing refers to it any more.
        unsafe { (self.library.free_info)(self.first) }
    }
}

/// libfabric's names of providers of tagged messages on this machine.
pub fn providers() -> Result<BTreeSet<String>, FabricError> {
    match search(&Library::get()?, None, None) {
        // SAFETY: a result of `fi_getinfo` has this structure, and its string is null or ends with a zero byte.
        Ok(found) => Ok(found.all().map(|info| unsafe { text_of((*info.fabric_attr).prov_name) }).collect()),
        Err(FabricError::NoProvider(_)) => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

/// The provider for `choice`; its endpoints listen on `bind` where they have such an address.
pub(crate) fn find(library: &Library, choice: Choice, bind: IpAddr) -> Result<Found, FabricError> {
    let node = match choice.node {
        Node::Address => Some(bind.to_string()),
        Node::Region => Some(own_name()?),
        Node::Card => None,
    };
    search(library, Some(choice.provider), node)
}

fn search(library: &Library, name: Option<&str>, node: Option<String>) -> Result<Found, FabricError> {
    // SAFETY: a null pointer asks for an empty structure with all of its parts.
    let hints = unsafe { (library.dup_info)(ptr::null()) };
    if hints.is_null() {
        return Err(FabricError::Library("libfabric has no memory for a request".into()));
    }
    let hints = Found { library: *library, first: hints };
    let name_text = name.unwrap_or("any provider");
    // SAFETY: an empty structure has all of its parts; the library frees the name with `free`.
    unsafe {
        let info = &mut *hints.first;
        info.caps = FI_TAGGED | FI_SEND | FI_RECV;
        info.mode = FI_CONTEXT | FI_CONTEXT2;
        (*info.ep_attr).kind = FI_EP_RDM as i32;
        let domain = &mut *info.domain_attr;
        domain.mr_mode = (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY) as i32;
        domain.threading = FI_THREAD_DOMAIN as i32;
        domain.resource_mgmt = FI_RM_ENABLED as i32;
        domain.av_type = FI_AV_TABLE as i32;
        if let Some(name) = name {
            let name = CString::new(name).map_err(|_| FabricError::NoProvider(name.to_owned()))?;
            (*info.fabric_attr).prov_name = libc::strdup(name.as_ptr());
        }
    }
    let text = node.as_ref().map(|node| CString::new(node.as_str()).expect("names have no zero byte"));
    let (source, flags) = text.as_ref().map_or((ptr::null(), 0), |text| (text.as_ptr(), FI_SOURCE));
    let mut first = ptr::null_mut();
    // SAFETY: the strings end with a zero byte or are null, and the hints are of this library.
    let returned =
        unsafe { (library.get_info)(API_VERSION, source, ptr::null(), flags, hints.first, &raw mut first) };
    if returned == -(FI_ENODATA as i32) || returned == 0 && first.is_null() {
        let at = node.map_or_else(String::new, |node| format!(" at {node}"));
        let what = format!(
            "libfabric {} has no provider {name_text}{at} for tagged messages between reliable endpoints",
            library.version()
        );
        return Err(FabricError::NoProvider(what));
    }
    library.check("fi_getinfo", returned)?;
    Ok(Found { library: *library, first })
}
