// One call of an operator of CUDA that a kernel of the CPU carries out: its operands, where they are, and its results.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

#include "random.h"
#include "views.h"

namespace softgpu::aten {

// What a schema says, looked up once for each operator.
struct Signature {
  explicit Signature(const c10::OperatorHandle& op, c10::DispatchKey key);

  c10::DispatchKey key;  // of the kernel that runs: CPU, or kSubstitute
  size_t arguments = 0, returns = 0;
  int generator = -1;                  // the argument, if there is one
  bool random = false;                 // draws numbers
  bool mixes_devices = false;          // takes tensors of several devices, or of the CPU
  std::vector<size_t> written;         // arguments
  std::vector<int> returned_argument;  // for each result the argument that it is, or -1
};

// Kernels of operators that only CUDA has are registered under a key that no tensor has, so that they remain unknown to
// tensors of the CPU.
constexpr c10::DispatchKey kSubstitute = c10::DispatchKey::MAIA;

// Runs the kernel on tensors of the host. Where the CPU has none for float16 and bfloat16, it computes in float32.
void Invoke(const c10::OperatorHandle& op, const Signature& signature, torch::jit::Stack* stack);

// Replaces each tensor of a value, also in lists, by what `map` makes of it.
template <typename Map>
c10::IValue MapTensors(const c10::IValue& value, const Map& map) {
  if (value.isTensor()) return map(value.toTensor());
  if (value.isTensorList()) {
    std::vector<at::Tensor> list = value.toTensorVector();
    for (at::Tensor& tensor : list) tensor = map(tensor);
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor && tensor->defined() ? std::optional<at::Tensor>(map(*tensor)) : tensor);
    }
    return list;
  }
  return value;
}

// Waits until everything is done that precedes the operator in the current stream of each device in `devices` (bits).
void SynchronizeStreams(uint64_t devices);

// Adds the operator to the capture of the current stream: a function of the host that replays run. Results are on the
// stack afterwards. Refuses what cannot be captured.
void Capture(const c10::OperatorHandle& op, const Signature& signature, c10::Device device, torch::jit::Stack* stack);

bool Capturing(c10::Device device);

}  // namespace softgpu::aten
