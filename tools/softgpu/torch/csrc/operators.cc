// Registers the CPU's kernels for CUDA's operators. Allocation, views, streams, events, copies of bytes, NCCL and the
// program's own kernels stay CUDA's.
#include <ATen/Context.h>
#include <ATen/ops/copy_native.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "call.h"
#include "substitutes.h"

namespace softgpu::aten {
namespace {

[[noreturn]] void Refuse(const c10::OperatorHandle& op, const char* why) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, c10::toString(op.operator_name()), " does not run on the software GPU: ", why,
                              "; ", RemedyFor(op.schema().name()));
}

// A kernel of CUDA that runs the one of the CPU.
class HostKernel final : public c10::OperatorKernel {
 public:
  explicit HostKernel(Signature signature) : signature_(std::move(signature)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::Device device = Place(op, *stack);
    if (Capturing(device)) return Capture(op, signature_, device, stack);
    SynchronizeStreams(devices_of_call_);
    Run(op, device, stack);
  }

 private:
  c10::Device Place(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const;
  void Run(const c10::OperatorHandle& op, c10::Device device, torch::jit::Stack* stack) const;

  Signature signature_;
  static thread_local uint64_t devices_of_call_;
};

thread_local uint64_t HostKernel::devices_of_call_ = 0;

// Where the operands are, which must be one place as on a device; else where the results shall be.
c10::Device HostKernel::Place(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const {
  std::optional<c10::Device> found, on_host, asked;
  devices_of_call_ = 0;
  const auto see = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      if (tensor.is_cpu() && tensor.dim() > 0) on_host = tensor.device();
      return tensor;
    }
    TORCH_CHECK(!found || *found == tensor.device() || signature_.mixes_devices,
                "Expected all tensors to be on the same device, but found at least two devices, ", *found, " and ",
                tensor.device(), "! (when checking arguments of ", c10::toString(op.operator_name()), ")");
    if (!found) found = tensor.device();
    devices_of_call_ |= uint64_t{1} << tensor.get_device();
    return tensor;
  };
  for (size_t i = stack.size() - signature_.arguments; i < stack.size(); ++i) {
    if (stack[i].isDevice()) asked = stack[i].toDevice();
    MapTensors(stack[i], see);
  }
  TORCH_CHECK(!found || !on_host || signature_.mixes_devices,
              "Expected all tensors to be on the same device, but found at least two devices, ", *found,
              " and cpu! (when checking arguments of ", c10::toString(op.operator_name()), ")");
  if (found) return *found;
  const bool index = asked && asked->has_index();
  return c10::Device(c10::kCUDA, index ? asked->index() : c10::cuda::current_device());
}

void HostKernel::Run(const c10::OperatorHandle& op, c10::Device device, torch::jit::Stack* stack) const {
  const size_t first = stack->size() - signature_.arguments;
  const torch::jit::Stack original(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  Views views;
  for (size_t i = first; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isDevice()) value = c10::Device(c10::kCPU);
    value = MapTensors(value, [&](const at::Tensor& tensor) { return views.ToHost(tensor); });
  }
  std::optional<at::Generator> generator;
  if (signature_.random) {
    const size_t at = static_cast<size_t>(signature_.generator);
    if (signature_.generator >= 0) generator = original[at].toOptional<at::Generator>();
    generator = Draw(generator, device).Host();
    if (signature_.generator >= 0) (*stack)[first + at] = generator;
  }
  {
    const RunningGeneratorGuard running(generator);
    Invoke(op, signature_, stack);
  }
  for (const size_t argument : signature_.written) {
    MapTensors(original[argument], [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.is_cuda()) views.TakeOver(tensor);
      return tensor;
    });
  }
  for (size_t i = 0; i < signature_.returns; ++i) {
    c10::IValue& value = (*stack)[stack->size() - signature_.returns + i];
    const int argument = signature_.returned_argument[i];
    value = argument >= 0 ? original[static_cast<size_t>(argument)] : MapTensors(value, [&](const at::Tensor& tensor) {
      if (tensor.is_quantized()) Refuse(op, "its result is a quantised tensor");
      return views.ToDevice(tensor, device);
    });
  }
}

