// Code: modules, loaded into one context, and libraries, loaded into every context at its first use. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tools/softgpu/cuda/context.h"
#include "tools/softgpu/cuda/cuda_api.h"
#include "tools/softgpu/cuda/operation.h"
#include "tools/softgpu/engine/engine.h"

namespace softgpu::cuda {

class Module;

// A kernel of a module in a context.
struct Function {
  std::shared_ptr<Module> module;
  const engine::Kernel* kernel = nullptr;
  // Unless set, what is left of 48 KiB.
  std::atomic<int> max_dynamic_shared{0};
  std::atomic<int> shared_carveout{-1};
  std::atomic<bool> launched{false};

  const engine::KernelInfo& info() const { return engine::Info(*kernel); }
};
using FunctionPtr = std::shared_ptr<Function>;

class Module : public std::enable_shared_from_this<Module> {
 public:
  // `text` is PTX.
  static CUresult Load(const ContextPtr& context, const std::string& text, int arch, std::shared_ptr<Module>* module);
  ~Module();

  FunctionPtr FindFunction(const std::string& name);
  // A variable becomes known as device memory when it is requested.
  bool FindVariable(const std::string& name, uint64_t* address, size_t* bytes);
  std::vector<std::string> FunctionNames() const { return code_->KernelNames(); }
  // Removes the handles of its functions.
  void ForgetFunctions();
  const ContextPtr& context() const { return context_; }
  int arch() const { return arch_; }

 private:
  Module(ContextPtr context, std::unique_ptr<engine::Module> code, int arch);

  ContextPtr context_;
  std::unique_ptr<engine::Module> code_;
  int arch_;
  std::mutex mutex_;
  std::map<std::string, FunctionPtr> functions_;
  std::map<std::string, uint64_t> variables_;
};
using ModulePtr = std::shared_ptr<Module>;

class Library;

// A kernel of a library: a function in each context.
struct LibraryKernel {
  std::shared_ptr<Library> library;
  std::string name;
};

class Library : public std::enable_shared_from_this<Library> {
 public:
  Library(std::string text, int arch) : text_(std::move(text)), arch_(arch) {}
  CUresult ModuleIn(const ContextPtr& context, ModulePtr* module);
  // Whether its code has an entry of that name; does not load it.
  bool Defines(const std::string& name) const;
  // How many entries its code has; does not load it.
  size_t CountKernels() const;
  std::shared_ptr<LibraryKernel> FindKernel(const std::string& name);
  void Drop(const ContextPtr& context);
  // Unloads all modules.
  void Unload();

 private:
  std::string text_;
  int arch_;
  std::mutex mutex_;
  std::map<uint64_t, ModulePtr> modules_;  // by id of context
  std::map<std::string, std::shared_ptr<LibraryKernel>> kernels_;
};

// Finds the PTX of an image for this device; CUDA_ERROR_NO_BINARY_FOR_GPU or CUDA_ERROR_INVALID_IMAGE if there is none.
CUresult ChooseImage(const void* data, std::string* text, int* arch);
// Resolves a CUfunction, or a CUkernel in place of one. `context`: where to look up a CUkernel.
CUresult ResolveFunction(CUfunction handle, const ContextPtr& context, FunctionPtr* function);
// Removes the handles of a module and its functions; the code is freed when no launch uses it any more.
void Retire(const ModulePtr& module);
void DropModules(const ContextPtr& context);

// ---- launches ----
struct LaunchShape {
  engine::Dim3 grid, block;
  unsigned shared_bytes = 0;
  bool cooperative = false;
};

// Returns CUDA_SUCCESS if the function can be launched like this.
CUresult CheckLaunch(const Function& function, const LaunchShape& shape);
// Copies the arguments into one buffer.
CUresult PackArguments(const Function& function, void** arguments, void** extra, std::vector<std::byte>* packed);
// What the driver takes of a multiprocessor's shared memory for each block.
size_t ReservedSharedMemory(int device);
// How many blocks fit on a multiprocessor.
int Occupancy(const Function& function, int threads, size_t dynamic_shared);

class KernelOperation : public Operation {
 public:
  KernelOperation(FunctionPtr function, const LaunchShape& shape, std::vector<std::byte> arguments);
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_KERNEL; }
  std::unique_ptr<Work> Begin() const override;
  // The pointers that it returns are valid as long as the operation.
  void Describe(CUDA_KERNEL_NODE_PARAMS* parameters) const;

 private:
  FunctionPtr function_;
  LaunchShape shape_;
  std::vector<std::byte> arguments_;
  std::vector<void*> argument_pointers_;
};

}  // namespace softgpu::cuda
