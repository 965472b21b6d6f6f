// The tests' device as PyTorch takes it: memory, streams, events, copies, and every operator as a kernel that runs late.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include <atomic>
#include <set>

#include "pinned.h"
#include "queues.h"

namespace hostile {
namespace {

constexpr auto OURS = c10::DeviceType::PrivateUse1;
constexpr int64_t POOLED = 4;

thread_local c10::DeviceIndex current_device = 0;
thread_local int64_t current_streams[DEVICES] = {};
std::atomic<int64_t> streams_made{1};

int64_t key_of(const c10::Stream& stream) { return int64_t(stream.device_index()) << 32 | stream.id(); }
int64_t current_key(int device) { return int64_t(device) << 32 | current_streams[device]; }
c10::DeviceIndex index_of(c10::Device device) { return device.has_index() ? device.index() : current_device; }
c10::Stream stream_of(c10::Device device, int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(OURS, index_of(device)), id);
}

void check_index(int64_t index) {
  TORCH_CHECK(index >= 0 && index < DEVICES, "hostile device: there is no device ", index);
}

// Memory

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    const int device = current_device;
    if (size == 0) return {nullptr, nullptr, &free, c10::Device(OURS, device)};
    char* start = machine().allocate(size, device, current_key(device));
    return {start, start, &free, c10::Device(OURS, device)};
  }
  static void free(void* start) {
    if (start != nullptr) machine().release(static_cast<char*>(start));
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, size_t size) const override {
    const int device = current_device;
    machine().give(current_key(device), [=] {
      std::memcpy(machine().inside(to, device), machine().inside(from, device), size);
    });
  }
};
Allocator allocator;

void resize_storage(const c10::Storage& storage, size_t size) {
  const int device = storage.device().index();
  auto before = current_device;
  current_device = c10::DeviceIndex(device);
  auto fresh = allocator.allocate(size);
  current_device = before;
  const size_t kept = std::min(size, storage.nbytes());
  if (kept > 0) {
    void* to = fresh.get();
    const void* from = storage.data();
    machine().give(current_key(device), [=] {
      std::memcpy(machine().inside(to, device), machine().inside(from, device), kept);
    });
  }
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
  storage.unsafeGetStorageImpl()->set_nbytes(size);
}

// Streams and events

struct Event {
  MarkPtr mark;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return OURS; }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = current_device;
    setDevice(device);
    return {OURS, before};
  }
  c10::Device getDevice() const override { return {OURS, current_device}; }
  void setDevice(c10::Device device) const override {
    check_index(device.index());
    current_device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  c10::Stream getStream(c10::Device device) const override {
    return stream_of(device, current_streams[index_of(device)]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_of(device, 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static std::atomic<int64_t> turn{0};
    return stream_of(device, 1 + turn++ % POOLED);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return stream_of(device, POOLED + streams_made++);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto before = getStream(stream.device());
    current_streams[stream.device_index()] = stream.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return reinterpret_cast<void*>(key_of(stream)); }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->mark = machine().mark(key_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) machine().wait(key_of(stream), static_cast<Event*>(event)->mark);
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || machine().query(static_cast<Event*>(event)->mark);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) machine().synchronize(static_cast<Event*>(event)->mark);
  }
  bool queryStream(const c10::Stream& stream) const override { return machine().query(machine().mark(key_of(stream))); }
  void synchronizeStream(const c10::Stream& stream) const override { machine().synchronize_stream(key_of(stream)); }
  void synchronizeDevice(const c10::DeviceIndex index) const override { machine().synchronize_device(index); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    machine().used_by(data.get(), key_of(stream));
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return DEVICES; }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    check_index(index);
    current_device = index;
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    auto before = current_device;
    setCurrentDevice(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_device : exchangeDevice(index);
  }
  at::Device getDeviceFromPtr(void*) const override { return {OURS, current_device}; }
  bool isPinnedPtr(const void* address) const override { return pinned().holds(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override { resize_storage(storage, size); }
};

// Kernels

// A tensor of the device as a kernel is given it: an address, which is all that work which comes late has of it.
struct Placed {
  const void* address;
  std::vector<int64_t> sizes, strides;
  c10::ScalarType type;
  int device;

  explicit Placed(const at::Tensor& tensor)
      : address(tensor.const_data_ptr()),
        sizes(tensor.sizes().vec()),
        strides(tensor.strides().vec()),
        type(tensor.scalar_type()),
        device(tensor.device().index()) {}

  at::Tensor inside() const {
    auto options = at::TensorOptions().dtype(type);
    for (auto size : sizes)
      if (size == 0) return at::empty_strided(sizes, strides, options);
    return at::from_blob(machine().inside(address, device), sizes, strides, options);
  }
};

// Around kernels, wherever they run: operators of the processor, and nothing above them.
struct Below {
  c10::impl::ExcludeDispatchKeyGuard guard{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView |
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::AutocastCPU,
                           c10::DispatchKey::AutocastPrivateUse1, c10::DispatchKey::Functionalize})};
};