// Whether a copy is one of bytes, or goes between device and host, which PyTorch does with copies of bytes and, on
// either side, the operators above.
bool NeedsNoKernel(const at::Tensor& to, const at::Tensor& from) {
  if (!to.is_cuda() || !from.is_cuda()) return true;
  return to.dtype() == from.dtype() && to.sizes() == from.sizes() && to.strides() == from.strides() &&
         to.is_non_overlapping_and_dense() && to.is_conj() == from.is_conj() && to.is_neg() == from.is_neg();
}

void CopyBySignature(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  static const Signature signature = [] {
    Signature made(op, c10::DispatchKey::CPU);
    made.mixes_devices = true;
    return made;
  }();
  torch::jit::Stack stack = {to, from, non_blocking};
  if (Capturing(to.device())) {
    TORCH_CHECK(to.device() == from.device(),
                "aten::copy_ cannot be captured on the software GPU: it converts between ", from.device(), " and ",
                to.device(), "; copy without conversion, and convert on one of them");
    return Capture(op, signature, to.device(), &stack);
  }
  SynchronizeStreams(uint64_t{1} << to.get_device() | uint64_t{1} << from.get_device());
  Views views;
  stack = {views.ToHost(to), views.ToHost(from), false};
  Invoke(op, signature, &stack);
}

at::Tensor& CopyTensor(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (NeedsNoKernel(to, from)) return at::native::copy_(to, from, non_blocking);
  CopyBySignature(to, from, non_blocking);
  return to;
}

int64_t ChooseAttention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                        double, bool, std::optional<double>, bool) {
  return 0;  // at::SDPBackend::math
}

class Refusal final : public c10::OperatorKernel {
 public:
  explicit Refusal(const char* why) : why_(why) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) { Refuse(op, why_); }

 private:
  const char* why_;
};

torch::CppFunction MakeRefusal(const char* why) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Refusal>(why));
}

// Allocate, only look, or are about streams.
bool StaysWithCuda(const std::string& name) {
  static const std::set<std::string> names = {
      "_coalesced_",
      "_dimI",
      "_dimV",
      "_efficientzerotensor",
      "_fused_sdp_choice",
      "_local_scalar_dense",
      "_nested_tensor_size",
      "_nested_tensor_storage_offsets",
      "_nested_tensor_strides",
      "_nnz",
      "_pin_memory",
      "_sparse_coo_tensor_with_dims",
      "_sparse_coo_tensor_with_dims_and_tensors",
      "_to_copy",
      "_use_cudnn_ctc_loss",
      "_use_miopen_ctc_loss",
      "copy_",
      "copy_sparse_to_sparse_",
      "cudnn_is_acceptable",
      "dense_dim",
      "empty",
      "empty_like",
      "empty_strided",
      "is_coalesced",
      "is_pinned",
      "is_set_to",
      "record_stream",
      "resize_",
      "resize_as_sparse_",
      "set_",
      "sparse_dim",
      "sparse_resize_",
      "sparse_resize_and_clear_",
  };
  return names.count(name) > 0;
}

// Without a registration for CUDA: PyTorch runs them in terms of what only CUDA has, or of kernels beside the
// dispatcher.
bool IsWholeOnHost(const std::string& name) {
  static const std::set<std::string> names = {"_convolution", "convolution", "convolution_backward", "mode"};
  return names.count(name) > 0;
}

