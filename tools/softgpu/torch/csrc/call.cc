#include "call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_to_copy.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/cuda/CUDAStream.h>

#include <string>

namespace softgpu::aten {
namespace {

// Of operators whose schema has no generator.
bool DrawsWithoutGenerator(const std::string& name) { return name == "aten::native_dropout"; }

// Operators that CUDA's own kernels let mix devices: copies, indices and lengths of the CPU, lists of any tensors.
bool MixesDevices(const std::string& name) {
  for (const char* start :
       {"aten::index", "aten::_index_put", "aten::_unsafe_index", "aten::_foreach", "aten::_fused_", "aten::_amp",
        "aten::_ctc_loss", "aten::_embedding_bag", "aten::_pad_packed", "aten::segment", "aten::_chunk_cat",
        "aten::split_with_sizes_copy", "aten::_convert_indices"}) {
    if (name.rfind(start, 0) == 0) return true;
  }
  return false;
}

bool IsNarrow(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

at::Tensor Widened(const at::Tensor& tensor) {
  if (!tensor.defined() || !IsNarrow(tensor.scalar_type())) return tensor;
  return at::_to_copy(tensor, tensor.options().dtype(at::kFloat));
}

// The type that a call computes in, if it is one of 16 bits.
std::optional<at::ScalarType> NarrowType(const torch::jit::Stack& stack, size_t first) {
  std::optional<at::ScalarType> found;
  for (size_t i = first; i < stack.size(); ++i) {
    MapTensors(stack[i], [&](const at::Tensor& tensor) {
      if (!found && tensor.defined() && IsNarrow(tensor.scalar_type())) found = tensor.scalar_type();
      return tensor;
    });
  }
  return found;
}

// In float32, and back. What is written in place goes back to where it belongs.
void InvokeWidened(const c10::OperatorHandle& op, const Signature& signature, torch::jit::Stack* stack) {
  const size_t first = stack->size() - signature.arguments;
  const std::optional<at::ScalarType> narrow = NarrowType(*stack, first);
  const std::vector<c10::IValue> original(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  std::vector<std::pair<at::Tensor, at::Tensor>> widened;  // one for each tensor, so that arguments stay the same ones
  for (size_t i = first; i < stack->size(); ++i) {
    const bool type = op.schema().arguments()[i - first].type()->str().find("ScalarType") != std::string::npos;
    (*stack)[i] = MapTensors((*stack)[i], [&](const at::Tensor& tensor) {
      for (const auto& [from, to] : widened) {
        if (from.is_same(tensor)) return to;
      }
      widened.emplace_back(tensor, Widened(tensor));
      return widened.back().second;
    });
    if (type && (*stack)[i].isInt() && IsNarrow((*stack)[i].toScalarType())) (*stack)[i] = at::kFloat;
  }
  op.redispatchBoxed(c10::DispatchKeySet(signature.key), stack);
  for (const size_t argument : signature.written) {
    MapTensors(original[argument], [&](const at::Tensor& tensor) {
      for (const auto& [from, to] : widened) {
        if (!from.is_same(tensor) || from.is_same(to)) continue;
        if (from.sizes() != to.sizes()) from.resize_(to.sizes());
        from.copy_(to);
      }
      return tensor;
    });
  }
  for (size_t i = stack->size() - signature.returns; i < stack->size(); ++i) {
    (*stack)[i] = MapTensors((*stack)[i], [&](const at::Tensor& tensor) {
      const bool wide = tensor.defined() && tensor.scalar_type() == at::kFloat;
      return wide ? at::_to_copy(tensor, tensor.options().dtype(*narrow)) : tensor;
    });
  }
}

}  // namespace

Signature::Signature(const c10::OperatorHandle& op, c10::DispatchKey key) : key(key) {
  const c10::FunctionSchema& schema = op.schema();
  arguments = schema.arguments().size();
  returns = schema.returns().size();
  for (size_t i = 0; i < arguments; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.type()->str().find("Generator") != std::string::npos) generator = static_cast<int>(i);
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) written.push_back(i);
  }
  random = generator >= 0 || DrawsWithoutGenerator(schema.name());
  mixes_devices = MixesDevices(schema.name());
  for (const c10::Argument& result : schema.returns()) {
    int found = -1;
    for (const size_t argument : written) {
      const c10::AliasInfo* const alias = result.alias_info();
      if (alias != nullptr && alias->beforeSets() == schema.arguments()[argument].alias_info()->beforeSets())
        found = static_cast<int>(argument);
    }
    returned_argument.push_back(found);
  }
}

void Invoke(const c10::OperatorHandle& op, const Signature& signature, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  const size_t first = stack->size() - signature.arguments;
  const torch::jit::Stack original(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  try {
    op.redispatchBoxed(c10::DispatchKeySet(signature.key), stack);
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const bool narrow = text.find("not implemented for 'Half'") != std::string::npos ||
                        text.find("not implemented for 'BFloat16'") != std::string::npos;
    if (!narrow || !NarrowType(original, 0)) throw;
    stack->resize(first);
    stack->insert(stack->end(), original.begin(), original.end());
    InvokeWidened(op, signature, stack);
  }
}

void SynchronizeStreams(uint64_t devices) {
  for (int device = 0; devices >> device != 0; ++device) {
    if (devices >> device & 1) c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).synchronize();
  }
}

}  // namespace softgpu::aten
