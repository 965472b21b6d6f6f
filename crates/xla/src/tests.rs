//! The handler under a runtime that is none: what it answers, and what it refuses of calls that are not as they should be.

use crate::abi::*;
use crate::call::Kind;
use crate::handler::{give, take_back};
use std::ffi::{CStr, c_int, c_void};
use std::mem::offset_of;
use std::ptr::{null, null_mut};

/// The errors of this runtime are strings.
unsafe extern "C" fn error_create(arguments: *mut ErrorCreate) -> *mut Error {
    // SAFETY: as the handler calls it.
    let text = unsafe {
        assert_eq!((*arguments).struct_size, size_of::<ErrorCreate>());
        format!("{}: {}", (*arguments).code, CStr::from_ptr((*arguments).message).to_str().unwrap())
    };
    Box::into_raw(Box::new(text)).cast()
}

unsafe extern "C" fn error_destroy(arguments: *mut ErrorDestroy) {
    // SAFETY: made above.
    drop(unsafe { Box::from_raw((*arguments).error.cast::<String>()) });
}

unsafe extern "C" fn no_future(_: *mut FutureArguments) -> *mut Error {
    panic!("none is wanted")
}

unsafe extern "C" fn no_error(_: *mut FutureSetError) -> *mut Error {
    panic!("none is wanted")
}

/// A call for a gradient of 2 × 3 f32.
struct Called {
    kind: Kind,
    api: Api,
    frame: CallFrame,
    dims: Box<[i64; 2]>,
    data: Box<[f32; 6]>,
    turn: Box<u32>,
    /// Gradient, turn, what was given, result.
    buffers: Box<[Buffer; 4]>,
    operands: Box<[*mut c_void; 2]>,
    results: Box<[*mut c_void; 1]>,
    kinds: Box<[c_int; 2]>,
    scalars: Box<[Scalar; 2]>,
    numbers: Box<[i64; 2]>,
    spans: Box<[Span; 2]>,
    names: Box<[*mut Span; 2]>,
    values: Box<[*mut c_void; 2]>,
    scalar_kinds: Box<[c_int; 2]>,
}

fn values(size: i64) -> Values {
    Values {
        struct_size: size_of::<Values>(),
        extension: null_mut(),
        size,
        types: null_mut(),
        entries: null_mut(),
    }
}

fn buffer(dtype: c_int) -> Buffer {
    Buffer {
        struct_size: size_of::<Buffer>(),
        extension: null_mut(),
        dtype,
        data: null_mut(),
        rank: 0,
        dims: null_mut(),
    }
}

fn span(name: &'static str) -> Span {
    Span { start: name.as_ptr().cast(), len: name.len() }
}

impl Called {
    fn new(kind: Kind) -> Box<Self> {
        let version =
            Version { struct_size: size_of::<Version>(), extension: null_mut(), major: 0, minor: 5 };
        let api = Api {
            struct_size: size_of::<Api>() + 32,
            extension: null_mut(),
            version,
            internal: null(),
            error_create,
            error_get_message: null(),
            error_destroy,
            handler_register: null(),
            stream_get: null(),
            type_register: null(),
            context_get: null(),
            state_set: null(),
            state_get: null(),
            memory_allocate: null(),
            memory_free: null(),
            pool_schedule: null(),
            pool_threads: null(),
            future_create: no_future,
            future_set_available: no_future,
            future_set_error: no_error,
        };
        let attributes = Attributes {
            struct_size: size_of::<Attributes>(),
            extension: null_mut(),
            size: 2,
            types: null_mut(),
            names: null_mut(),
            values: null_mut(),
        };
        let frame = CallFrame {
            struct_size: offset_of!(CallFrame, future),
            extension: null_mut(),
            api: null(),
            context: null_mut(),
            stage: STAGE_EXECUTE,
            operands: values(2),
            results: values(1),
            attributes,
            future: null_mut(),
        };
        let mut made = Box::new(Self {
            kind,
            api,
            frame,
            dims: Box::new([2, 3]),
            data: Box::new([1.0; 6]),
            turn: Box::new(7),
            buffers: Box::new([buffer(F32), buffer(U32), buffer(U32), buffer(F32)]),
            operands: Box::new([null_mut(); 2]),
            results: Box::new([null_mut(); 1]),
            kinds: Box::new([BUFFER; 2]),
            scalars: Box::new([S64, S64].map(|dtype| Scalar { dtype, value: null_mut() })),
            numbers: Box::new([i64::MAX, 0]),
            spans: Box::new([span("group"), span("leaf")]),
            names: Box::new([null_mut(); 2]),
            values: Box::new([null_mut(); 2]),
            scalar_kinds: Box::new([SCALAR; 2]),
        });
        made.connect();
        made
    }

    fn connect(&mut self) {
        let data: *mut c_void = self.data.as_mut_ptr().cast();
        let turn: *mut c_void = (&raw mut *self.turn).cast();
        for at in [0, 3] {
            self.buffers[at].data = data;
            self.buffers[at].rank = 2;
            self.buffers[at].dims = self.dims.as_mut_ptr();
        }
        self.buffers[1].data = turn;
        self.buffers[2].data = turn;
        if self.kind == Kind::Give {
            self.buffers[3] = Buffer { data: turn, ..buffer(U32) };
        }
        let first = usize::from(self.kind == Kind::TakeBack);
        for at in 0..2 {
            self.operands[at] = (&raw mut self.buffers[first + at]).cast();
            self.scalars[at].value = (&raw mut self.numbers[at]).cast();
            self.values[at] = (&raw mut self.scalars[at]).cast();
            self.names[at] = &raw mut self.spans[at];
        }
        self.results[0] = (&raw mut self.buffers[3]).cast();
        let kinds = self.kinds.as_mut_ptr();
        self.frame.operands.types = kinds;
        self.frame.operands.entries = self.operands.as_mut_ptr();
        self.frame.results.types = kinds;
        self.frame.results.entries = self.results.as_mut_ptr();
        self.frame.attributes.types = self.scalar_kinds.as_mut_ptr();
        self.frame.attributes.names = self.names.as_mut_ptr();
        self.frame.attributes.values = self.values.as_mut_ptr();
    }

