//! The functions of TensorFlow's C interface that we call, found by name.

use std::ffi::{CStr, c_char, c_int, c_void};

/// TensorFlow's own: `TF_Status`.
pub type Status = c_void;
pub type RawTensor = c_void;
/// `TF_OpDefinitionBuilder`.
pub type OpBuilder = c_void;
pub type KernelBuilder = c_void;
/// `TF_OpKernelConstruction`.
pub type Construction = c_void;
/// `TF_OpKernelContext`.
pub type Context = c_void;
/// `TF_ShapeInferenceContext`.
pub type ShapeContext = c_void;
/// `TF_ShapeHandle`.
pub type Shape = c_void;

pub type Infer = unsafe extern "C" fn(*mut ShapeContext, *mut Status);
pub type Create = unsafe extern "C" fn(*mut Construction) -> *mut c_void;
pub type Compute = unsafe extern "C" fn(*mut c_void, *mut Context);
pub type Delete = unsafe extern "C" fn(*mut c_void);

macro_rules! functions {
    ($($field:ident: $name:literal fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// By TensorFlow's names without prefix, as its headers declare them (2.21).
        #[derive(Clone, Copy)]
        pub struct Functions {
            $(pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Err: the first function that `address` does not know.
            ///
            /// # Safety
            /// What `address` returns for a name is null, or that function of TensorFlow's, for as long as the process lives.
            pub unsafe fn find(address: impl Fn(&CStr) -> *mut c_void) -> Result<Self, &'static CStr> {
                $(
                    let found = address($name);
                    if found.is_null() {
                        return Err($name);
                    }
                    // SAFETY: by the caller's contract, a function of that signature.
                    let $field = unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(found)
                    };
                )*
                Ok(Self { $($field),* })
            }
        }
    };
}

functions! {
    new_status: c"TF_NewStatus" fn() -> *mut Status;
    delete_status: c"TF_DeleteStatus" fn(*mut Status);
    set_status: c"TF_SetStatus" fn(*mut Status, c_int, *const c_char);
    get_code: c"TF_GetCode" fn(*const Status) -> c_int;
    message: c"TF_Message" fn(*const Status) -> *const c_char;

    new_op: c"TF_NewOpDefinitionBuilder" fn(*const c_char) -> *mut OpBuilder;
    op_attribute: c"TF_OpDefinitionBuilderAddAttr" fn(*mut OpBuilder, *const c_char);
    op_input: c"TF_OpDefinitionBuilderAddInput" fn(*mut OpBuilder, *const c_char);
    op_output: c"TF_OpDefinitionBuilderAddOutput" fn(*mut OpBuilder, *const c_char);
    op_stateful: c"TF_OpDefinitionBuilderSetIsStateful" fn(*mut OpBuilder, bool);
    op_shapes: c"TF_OpDefinitionBuilderSetShapeInferenceFunction" fn(*mut OpBuilder, Infer);
    register_op: c"TF_RegisterOpDefinition" fn(*mut OpBuilder, *mut Status);

    shape_inputs: c"TF_ShapeInferenceContextNumInputs" fn(*mut ShapeContext) -> i64;
    shape_input: c"TF_ShapeInferenceContextGetInput" fn(*mut ShapeContext, c_int, *mut Shape, *mut Status);
    shape_output: c"TF_ShapeInferenceContextSetOutput" fn(*mut ShapeContext, c_int, *mut Shape, *mut Status);
    shape_scalar: c"TF_ShapeInferenceContextScalar" fn(*mut ShapeContext) -> *mut Shape;
    new_shape: c"TF_NewShapeHandle" fn() -> *mut Shape;
    delete_shape: c"TF_DeleteShapeHandle" fn(*mut Shape);

    new_kernel: c"TF_NewKernelBuilder"
        fn(*const c_char, *const c_char, Option<Create>, Compute, Option<Delete>) -> *mut KernelBuilder;
    register_kernel: c"TF_RegisterKernelBuilder" fn(*const c_char, *mut KernelBuilder, *mut Status);
    attribute: c"TF_OpKernelConstruction_GetAttrInt64"
        fn(*mut Construction, *const c_char, *mut i64, *mut Status);
    construction_failure: c"TF_OpKernelConstruction_Failure" fn(*mut Construction, *mut Status);
    failure: c"TF_OpKernelContext_Failure" fn(*mut Context, *mut Status);
    inputs: c"TF_NumInputs" fn(*mut Context) -> c_int;
    input: c"TF_GetInput" fn(*mut Context, c_int, *mut *mut RawTensor, *mut Status);
    allocate_output: c"TF_AllocateOutput"
        fn(*mut Context, c_int, c_int, *const i64, c_int, usize, *mut Status) -> *mut RawTensor;
    forward_or_allocate_output: c"TF_ForwardInputOrAllocateOutput"
        fn(*mut Context, *const c_int, c_int, c_int, *const i64, c_int, *mut c_int, *mut Status) -> *mut RawTensor;

    tensor_data: c"TF_TensorData" fn(*const RawTensor) -> *mut c_void;
    tensor_bytes: c"TF_TensorByteSize" fn(*const RawTensor) -> usize;
    tensor_dims: c"TF_NumDims" fn(*const RawTensor) -> c_int;
    tensor_dim: c"TF_Dim" fn(*const RawTensor, c_int) -> i64;
    delete_tensor: c"TF_DeleteTensor" fn(*mut RawTensor);
}