bool ReturnsViews(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

// A key of CUDA, and the one of the CPU that takes its place.
struct Keys {
  c10::DispatchKey device, host;
};

std::string FullName(const c10::OperatorHandle& op) {
  const std::string base = op.schema().name().substr(6), overload = op.schema().overload_name();
  return overload.empty() ? base : base + "." + overload;
}

// Registers one operator, if it has a kernel that could not run.
void Replace(torch::Library* library, const Keys& keys, const c10::OperatorHandle& op) {
  const std::string base = op.schema().name().substr(6), full = FullName(op);
  const bool dense = keys.device == c10::DispatchKey::CUDA;
  if (StaysWithCuda(base) || ReturnsViews(op.schema())) return;
  if (!op.hasKernelForDispatchKey(keys.device) && !(dense && IsWholeOnHost(base))) return;
  c10::DispatchKey host = keys.host;
  if (dense && op.hasKernelForDispatchKey(kSubstitute)) {
    host = kSubstitute;
  } else if (!op.hasComputedKernelForDispatchKey(host)) {
    library->impl(full.c_str(), MakeRefusal("PyTorch has a kernel of it for CUDA alone"));
    return;
  }
  library->impl(full.c_str(),
                torch::CppFunction::makeFromBoxedFunctor(std::make_unique<HostKernel>(Signature(op, host))));
}

// Calls `replace` with each of PyTorch's operators and the library that its kernels for a key go into, for good.
template <typename Function>
torch::Library* ForEachOperator(c10::DispatchKey key, const Function& replace) {
  auto* const library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findOp(name);
    if (op && op->hasSchema()) replace(library, *op);
  }
  return library;
}

torch::Library* ReplaceAll(const Keys& keys) {
  return ForEachOperator(keys.device, [&](torch::Library* library, const c10::OperatorHandle& op) {  //
    Replace(library, keys, op);
  });
}

// A view on the host would lack the quantizer, so only what allocates or looks is left.
void RefuseQuantized() {
  constexpr c10::DispatchKey kKey = c10::DispatchKey::QuantizedCUDA;
  ForEachOperator(kKey, [&](torch::Library* library, const c10::OperatorHandle& op) {
    const std::string base = op.schema().name().substr(6);
    const bool looks = base == "clone" || base.rfind("q_", 0) == 0 || base == "qscheme" || StaysWithCuda(base);
    if (!op.hasKernelForDispatchKey(kKey) || looks || ReturnsViews(op.schema())) return;
    if (base.find("empty") == std::string::npos)
      library->impl(FullName(op).c_str(), MakeRefusal("its operand is a quantised tensor"));
  });
}

// PyTorch warns of each kernel that is replaced.
class Silence final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace
}  // namespace softgpu::aten

// Called once, by the loader.
extern "C" __attribute__((visibility("default"))) void softgpu_torch_install() {
  using namespace softgpu::aten;  // NOLINT
  static Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  RegisterSubstitutes();
  torch::Library* const dense = ReplaceAll({c10::DispatchKey::CUDA, c10::DispatchKey::CPU});
  ReplaceAll({c10::DispatchKey::SparseCUDA, c10::DispatchKey::SparseCPU});
  ReplaceAll({c10::DispatchKey::SparseCsrCUDA, c10::DispatchKey::SparseCsrCPU});
  ReplaceAll({c10::DispatchKey::NestedTensorCUDA, c10::DispatchKey::NestedTensorCPU});
  RefuseQuantized();
  dense->impl("copy_", torch::CppFunction(&CopyTensor));
  dense->impl("_fused_sdp_choice", torch::CppFunction(&ChooseAttention));
  dense->impl("cudnn_is_acceptable", torch::CppFunction([](const at::Tensor&) { return false; }));
  at::globalContext().setUserEnabledCuDNN(false);
}

// Keeps a stream busy for that many cycles of a gigahertz.
extern "C" __attribute__((visibility("default"))) void softgpu_torch_sleep(void* stream, int64_t cycles) {
  const auto wait = [](void* data) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(reinterpret_cast<int64_t>(data)));
  };
  C10_CUDA_CHECK(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), wait, reinterpret_cast<void*>(cycles)));
}