bool is_ours(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == OURS; }

// Replace tensors in a value by what `change` makes of each.
c10::IValue changed(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& change) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(change(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : value.toTensorVector()) list.push_back(each.defined() ? change(each) : each);
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector())
      list.push_back(each && each->defined() ? std::optional<at::Tensor>(change(*each)) : each);
    return list;
  }
  return value;
}

bool writes(const c10::Argument& argument) { return argument.alias_info() != nullptr && argument.alias_info()->isWrite(); }

// Arguments as a kernel has them; `places` are those of tensors of the device, in order.
struct Arguments {
  std::vector<c10::IValue> values;
  std::vector<Placed> places;

  explicit Arguments(c10::ArrayRef<c10::IValue> given) {
    for (auto& value : given)
      values.push_back(changed(value, [&](const at::Tensor& tensor) {
        if (is_ours(tensor)) {
          places.emplace_back(tensor);
          return at::empty({0}, at::TensorOptions().dtype(at::kByte).device(at::kMeta));
        }
        return tensor.unsafeGetTensorImpl()->is_wrapped_number() ? tensor : tensor.clone();
      }));
  }

  torch::jit::Stack stack() const {
    torch::jit::Stack made;
    size_t at = 0;
    for (auto& value : values)
      made.push_back(changed(value, [&](const at::Tensor& tensor) {
        return tensor.device().is_meta() ? places[at++].inside() : tensor;
      }));
    return made;
  }
};

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  return value.isTensor() ? std::vector{value.toTensor()} : value.toTensorVector();
}

bool same_sizes(const c10::IValue& one, const c10::IValue& two) {
  if (one.isTensor()) return one.toTensor().sizes().equals(two.toTensor().sizes());
  if (!one.isTensorList()) return false;
  auto left = one.toTensorVector(), right = two.toTensorVector();
  return std::equal(left.begin(), left.end(), right.begin(), [](auto& a, auto& b) { return a.sizes().equals(b.sizes()); });
}

// Give an operator to the current stream; false: what it returns is known only when it has run, or is no tensor.
bool late(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  auto given = torch::jit::last(*stack, count);
  std::optional<c10::Device> device;
  torch::jit::Stack shapes;
  for (auto& value : given) {
    if (value.isDevice()) return false;
    shapes.push_back(changed(value, [&](const at::Tensor& tensor) {
      if (!is_ours(tensor)) return tensor;
      if (!device) device = tensor.device();
      return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
    }));
  }
  if (!device) return false;
  std::vector<size_t> written;
  for (size_t at = 0; at < count; at++)
    if (writes(schema.arguments()[at])) written.push_back(at);
  for (auto& result : schema.returns())
    if ((result.alias_info() != nullptr) != !written.empty()) return false;
  if (!schema.returns().empty() && !written.empty() && written.size() != schema.returns().size()) return false;

  const torch::jit::Stack before = shapes;
  try {
    op.callBoxed(&shapes);
  } catch (const std::exception&) {
    return false;
  }
  torch::jit::Stack results;
  std::vector<std::optional<Placed>> outputs;
  for (auto at : written) {
    // What was too small is another tensor afterwards.
    if (!same_sizes(before[at], given[at])) return false;
    if (!schema.returns().empty()) results.push_back(given[at]);
  }
  if (written.empty())
    for (auto& shape : shapes) {
      if (!shape.isTensor() && !shape.isTensorList()) return false;
      results.push_back(changed(shape, [&](const at::Tensor& tensor) {
        return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(*device));
      }));
      for (auto& made : tensors_of(results.back()))
        outputs.push_back(made.defined() ? std::make_optional<Placed>(made) : std::nullopt);
    }
  auto arguments = std::make_shared<Arguments>(given);
  machine().give(current_key(device->index()), [op, arguments, outputs, written] {
    Below below;
    auto made = arguments->stack();
    // Some kernels give what is called `out` other sizes on their way, which memory of ours must keep.
    std::vector<std::pair<at::Tensor, at::Tensor>> outs;
    for (auto at : written)
      if (op.schema().arguments()[at].is_out() && made[at].isTensor()) {
        auto own = made[at].toTensor();
        made[at] = at::empty({0}, own.options());
        outs.emplace_back(own, made[at].toTensor());
      }
    try {
      op.callBoxed(&made);
    } catch (c10::Error& error) {
      error.add_context(c10::str("of ", op.operator_name(), ", which came late"));
      throw;
    }
    for (auto& [own, out] : outs) own.copy_(out);
    if (outputs.empty()) return;
    size_t at = 0;
    for (auto& value : made)
      for (auto& tensor : tensors_of(value)) {
        // A kernel may leave out what nobody asked for, where shapes alone do not tell.
        auto& output = outputs[at++];
        if (output && tensor.defined()) output->inside().copy_(tensor);
      }
  });
  torch::jit::drop(*stack, count);
  for (auto& result : results) stack->push_back(std::move(result));
  return true;
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!late(op, stack)) at::native::cpu_fallback(op, stack);
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  auto& machine_ = machine();
  if (is_ours(from) && is_ours(to)) {
    const auto source = current_key(from.device().index()), target = current_key(to.device().index());
    if (source != target) machine_.wait(source, machine_.mark(target));
    machine_.give(source, [from = Placed(from), to = Placed(to)] {
      Below below;
      to.inside().copy_(from.inside());
    });
    if (source != target) machine_.wait(target, machine_.mark(source));
    return to;
  }
  const auto& placed = is_ours(from) ? from : to;
  const auto stream = current_key(placed.device().index());
  if (is_ours(from)) {
    // An item of its own: between it and the copy, whoever looks sees no numbers.
    if (to.is_contiguous() && !to.is_conj() && !to.is_neg())
      machine_.give(stream, [to] { std::memset(to.mutable_data_ptr(), POISON, to.nbytes()); });
    machine_.give(stream, [from = Placed(from), to] {
      Below below;
      to.copy_(from.inside());
    });
  } else {
    if (to.is_contiguous())
      machine_.give(stream, [at = Placed(to), size = to.nbytes()] {
        std::memset(machine().inside(at.address, at.device), POISON, size);
      });
    machine_.give(stream, [from, to = Placed(to)] {
      Below below;
      to.inside().copy_(from);
    });
  }
  if (!non_blocking) machine_.synchronize_stream(stream);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

