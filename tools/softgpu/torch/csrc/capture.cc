// Operators in captures. Nothing runs while a stream is captured: the kernels of device "meta" say what shapes the
// results have, and a function of the host is captured that computes them at each replay.
#include <ATen/ops/empty_strided.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "call.h"

namespace softgpu::aten {
namespace {

// One operator of a graph, which owns it.
struct Node {
  c10::OperatorHandle op;
  Signature signature;
  torch::jit::Stack arguments;      // on the host
  std::vector<at::Tensor> results;  // on the host; undefined for arguments that are returned
  std::optional<Draw> draw;
};

void Replay(Node* node) {
  torch::jit::Stack stack = node->arguments;
  std::optional<at::Generator> generator;
  if (node->draw) generator = node->draw->Host();
  if (node->signature.generator >= 0) stack[static_cast<size_t>(node->signature.generator)] = generator;
  const RunningGeneratorGuard running(generator);
  Invoke(node->op, node->signature, &stack);
  size_t next = 0;
  for (const c10::IValue& value : stack) {
    MapTensors(value, [&](const at::Tensor& tensor) {
      const at::Tensor& result = node->results[next++];
      if (result.defined() && tensor.defined()) {
        TORCH_CHECK(result.sizes() == tensor.sizes(), "its result has another shape than in the capture");
        result.copy_(tensor);
      }
      return tensor;
    });
  }
}

// Called by the software GPU, which has no way to report an error of this kind.
void ReplayOrEnd(void* data) {
  auto* const node = static_cast<Node*>(data);
  try {
    Replay(node);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "softgpu: %s in a CUDA graph failed: %s\n", c10::toString(node->op.operator_name()).c_str(),
                 error.what());
    std::abort();
  }
}

[[noreturn]] void Refuse(const c10::OperatorHandle& op, const std::string& why) {
  TORCH_CHECK(false, c10::toString(op.operator_name()), " cannot be captured on the software GPU: ", why,
              "; leave it outside of the CUDA graph");
}

// The same tensor without bytes; tensors that are the same stay so.
class Shapes {
 public:
  at::Tensor Of(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    for (const auto& [device, shape] : pairs_) {
      if (device.is_same(tensor)) return shape;
    }
    at::Tensor shape = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) shape.unsafeGetTensorImpl()->set_wrapped_number(true);
    pairs_.emplace_back(tensor, shape);
    return shape;
  }
  const std::vector<std::pair<at::Tensor, at::Tensor>>& pairs() const { return pairs_; }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

// Leaves results without bytes on the stack, and gives arguments the shapes that the operator gives them.
void InferShapes(const c10::OperatorHandle& op, const Signature& signature, torch::jit::Stack* stack) {
  if (op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output))
    Refuse(op, "the shape of its result depends on data");
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta))
    Refuse(op, "PyTorch cannot tell the shape of its result");
  Shapes shapes;
  for (size_t i = stack->size() - signature.arguments; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isDevice()) value = c10::Device(c10::kMeta);
    if (static_cast<int>(i) == signature.generator) value = c10::IValue();
    value = MapTensors(value, [&](const at::Tensor& tensor) {
      const bool dense = !tensor.defined() || (tensor.layout() == at::kStrided && !tensor.is_nested());
      if (!dense) Refuse(op, "it has a sparse or nested operand");
      return shapes.Of(tensor);
    });
  }
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), stack);
  } catch (const c10::Error& error) {
    Refuse(op, std::string("PyTorch cannot tell the shape of its result (") + error.what_without_backtrace() + ")");
  }
  for (const auto& [device, shape] : shapes.pairs()) {
    if (device.sizes() != shape.sizes()) device.resize_(shape.sizes());
  }
}

// Captured with the graph, which frees it.
void Enqueue(std::unique_ptr<Node> node, cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
  C10_CUDA_CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
#else
  C10_CUDA_CHECK(cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr));
#endif
  cudaUserObject_t owner = nullptr;
  Node* const raw = node.release();
  C10_CUDA_CHECK(cudaUserObjectCreate(
      &owner, raw, [](void* data) { delete static_cast<Node*>(data); }, 1, cudaUserObjectNoDestructorSync));
  C10_CUDA_CHECK(cudaGraphRetainUserObject(graph, owner, 1, cudaGraphUserObjectMove));
  C10_CUDA_CHECK(cudaLaunchHostFunc(stream, ReplayOrEnd, raw));
}

}  // namespace

bool Capturing(c10::Device device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(device.index()), &status);
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess && status == cudaStreamCaptureStatusActive;
}

void Capture(const c10::OperatorHandle& op, const Signature& signature, c10::Device device, torch::jit::Stack* stack) {
  const torch::jit::Stack original(stack->end() - static_cast<std::ptrdiff_t>(signature.arguments), stack->end());
  InferShapes(op, signature, stack);
  auto node = std::make_unique<Node>(Node{op, signature, original, {}, {}});
  std::optional<at::Generator> generator;
  if (signature.generator >= 0)
    generator = original[static_cast<size_t>(signature.generator)].toOptional<at::Generator>();
  if (signature.random) node->draw.emplace(generator, device);
  Views views;
  for (c10::IValue& value : node->arguments) {
    if (value.isDevice()) value = c10::Device(c10::kCPU);
    // A value of the CPU is that of the time of the capture.
    value = MapTensors(value, [&](const at::Tensor& tensor) {
      return tensor.defined() && tensor.is_cpu() ? tensor.clone() : views.ToHost(tensor);
    });
  }
  for (size_t i = 0; i < signature.returns; ++i) {
    c10::IValue& value = (*stack)[stack->size() - signature.returns + i];
    const int argument = signature.returned_argument[i];
    if (argument >= 0) {
      value = original[static_cast<size_t>(argument)];
      MapTensors(value, [&](const at::Tensor& tensor) { return node->results.emplace_back(), tensor; });
      continue;
    }
    value = MapTensors(value, [&](const at::Tensor& shape) {
      const at::Tensor made = shape.defined() ? EmptyOnDevice(shape, device) : shape;
      node->results.push_back(views.ToHost(made));
      return made;
    });
  }
  Enqueue(std::move(node), c10::cuda::getCurrentCUDAStream(device.index()));
}

}  // namespace softgpu::aten