    fn answer(&mut self) -> Option<String> {
        self.frame.api = &raw const self.api;
        // SAFETY: the frame is as XLA makes it, or differs in what the handler is to notice.
        let error = unsafe {
            match self.kind {
                Kind::Give => give(&raw mut self.frame),
                Kind::TakeBack => take_back(&raw mut self.frame),
            }
        };
        // SAFETY: made by `error_create`.
        (!error.is_null()).then(|| *unsafe { Box::from_raw(error.cast::<String>()) })
    }
}

fn metadata() -> (Box<Metadata>, Box<MetadataExtension>) {
    let version = Version { struct_size: 0, extension: null_mut(), major: -1, minor: -1 };
    let mut metadata =
        Box::new(Metadata { struct_size: size_of::<Metadata>(), version, traits: 9, state_type: -1 });
    let base =
        Extension { struct_size: size_of::<MetadataExtension>(), kind: EXTENSION_METADATA, next: null_mut() };
    let extension = Box::new(MetadataExtension { base, metadata: &raw mut *metadata });
    (metadata, extension)
}

/// XLA would refuse the handler, or call it as one of another version.
#[test]
fn the_version_is_ours_or_the_runtimes_if_that_is_older() {
    for (minor, expected) in [(3, 3), (5, 3), (2, 2)] {
        let mut called = Called::new(Kind::Give);
        called.api.version.minor = minor;
        let (described, mut extension) = metadata();
        called.frame.extension = (&raw mut *extension).cast();
        assert_eq!(called.answer(), None);
        assert_eq!((described.version.major, described.version.minor, described.traits), (0, expected, 0));
        assert_eq!(described.version.struct_size, size_of::<Version>());
        assert_eq!(described.state_type, -1, "version 0.3 does not write it");
    }
}

/// Fields would be read where another version has others.
#[test]
fn another_major_version_is_refused() {
    let mut called = Called::new(Kind::Give);
    called.api.version.major = 1;
    let (_metadata, mut extension) = metadata();
    called.frame.extension = (&raw mut *extension).cast();
    let said = called.answer().unwrap();
    assert!(
        said.starts_with("9: XLA's FFI is of version 1.5, and this version of Hocket knows 0.x\nhint: "),
        "{said}"
    );
}

/// A function that is not there would be called.
#[test]
fn a_runtime_without_futures_is_refused() {
    let mut called = Called::new(Kind::Give);
    called.api.struct_size = offset_of!(Api, future_create);
    let said = called.answer().unwrap();
    assert!(said.contains("asynchronous results came with 0.3\nhint: a newer jaxlib"), "{said}");
}

/// A step would begin before it is executed.
#[test]
fn other_stages_are_passed_over() {
    for stage in [0, 1, 2, 4] {
        let mut called = Called::new(Kind::Give);
        called.frame.stage = stage;
        assert_eq!(called.answer(), None);
        assert!(called.frame.future.is_null());
    }
}

/// A function that outlives its model would write to memory that is gone.
#[test]
fn an_unknown_group_is_refused() {
    for kind in [Kind::Give, Kind::TakeBack] {
        let said = Called::new(kind).answer().unwrap();
        assert!(
            said.starts_with("9: the model of this function is not distributed any more\nhint: "),
            "{said}"
        );
    }
}

/// Memory would be read or written beyond its end.
#[test]
fn what_is_not_as_it_should_be_is_refused() {
    type Change = fn(&mut Called);
    let both: [(Change, &str); 9] = [
        (|called| called.frame.struct_size -= 1, "call frame has 167 bytes, 168 at least"),
        (|called| called.frame.operands.size = 1, "1 operands instead of"),
        (|called| called.frame.results.size = 2, "2 results instead of 1"),
        (|called| called.kinds[1] = 2, "operands that are no buffers"),
        (|called| called.buffers[1].struct_size = 40, "buffer has 40 bytes, 48 at least"),
        (|called| called.buffers[1].dtype = S32, "the turn is no scalar of uint32"),
        (|called| called.scalar_kinds[0] = 4, "`group` is no scalar"),
        (|called| called.spans[1] = span("leaves"), "no attribute `leaf`"),
        (|called| called.numbers[0] = -4, "`group` is negative"),
    ];
    let unknown = "elements of XLA's type 15: known are f64, f32, f16 and bf16";
    let give: [(Change, &str); 4] = [
        (|called| called.buffers[0].dtype = 15, unknown),
        (|called| called.buffers[3].rank = 1, "the result is no scalar of uint32"),
        (|called| called.dims[0] = -1, "larger than memory"),
        (|called| called.dims[1] = i64::MAX, "larger than memory"),
    ];
    let take_back: [(Change, &str); 2] = [
        (|called| called.buffers[3].dtype = 15, unknown),
        (|called| called.buffers[3].data = null_mut(), "an operand or result has no memory"),
    ];
    let cases =
        [(Kind::Give, &both[..]), (Kind::TakeBack, &both), (Kind::Give, &give), (Kind::TakeBack, &take_back)];
    for (kind, cases) in cases {
        for (change, expected) in cases {
            let mut called = Called::new(kind);
            change(&mut called);
            let said = called.answer().unwrap();
            assert!(said.starts_with("13: Hocket's handler: ") && said.contains(expected), "{said}");
        }
    }
}