struct OnDevice {
  explicit OnDevice(std::optional<c10::Device> device) : before(current_device) {
    if (device && device->has_index()) Guard().setDevice(*device);
  }
  ~OnDevice() { current_device = before; }
  c10::DeviceIndex before;
};

const c10::DispatchKeySet KEYS{c10::DispatchKey::PrivateUse1};

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  OnDevice on(device);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator, KEYS, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  OnDevice on(device);
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &allocator, KEYS,
                                           c10::dtype_or_default(type));
}

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto* tensor = self.unsafeGetTensorImpl();
  const size_t needed = at::detail::computeStorageNbytesContiguous(sizes, self.dtype().itemsize(), self.storage_offset());
  if (needed > self.storage().nbytes()) resize_storage(self.storage(), needed);
  tensor->set_sizes_contiguous(sizes);
  if (format) tensor->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                        c10::SymIntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset.expect_int(), C10_AS_INTARRAYREF_SLOW(size),
                                      C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  std::optional<int64_t> start;
  if (offset) start = offset->expect_int();
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), start);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

at::Scalar local_scalar(const at::Tensor& self) { return self.to(at::kCPU).item(); }

// Convolutions are not asked for by their own name. These are done at once.
at::Tensor convolved(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                     c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                     c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  std::optional<at::Tensor> added;
  if (bias && bias->defined()) added = bias->cpu();
  return at::convolution_symint(input.cpu(), weight.cpu(), added, stride, padding, dilation, transposed, output_padding, groups)
      .to(input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_gradients(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
    c10::SymInt groups, std::array<bool, 3> wanted) {
  const std::vector<c10::SymInt> biases{transposed ? weight.sym_size(1) * groups : weight.sym_size(0)};
  auto [of_input, of_weight, of_bias] =
      at::convolution_backward_symint(gradient.cpu(), input.cpu(), weight.cpu(), biases, stride, padding, dilation, transposed, output_padding, groups, wanted);
  auto moved = [&](const at::Tensor& each) { return each.defined() ? each.to(input.device()) : each; };
  return {moved(of_input), moved(of_weight), moved(of_bias)};
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  machine().used_by(self.storage().data(), key_of(stream));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(&at::native::set_));
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("convolution_overrideable", &convolved);
  m.impl("convolution_backward_overrideable", &convolution_gradients);
  m.impl("record_stream", &record_stream);
}

// Mixed precision: what a layer's product is made in.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(cross_entropy_loss, fp32)
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace
}  // namespace hostile

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using hostile::machine;
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &hostile::allocator);
  at::RegisterPrivateUse1HooksInterface(new hostile::Hooks);
  m.def("behave", [](uint64_t seed, int eager, int early, bool streamless) {
    machine().seed(seed);
    machine().eager = eager, machine().early = early, machine().streamless = streamless;
  });
  m.def("is_of_device", [](int64_t address) { return machine().is_ours(reinterpret_cast<void*>(address)); });
  m.attr("DEVICES") = hostile::DEVICES;
}
